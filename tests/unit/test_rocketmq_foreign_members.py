"""Members of a group that do not go by its plan, and those that brokers list nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.adapters.rocketmq import foreign_members as module
from holdfast.adapters.rocketmq.foreign_members import ForeignMemberWatch
from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.answers import Answer
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.errors import SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.clocks import HandClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.remoting.in_flight import Request

QUEUES = [Partition("orders", number, "a") for number in range(3)] + [Partition("%RETRY%g", 0, "a")]
TOPICS: Any = SimpleNamespace(queues=QUEUES)


class Broker:
    """As a client sees it: nobody is listed, and so many wait in pops of this topic, one question after the other."""

    def __init__(self, *waits: int) -> None:
        self.waits = list(waits)
        self.asked: list[tuple[str, str]] = []
        self.network = self

    client_id = "us"

    def broker_names(self) -> list[str]:
        return ["a"]

    def consumer_ids(self, broker: str, group: str, deadline: Deadline) -> list[str]:
        return []

    def master(self, broker: str) -> str:
        return "a:10911"

    def begin(
        self,
        address: str,
        request: Request,
        timeout_s: float,
        read: Callable[[Answer], Any],
        on_answer: Callable[[Any], None],
    ) -> None:
        assert request.code == codes.Request.POLLING_INFO
        self.asked.append((request.fields["topic"], request.fields["queueId"]))
        waits = self.waits.pop(0) if len(self.waits) > 1 else self.waits[0]
        on_answer(read(Answer("", address, 0, None, {"pollingNum": str(waits)}, b"")))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    made = HandClock()
    monkeypatch.setattr(module, "SYSTEM_CLOCK", made)
    return made


def watch_of(broker: Broker) -> ForeignMemberWatch:
    return ForeignMemberWatch(cast("Any", broker), MemoryCoordinator(), "g", TOPICS)


def test_who_waits_for_messages_one_by_one_is_one() -> None:
    """Proxies ask for any queue of a broker. Between two polls nobody waits: one look is not enough."""
    broker = Broker(0, 0, 1)
    watch = watch_of(broker)
    [found] = watch.look(Deadline(10.0))
    assert "gRPC" in found
    assert "orders" in found
    assert set(broker.asked) == {("orders", "-1")}
    assert "gRPC" in str(watch.error([found]))


def test_nobody_waits_in_a_group_of_our_own() -> None:
    assert watch_of(Broker(0)).look(Deadline(10.0)) == []


def test_a_poll_that_a_client_has_left_behind_is_waited_for_at_a_start() -> None:
    broker = Broker(*[1] * 4, 0)
    assert watch_of(broker).look(Deadline(60.0), pops_end_s=30.0) == []


def test_a_broker_without_a_master_hides_no_other() -> None:
    broker: Any = SimpleNamespace(client_id="us", broker_names=list, master=_away)
    assert ForeignMemberWatch(broker, MemoryCoordinator(), "g", TOPICS).look(Deadline(1.0)) == []


def _away(broker: str) -> str:
    raise SourceUnavailable(broker)
