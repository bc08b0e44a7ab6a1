"""What a call refuses, the client refuses: the same calls at both, without a broker."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from holdfast import MemoryClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

#: No broker listens there.
CONF: dict[str, Any] = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "log_level": 0,
    "partition.assignment.strategy": "cooperative-sticky",
}
HERE = TopicPartition("orders", 0, 5)
NOWHERE = TopicPartition("orders", 0)
END = Message("orders", 0, 5, error=KafkaError(KafkaError._PARTITION_EOF))

CALLS: dict[str, Callable[[Any], object]] = {
    "subscribe to text": lambda loop: loop.subscribe("orders"),
    "subscribe to a tuple": lambda loop: loop.subscribe(("orders",)),
    "subscribe to nothing": lambda loop: loop.subscribe([]),
    "subscribe to no name": lambda loop: loop.subscribe([""]),
    "subscribe to None": lambda loop: loop.subscribe(None),
    "on_assign is no function": lambda loop: loop.subscribe(["orders"], on_assign=3),
    "on_revoke is no function": lambda loop: loop.subscribe(["orders"], on_revoke="f"),
    "on_lost is no function": lambda loop: loop.subscribe(["orders"], on_lost=[]),
    "poll for a text": lambda loop: loop.poll("1"),
    "consume none": lambda loop: loop.consume(0, 0.1),
    "consume less": lambda loop: loop.consume(-1, 0.1),
    "consume too many": lambda loop: loop.consume(1_000_001, 0.1),
    "seek what is not assigned": lambda loop: loop.seek(HERE),
    "seek a number": lambda loop: loop.seek(3),
    "store what is not assigned": lambda loop: loop.store_offsets(offsets=[HERE]),
    "store nothing": lambda loop: loop.store_offsets(),
    "store both": lambda loop: loop.store_offsets(END, [HERE]),
    "store a number": lambda loop: loop.store_offsets(3),
    "store numbers": lambda loop: loop.store_offsets(offsets=[3]),
    "store an end": lambda loop: loop.store_offsets(END),
    "commit a number": lambda loop: loop.commit(3),
    "commit numbers": lambda loop: loop.commit(offsets=[3], asynchronous=False),
    "commit both": lambda loop: loop.commit(END, [HERE]),
    "commit an end": lambda loop: loop.commit(END),
    "commit an end and wait": lambda loop: loop.commit(message=END, asynchronous=False),
    "commit no partition": lambda loop: loop.commit(offsets=[], asynchronous=False),
    "commit no offset": lambda loop: loop.commit(offsets=[NOWHERE], asynchronous=False),
    "commit when there is nothing": lambda loop: loop.commit(asynchronous=False),
    "position of a number": lambda loop: loop.position(3),
    "position of numbers": lambda loop: loop.position([3]),
    "position of what is not assigned": lambda loop: [each.offset for each in loop.position([HERE])],
    "assign a number": lambda loop: loop.assign(3),
    "pause a number": lambda loop: loop.pause(3),
    "resume numbers": lambda loop: loop.resume([3]),
    "pause what is not assigned": lambda loop: loop.pause([HERE]),
    "incremental_unassign a number": lambda loop: loop.incremental_unassign(3),
    "assignment": lambda loop: loop.assignment(),
    "memberid": lambda loop: loop.memberid(),
    "unsubscribe": lambda loop: loop.unsubscribe(),
}
#: There the client of 2.16 looks for no closed consumer, or only after its arguments; some of these end the process.
_LOOKS_LATE = {"pause a number", "resume numbers", "pause what is not assigned", "poll for a text"}


def outcome(call: Callable[[Any], object], loop: object) -> object:
    """The result, or the kind of error and its code."""
    try:
        return call(loop)
    except KafkaException as error:
        return error.args[0].name()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error)


@pytest.fixture
def both() -> Any:
    made = Consumer(CONF), KafkaConsumer(CONF, claims=MemoryClaims(), settings=Settings(startup_timeout_s=0.2))
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("stores", [True, False])
def test_a_call_before_the_loop_has_joined_ends_as_the_clients(stores: bool) -> None:
    conf = CONF | {"enable.auto.offset.store": stores}
    theirs = Consumer(conf)
    with KafkaConsumer(conf, claims=MemoryClaims()) as ours:
        told = {name: (outcome(call, ours), outcome(call, theirs)) for name, call in CALLS.items()}
    theirs.close()
    assert {name: each for name, each in told.items() if each[0] != each[1]} == {}


def test_a_call_after_close_ends_as_the_clients(both: Any) -> None:
    for each in both:
        each.close()
    told = {name: {outcome(call, each) for each in both} for name, call in CALLS.items() if name not in _LOOKS_LATE}
    assert {name: each for name, each in told.items() if each != {RuntimeError}} == {}


def test_subscribing_waits_for_no_broker(both: Any) -> None:
    for each in both:
        each.subscribe(["orders"])
        each.subscribe(["bills"])
        assert each.poll(0) is None


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("name", ["error_cb", "stats_cb"])
def test_what_a_callback_of_the_configuration_raises_comes_out_of_poll(name: str, joins: bool) -> None:
    def told(_: object) -> None:
        raise ZeroDivisionError

    ends: list[object] = []
    for kind in (Consumer, lambda conf: KafkaConsumer(conf, claims=MemoryClaims())):
        loop = kind(CONF | {name: told, "statistics.interval.ms": 50})
        if joins:
            loop.subscribe(["orders"])
        until(lambda: outcome_of_poll(loop, ends))  # noqa: B023 - asked at once
        with suppress(ZeroDivisionError):  # it may be called once more
            loop.close()
    assert len(ends) == 2


def outcome_of_poll(loop: Any, ends: list[object]) -> bool:
    try:
        loop.poll(0.1)
    except ZeroDivisionError as error:
        ends.append(error)
        return True
    return False
