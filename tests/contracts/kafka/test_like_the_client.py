"""KafkaConsumer is like confluent_kafka.Consumer: the same calls at both, on a real broker, and both tell the same.

What is not the same is listed at the end, with the reason; docs/how-to/own-loop.md has it for users.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from holdfast.errors import SettingError
from tests.contracts.kafka.alike import MODES, Side, draw, told
from tests.harness.waiting import until
from tests.tiers import first_and_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.kafka import KafkaServer

_STEPS = 40


@pytest.fixture
def sides(kafka: KafkaServer, redis_url: str) -> Callable[..., Any]:
    @contextmanager
    def both(mode: str) -> Iterator[list[Side]]:
        made = [Side(kafka, redis_url, kind, mode) for kind in ("client", "holdfast")]
        try:
            yield made
        finally:
            for each in made:
                each.close()

    return both


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", first_and_full(range(10), 1))
def test_the_same_calls_tell_the_same_and_leave_the_same_to_a_successor(sides: Any, mode: str, seed: int) -> None:
    with sides(mode) as (client, ours):
        for each in (client, ours):
            each.join()
        for number, (name, call) in enumerate(draw(seed, mode, _STEPS)):
            assert told(call, ours) == told(call, client), f"{number}: {name}"
        for each in (client, ours):  # what was returned last is not done by a close: see below
            told(lambda on: on.consumer.commit(asynchronous=False), each)
        assert ours.successor() == client.successor()


# ---- what other projects' loops do at an assignment


def _assigned(sides: Any, mode: str, on_assign: Callable[[Any, list[TopicPartition]], object], **conf: Any) -> Any:
    """What each has returned of three records, when its on_assign has said its word."""
    with sides(mode) as both:
        for each in both:
            each.produce(3)
            each.consumer.close()
            each.consumer = each._made(**conf)
            each.consumer.subscribe([each.topic], on_assign=on_assign)
            yield each


def test_a_new_group_has_committed_nothing_and_nobody_is_told_of_a_commit(sides: Any) -> None:
    seen: list[Any] = []
    commits: list[Any] = []

    def on_assign(consumer: Any, came: list[TopicPartition]) -> None:
        seen.append([(each.offset, each.metadata) for each in consumer.committed(came, 20.0)])

    for each in _assigned(sides, "commits", on_assign, on_commit=lambda *args: commits.append(args)):
        assert each.read(3) == [0, 1, 2]
        seen.append([(one.offset, one.metadata) for one in each.consumer.committed([each.here()], 20.0)])
        assert commits == []
        each.consumer.commit()
        until(lambda: each.consumer.poll(0.1) is None and commits)  # noqa: B023 - asked at once
        [(error, [one])] = commits
        assert (error, one.offset, one.metadata) == (None, 3, None)
        commits.clear()
    assert seen == [[(-1001, None)]] * 4


def test_what_on_assign_does_not_assign_is_not_read(sides: Any) -> None:
    for each in _assigned(sides, "commits", lambda consumer, _: consumer.assign([])):
        until(lambda: each.consumer.poll(0.1) is None and each.consumer.memberid())  # noqa: B023 - asked at once
        assert [each.consumer.poll(0.1) for _ in range(10)] == [None] * 10
        assert each.consumer.assignment() == []


def test_offsets_beyond_what_was_returned_are_committed_and_the_successor_begins_there(sides: Any) -> None:
    with sides("commits") as both:
        for each in both:
            each.join()
            each.produce(4)
            [reply] = each.consumer.commit(offsets=[each.here(3)], asynchronous=False)
            assert (reply.offset, reply.error) == (3, None)
            assert each.consumer.committed([each.here()], 20.0)[0].offset == 3
            assert each.successor() == [3, 4, 5]


def test_a_partition_that_is_paused_tells_no_end(sides: Any) -> None:
    ends = KafkaError._PARTITION_EOF
    for each in _assigned(sides, "commits", lambda *_: None, **{"enable.partition.eof": True}):
        polled = [each.consumer.poll(20.0) for _ in range(4)]
        assert [one.error() and one.error().code() for one in polled] == [None, None, None, ends]
        each.consumer.pause([each.here()])
        each.consumer.seek(each.here(3))
        assert [each.consumer.poll(0.1) for _ in range(10)] == [None] * 10
        each.consumer.resume([each.here()])
        until(lambda: (one := each.consumer.poll(0.1)) is not None and one.error().code() == ends)  # noqa: B023 - as above


@pytest.mark.parametrize("sent", [["abort"], ["commit"], ["commit", "abort"], ["commit", "abort", "commit"]])
def test_a_loop_that_reads_to_its_end_by_position_comes_to_the_end_of_a_log_of_transactions(
    sides: Any, kafka: KafkaServer, sent: list[str]
) -> None:
    for each in _assigned(sides, "commits", lambda *_: None):
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": each.topic, "log_level": 0})
        producer.init_transactions(20.0)
        for end in sent:
            producer.begin_transaction()
            for _ in range(3):
                producer.produce(each.topic, b"x", partition=0)
            producer.flush(20.0)
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)(20.0)
        returned: list[int] = []

        def is_at_the_end(each: Side = each, returned: list[int] = returned) -> bool:
            if (one := each.consumer.poll(0.1)) is not None:
                returned.append(one.offset())
            [position] = each.consumer.position([each.here()])
            assert not returned or position.offset > returned[-1]
            return bool(position.offset == each.consumer.get_watermark_offsets(each.here(), 20.0)[1])

        until(is_at_the_end)
        behind = [
            offset
            for number, end in enumerate(sent)
            if end == "commit"
            for offset in range(3 + 4 * number, 6 + 4 * number)
        ]
        assert returned == [0, 1, 2, *behind]


def test_a_consumer_of_no_group_commits_for_it(sides: Any) -> None:
    with sides("commits") as both:
        for each in both:
            each.produce(3)
            where = TopicPartition(each.topic, 0, 2, metadata="by hand")
            assert each.consumer.commit(offsets=[where], asynchronous=False)[0].offset == 2
            [read] = each.consumer.committed([each.here()], 20.0)
            assert (read.offset, read.metadata) == (2, "by hand")
            assert each.successor() == [2, 3]


@pytest.mark.full
def test_an_error_is_told_before_what_it_leads_to(sides: Any) -> None:
    with sides("commits") as both:
        for each in both:
            lost: list[object] = []
            each.produce(1)
            each.consumer.close()
            each.consumer = each._made(**{"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000})
            each.consumer.subscribe([each.topic], on_lost=lambda *_, lost=lost: lost.append(1))
            assert each.read(1) == [0]
            time.sleep(7.0)  # away for longer than it may be
            assert each.consumer.poll(5.0).error().code() == KafkaError._MAX_POLL_EXCEEDED
            assert lost == []
            until(lambda: each.consumer.poll(0.1) is None and lost)  # noqa: B023 - asked at once


# ---- what differs


def _returned_last(side: Side) -> object:
    side.join()
    side.produce(1)
    assert side.batch(1) == [1]
    return side.successor()


def _commit_lower(side: Side) -> object:
    side.join()
    side.produce(2)
    side.read(2)
    side.consumer.commit(asynchronous=False)
    return [side.consumer.commit(offsets=[side.here(1)], asynchronous=False)[0].offset, side.successor()]


def _assign_by_hand(side: Side) -> object:
    if side.kind == "client":
        return side.consumer.assign([side.here(0)])
    with pytest.raises(KafkaException) as caught:
        side.consumer.assign([side.here(0)])
    return (isinstance(caught.value, SettingError), caught.value.__notes__)


def _commit_elsewhere(side: Side) -> object:
    side.join()
    return told(lambda on: on.consumer.commit(offsets=[on.here(1, number=7)], asynchronous=False), side)


#: What each is told, the client first; and why.
DIFFERENT: dict[str, tuple[Callable[[Side], object], str, object, object]] = {
    # Whether the loop has handled it cannot be known: it is not lost (P1).
    "the last record, after close()": (_returned_last, "automatic", [2], [1, 2]),
    # A commit that comes late may not have records run again (P2, P4): who wants that, seeks.
    "an offset lower than what is done": (_commit_lower, "commits", [1, [1, 2, 3]], [3, [3]]),
    # What does not move needs no grip.
    "assign() outside of on_assign": (_assign_by_hand, "commits", None, (True, ["docs: docs/how-to/own-loop.md"])),
    # It is another member's, or was lost: a commit may not move what it does (P4).
    "a partition that is not assigned": (_commit_elsewhere, "commits", "UNKNOWN_TOPIC_OR_PART", "_ASSIGNMENT_LOST"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_differs_as_it_is_said(sides: Any, name: str) -> None:
    call, mode, theirs, own = DIFFERENT[name]
    with sides(mode) as (client, ours):
        assert (call(client), call(ours)) == (theirs, own)
