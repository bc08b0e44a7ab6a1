"""What a group that was consumed in another way has left, where the way that it changes to does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.adapters.rocketmq.left_behind import LeftBehind, LeftBehindWatch
from holdfast.adapters.rocketmq.remoting.routes import QueueData, Route
from holdfast.errors import SourceError, SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.records import Partition

TOPIC = "%RETRY%billing"


class Broker:
    """One queue of that topic: where its log begins and ends, and where the group is; None = no offset."""

    def __init__(
        self, first: int, end: int, at: int | None, *, members: Sequence[str] = (), is_there: bool = True
    ) -> None:
        self.first, self.end, self.at, self.members, self.is_there = first, end, at, list(members), is_there
        self.away = False

    def routes_of(self, topics: Sequence[str], deadline: Deadline) -> dict[str, Route | SourceError]:
        if self.away:
            return {topic: SourceUnavailable("away") for topic in topics}
        if not self.is_there:
            return {topic: UnknownTopic(topic) for topic in topics}
        queues, brokers = (QueueData("a", 1, 1, 6),), {"a": {0: "a:10911"}}
        return {topic: Route(topic=topic, queue_datas=queues, brokers=brokers) for topic in topics}

    def query_offset(self, queue: Partition, group: str, deadline: Deadline) -> int | None:
        return self.at

    def min_offset(self, queue: Partition, deadline: Deadline) -> int:
        return self.first

    def max_offset(self, queue: Partition, deadline: Deadline) -> int:
        return self.end

    def consumer_ids(self, broker: str, group: str, deadline: Deadline) -> list[str]:
        return self.members


@pytest.fixture
def watches() -> Iterator[list[LeftBehindWatch]]:
    made: list[LeftBehindWatch] = []
    yield made
    for each in made:
        each.stop()


def start(broker: Broker, watches: list[LeftBehindWatch], *, members_read: bool = True) -> None:
    watch = LeftBehindWatch(
        cast("Any", broker), "billing", [TOPIC], readers="a RocketMQSource", members_read=members_read
    )
    watches.append(watch)
    watch.start(Deadline(5.0))


@pytest.mark.parametrize(("log", "at", "waits"), [((0, 3), 1, 2), ((0, 3), None, 3), ((2, 3), 0, 1)])
def test_what_waits_there_is_refused_with_the_steps_to_take(
    log: tuple[int, int], at: int | None, waits: int, watches: list[LeftBehindWatch]
) -> None:
    with pytest.raises(LeftBehind, match=rf"^{waits} messages of the group billing .*RETRY.*RocketMQSource.*mqadmin"):
        start(Broker(*log, at), watches)


@pytest.mark.parametrize(
    "broker",
    [
        Broker(0, 3, 3),
        Broker(3, 3, None),
        Broker(0, 0, None, is_there=False),
        Broker(0, 3, 1, members=["java@1"]),
    ],
    ids=["all is read", "expired", "no such topic", "members read it"],
)
def test_what_is_read_or_is_not_there_is_nothing(broker: Broker, watches: list[LeftBehindWatch]) -> None:
    start(broker, watches)


def test_members_of_a_kind_that_does_not_read_it_are_no_reason_to_go_on(watches: list[LeftBehindWatch]) -> None:
    with pytest.raises(LeftBehind):
        start(Broker(0, 3, 1, members=["cpp@1"]), watches, members_read=False)


def test_brokers_that_are_away_hold_up_no_start(watches: list[LeftBehindWatch]) -> None:
    broker = Broker(0, 3, 1)
    broker.away = True
    start(broker, watches)


def test_what_comes_there_later_is_told_with_the_steps_to_take(
    watches: list[LeftBehindWatch], caplog: pytest.LogCaptureFixture
) -> None:
    """A broker brings it after hours at most."""
    broker = Broker(0, 0, None)
    start(broker, watches)
    broker.end = 1
    for _ in range(3):
        watches[0]._look_again(Deadline(5.0))
    assert caplog.text.count("1 messages of the group billing wait where this source does not read") == 1
