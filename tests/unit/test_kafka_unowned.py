"""Partitions that nobody owns: what a description says of them, and when a member joins anew."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.broker_features import NOT_ASKED
from holdfast.adapters.kafka.callbacks import Callbacks
from holdfast.adapters.kafka.config import check
from holdfast.adapters.kafka.emission import emit
from holdfast.adapters.kafka.quirks import unowned as module
from holdfast.adapters.kafka.quirks.unowned import Watch, assigned_in, topics_of, unowned, watch
from holdfast.errors import SourceUnavailable
from holdfast.records import Partition
from tests.harness.clocks import HandClock

if TYPE_CHECKING:
    from holdfast.adapters.kafka.emission import ClientConfig

DRAIN_S = 10.0
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
STATIC = {"group.instance.id": "one"}


def described(has: dict[str, list[int]], state: str = "STABLE", kind: str = "CLASSIC") -> Any:
    """A description as the binding has it: what each member has of `orders`."""
    return SimpleNamespace(
        state=SimpleNamespace(name=state),
        type=SimpleNamespace(name=kind),
        members=[
            SimpleNamespace(
                member_id=name,
                assignment=SimpleNamespace(
                    topic_partitions=[SimpleNamespace(topic="orders", partition=each) for each in numbers]
                ),
            )
            for name, numbers in has.items()
        ],
    )


def orders(*numbers: int) -> frozenset[Partition]:
    return frozenset(Partition("orders", number) for number in numbers)


# ---- what a description says
def test_what_is_in_no_assignment_has_no_owner() -> None:
    assigned = assigned_in(described({"a": [2], "b": []}))
    assert assigned == {"a": orders(2), "b": frozenset()}
    assert unowned({"orders": 4}, assigned) == orders(0, 1, 3)
    assert unowned({"orders": 3, "bills": 1}, {"a": orders(0, 1, 2)}) == {Partition("bills", 0)}
    assert unowned({}, assigned) == frozenset()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("PREPARING_REBALANCING", "CLASSIC"), ("COMPLETING_REBALANCING", "CLASSIC"), ("STABLE", "CONSUMER")],
)
def test_a_group_that_rebalances_and_one_of_the_consumer_protocol_say_nothing(state: str, kind: str) -> None:
    assert assigned_in(described({"a": [2]}, state, kind)) is None


def test_a_pattern_stands_for_the_topics_that_somebody_has_partitions_of() -> None:
    assigned = {"a": [Partition("orders-eu", 0)], "b": [Partition("orders-us", 3), Partition("bills", 0)]}
    assert topics_of(["orders", "^orders-.*"], assigned) == {"orders", "orders-eu", "orders-us"}
    assert topics_of(["^or"], assigned) == {"orders-eu", "orders-us"}
    assert topics_of(["^(broken"], assigned) == set()


# ---- who looks
def client(**conf: str) -> ClientConfig:
    return emit(check({"bootstrap.servers": "b:9092", "group.id": "billing"} | conf, "keep"), NOT_ASKED)


@pytest.mark.parametrize(
    "conf",
    [COOPERATIVE, STATIC | {"partition.assignment.strategy": "range"}, STATIC | {"group.protocol": "consumer"}],
    ids=["dynamic", "eager", "consumer protocol"],
)
def test_nobody_looks_who_cannot_come_back_into_such_a_group(conf: dict[str, str]) -> None:
    assert watch(client(**conf), Callbacks("billing", "b"), Admin({}), DRAIN_S) is None


class Group:
    """A group with one member that watches, and the cluster that it asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = HandClock()
        monkeypatch.setattr(module, "SYSTEM_CLOCK", self.clock)
        self.callbacks = Callbacks("billing", "b")
        self.answer: Any = described({"one": [2, 3], "two": []})
        self.asked: list[Future[Any]] = []
        self.calls: list[str] = []
        self.raises: list[BaseException] = []
        found = watch(client(**STATIC, **COOPERATIVE), self.callbacks, cast("Any", self), DRAIN_S)
        assert found is not None
        self.watch: Watch = found

    # ---- in the place of an Admin, and of its client
    @property
    def client(self) -> Group:
        return self

    def doubt(self, _: object) -> None:
        """Only the real one has brokers to lose."""

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Future[Any]]:
        assert groups == ["billing"]
        self.asked.append(Future())
        return {"billing": self.asked[-1]}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        assert topics.topic_names == ["gone", "orders"]
        found: Future[Any] = Future()
        found.set_result(SimpleNamespace(partitions=[None] * 4))
        gone: Future[Any] = Future()
        gone.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"gone": gone, "orders": found}

    # ---- in the place of a consumer
    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")

    def subscribe(self, topics: list[str], **_: Any) -> None:
        if self.raises:
            raise self.raises.pop()
        self.calls.append(f"subscribe {topics}")

    # ---- what happens
    def step(self) -> None:
        self.watch.step(cast("Any", self), ["orders", "gone"])

    def pass_by(self, seconds: float) -> None:
        """A step at the end of that time, and one as soon as there is an answer."""
        self.clock.sleep(seconds)
        self.step()
        if self.asked and not self.asked[-1].done():
            if isinstance(self.answer, Exception):
                self.asked[-1].set_exception(self.answer)
            else:
                self.asked[-1].set_result(self.answer)
        self.step()


JOINED_ANEW = ["unsubscribe", "subscribe ['orders', 'gone']"]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group(monkeypatch)


def seen_once(group: Group) -> None:
    group.step()
    group.callbacks.assignments += 1
    group.step()
    group.pass_by(3)
    assert len(group.asked) == 1


def test_the_same_partitions_without_an_owner_after_a_drains_time_make_it_join_anew_once(group: Group) -> None:
    seen_once(group)
    group.pass_by(DRAIN_S)
    assert (len(group.asked), group.calls) == (1, [])
    with pytest.raises(SourceUnavailable, match=r"^billing: no member owns orders-0, orders-1\. .* joins anew"):
        group.pass_by(2)
    assert group.calls == JOINED_ANEW
    group.callbacks.assignments += 1
    group.pass_by(1_000)
    assert (len(group.asked), group.calls) == (2, JOINED_ANEW)


def test_nothing_is_asked_before_the_first_assignment_nor_waited_for(group: Group) -> None:
    group.pass_by(1_000)
    assert group.asked == []
    group.callbacks.assignments += 1
    group.step()
    group.clock.sleep(3)
    for _ in range(3):
        group.step()
    [future] = group.asked
    assert not future.done()


def test_when_everybody_has_something_nothing_more_is_asked(group: Group) -> None:
    group.answer = described({"one": [2, 3], "two": [0, 1]})
    seen_once(group)
    group.pass_by(1_000)
    assert (len(group.asked), group.calls) == (1, [])


@pytest.mark.parametrize(
    "then",
    [
        described({"one": [2, 3], "two": [0, 1]}),  # the drain is over
        described({"one": [2], "two": [3]}),  # there was a rebalance, and somebody drains again
        described({"one": [], "two": []}, "PREPARING_REBALANCING"),
    ],
    ids=["owned", "others", "rebalancing"],
)
def test_a_group_that_has_moved_since_is_left_alone(group: Group, then: Any) -> None:
    seen_once(group)
    group.answer = then
    group.pass_by(DRAIN_S + 2)
    group.pass_by(1_000)
    assert (len(group.asked), group.calls) == (2, [])


def test_without_the_right_to_ask_one_line_says_so_and_nothing_else_happens(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.kafka")
    group.answer = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    seen_once(group)
    group.pass_by(1_000)
    assert (len(group.asked), group.calls) == (1, [])
    [line] = caplog.records
    assert (line.levelno, "whether partitions of billing have no owner" in line.message) == (logging.INFO, True)


def test_what_a_signal_has_torn_is_done_by_the_next_step(group: Group) -> None:
    group.raises = [KeyboardInterrupt()]
    seen_once(group)
    with pytest.raises(KeyboardInterrupt):
        group.pass_by(DRAIN_S + 2)
    assert group.calls == ["unsubscribe"]
    with pytest.raises(SourceUnavailable):
        group.step()
    assert group.calls == ["unsubscribe", *JOINED_ANEW]


def test_a_client_that_is_finished_is_left_to_those_who_make_a_new_one(group: Group) -> None:
    group.raises = [KafkaException(KafkaError(KafkaError._FATAL))]
    seen_once(group)
    group.pass_by(DRAIN_S + 2)
    group.pass_by(1_000)
    assert group.calls == ["unsubscribe"]
