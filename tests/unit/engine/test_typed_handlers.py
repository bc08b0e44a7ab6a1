"""Handlers with `value=` in an app: what cannot be decoded is a dead letter with its raw bytes, and holds up nobody."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import BatchFailed, BatchOf, DeadLetterLimit, Retry, Settings, Unretriable, make_record
from holdfast.errors import HandlerFailed, RecordUnreadable, RegistryUnavailable
from holdfast.plugin.events import DeadLetterLimitReached
from holdfast.plugin.handling.values import Reading
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.records import Partition
from holdfast.testing.brokers.logs import Stored
from tests.harness.engine import Bench, Letters

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record

QUICKLY = Settings(workers=4, commit_interval_s=0.01)


@dataclass
class Order:
    order_id: int


class Model(BaseModel):
    order_id: int


class Seen:
    """What the handlers got, by their kinds."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def plain(self, order: Any, record: Record) -> None:
        assert record.json()["order_id"] == order.order_id
        self.ids.append(order.order_id)

    async def coroutine(self, order: Any) -> None:
        self.ids.append(order.order_id)

    def batch(self, orders: list[Any], records: list[Record]) -> None:
        assert [each.json()["order_id"] for each in records] == [each.order_id for each in orders]
        self.ids += [each.order_id for each in orders]

    async def batch_coroutine(self, orders: list[Any]) -> None:
        self.ids += [each.order_id for each in orders]


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "coroutine": {},
    "batch": {"batch": BatchOf(records=4)},
    "batch_coroutine": {"batch": BatchOf(records=4)},
}


def produce(bench: Bench, *values: bytes | None) -> None:
    bench.broker.store(Partition("orders", 0), *(Stored(None, value, ()) for value in values))


def consumed(values: list[bytes], handler: Callable[..., Any], **handling: Any) -> Letters:
    """All of these records are handled or letters; the letters."""
    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, *values)
        bench.member(settings=QUICKLY, dead_letter="dlq", dead_letters=letters, handler=handler, **handling)
        bench.wait_committed(len(values))
    return letters


def order(number: int) -> bytes:
    return b'{"order_id": %d}' % number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ordering", "value"), [("key", Order), ("partition", Model), ("none", Order)])
def test_what_cannot_be_decoded_is_a_letter_and_its_neighbours_are_handled(
    kind: str, value: Any, ordering: Any
) -> None:
    values = [order(0), b"\xff\x00raw", order(2), b'{"order_id": "x"}', b"", order(5)]
    seen = Seen()
    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, *values, None)
        bench.member(
            settings=Settings(workers=4, commit_interval_s=0.01, ordering=ordering),
            dead_letter="dlq",
            dead_letters=letters,
            handler=getattr(seen, kind),
            value=value,
            **KINDS[kind],
        )
        bench.wait_committed(7)
    assert sorted(seen.ids) == [0, 2, 5]
    assert {letter.record.value for letter in letters.sent} == {b"\xff\x00raw", b'{"order_id": "x"}', b"", None}
    for letter in letters.sent:
        said = dict(headers_of(letter))
        assert said["holdfast-error-type"] == b"holdfast.errors.RecordUnreadable"
        assert said["holdfast-attempts"] == b"1"
        assert f"offset {letter.record.offset}".encode() in (said["holdfast-error-message"] or b"")


@pytest.mark.parametrize("kind", ["plain", "batch"])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_so_it_is_of_records_that_go_together(kind: str, ordering: Any) -> None:
    """Once handlers are known to be quick, a worker takes many records at once."""
    values = [b"?" if number % 100 == 99 else order(number) for number in range(1000)]
    seen = Seen()
    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, *values)
        bench.member(
            settings=Settings(workers=2, commit_interval_s=0.01, ordering=ordering),
            dead_letter="dlq",
            dead_letters=letters,
            handler=getattr(seen, kind),
            value=Order,
            retry=Retry(attempts=1),
            **KINDS[kind],
        )
        bench.wait_committed(len(values))
    assert sorted(seen.ids) == [number for number in range(1000) if number % 100 != 99]
    assert [letter.record.offset for letter in sorted(letters.sent, key=_offset)] == list(range(99, 1000, 100))


def _offset(letter: Letter) -> int:
    return letter.record.offset


def test_without_a_dead_letter_the_app_stops_and_says_why() -> None:
    with Bench() as bench:
        produce(bench, b'{"order_id": "x"}')
        member = bench.member(settings=QUICKLY, handler=Seen().plain, value=Model)
        assert member.over.wait(30)
        with pytest.raises(HandlerFailed, match=r"offset 0 cannot be decoded by Model.*order_id"):
            member.join()


def test_such_letters_count_towards_the_limit() -> None:
    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, *[b"?"] * 9)
        member = bench.member(
            settings=Settings(workers=4, commit_interval_s=0.01, ordering="partition"),
            dead_letter="dlq",
            dead_letters=letters,
            handler=Seen().plain,
            value=Order,
            dead_letter_limit=DeadLetterLimit(in_a_row=3, then="stop"),
        )
        assert member.over.wait(30)
        with pytest.raises(HandlerFailed, match="dead_letter_limit"):
            member.join()
        assert any(isinstance(event, DeadLetterLimitReached) for event in member.events)
    assert len(letters.sent) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_decodes_nothing(kind: str) -> None:
    decoded: list[bytes] = []
    tries: list[object] = []

    def decode(raw: bytes) -> bytes:
        decoded.append(raw)
        return raw

    def plain(value: object) -> None:
        tries.append(value)
        if len(tries) < 3:
            raise OSError

    async def coroutine(value: object) -> None:
        plain(value)

    consumed([b"a"], coroutine if "coroutine" in kind else plain, value=decode, **KINDS[kind])
    assert decoded == [b"a"]
    assert len(tries) == 3
    assert tries[0] == tries[2] == ([b"a"] if "batch" in kind else b"a")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [ConnectionResetError, RegistryUnavailable])
def test_what_says_nothing_of_the_record_is_tried_again(kind: str, error: type[Exception]) -> None:
    asked: list[bytes] = []

    class Registry:
        waits = True

        def deserialize(self, record: Record) -> Order:
            asked.append(record.value or b"")
            assert "coroutine" not in kind or threading.current_thread().name.startswith("asyncio")
            if len(asked) < 3:
                raise error
            return Order(record.json()["order_id"])

    seen = Seen()
    assert consumed([order(7)], getattr(seen, kind), value=Registry(), **KINDS[kind]).sent == []
    assert (seen.ids, len(asked)) == ([7], 3)


def test_a_batch_that_fails_some_of_its_records_means_those_that_it_was_given() -> None:
    calls: list[list[int]] = []

    def handle(orders: list[Order]) -> None:
        calls.append([each.order_id for each in orders])
        raise BatchFailed({1: Unretriable("the second")})

    values = [b"?", order(1), b"?", order(3), b"?"]
    letters = consumed(values, handle, value=Order, batch=BatchOf(records=5, wait_s=5))
    assert calls == [[1, 3]]
    assert sorted(letter.record.offset for letter in letters.sent) == [0, 2, 3, 4]


@pytest.mark.parametrize("failures", [{}, {2: Unretriable("there are two")}])
def test_a_batch_that_names_none_of_its_records_has_failed_as_a_whole(failures: dict[int, Exception]) -> None:
    def handle(orders: list[Order]) -> None:
        raise BatchFailed(failures)

    letters = consumed(
        [order(0), b"?", order(2)], handle, value=Order, batch=BatchOf(records=3), retry=Retry(attempts=1)
    )
    assert sorted(letter.record.offset for letter in letters.sent) == [0, 1, 2]


def test_a_batch_of_which_nothing_can_be_decoded_does_not_call_its_handler() -> None:
    called = threading.Event()
    letters = consumed([b"?", b"?"], lambda orders: called.set(), value=Order, batch=BatchOf(records=2))
    assert len(letters.sent) == 2
    assert not called.is_set()


def test_a_tombstone_is_none_for_a_handler_that_takes_none() -> None:
    found: list[object] = []

    def handle(order: Order | None) -> None:
        found.append(order)

    with Bench() as bench:
        produce(bench, order(1), None)
        bench.member(settings=QUICKLY, handler=handle, value=Order)
        bench.wait_committed(2)
    assert sorted(found, key=str) == [None, Order(1)]


def test_the_letter_names_the_schema_where_it_is_known_and_no_older_one() -> None:
    class Framed:
        def deserialize(self, record: Record) -> bytes:
            raise RecordUnreadable("no such schema", schema_id="17")

    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, b"\0\0\0\0\x11")
        bench.member(
            settings=QUICKLY, dead_letter="dlq", dead_letters=letters, handler=lambda value: None, value=Framed()
        )
        bench.wait_committed(1)
    [letter] = letters.sent
    assert dict(headers_of(letter))["holdfast-schema-id"] == b"17"


def test_the_key_is_a_field_of_the_json_all_the_same() -> None:
    seen = Seen()
    letters = consumed([order(1), order(2), order(1), b"?"], seen.plain, value=Order, key="order_id")
    assert sorted(seen.ids) == [1, 2]
    assert [dict(headers_of(each))["holdfast-error-type"] for each in letters.sent] == [b"holdfast.errors.KeyMissing"]


def test_a_coroutine_that_is_cancelled_while_its_value_is_decoded_is_given_up() -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow:
        waits = True

        def deserialize(self, record: Record) -> bytes:
            asked.set()
            go_on.wait(30)
            return b""

    async def handle(value: bytes) -> None:
        raise AssertionError

    with Bench() as bench:
        letters = Letters(bench.changed)
        produce(bench, b"a")
        bench.member(
            settings=QUICKLY, dead_letter="dlq", dead_letters=letters, handler=handle, value=Slow(), timeout_s=0.05
        )
        assert asked.wait(30)
        bench.wait_committed(1)
        go_on.set()
    assert len(letters.sent) == 1


ANY = st.binary(max_size=40) | st.sampled_from(
    [b'{"order_id": 1}', b"null", b"[]", b'"\\ud800"', b"1e999", b"NaN", b"{}", b"[" * 5000, b'{"order_id": 1}\0']
)


@given(raw=ANY, value=st.sampled_from([Order, Model, dict, list[Order], str, bytes.decode]))
def test_bytes_are_a_value_or_unreadable(raw: bytes, value: Any) -> None:
    with suppress(RecordUnreadable):
        Reading(value, tombstones=False).read(make_record(raw))


@given(values=st.lists(ANY, min_size=9, max_size=40), value=st.sampled_from([Order, Model, dict]))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kind", KINDS)
def test_no_bytes_stop_a_partition(kind: str, values: list[bytes], value: Any) -> None:
    handled: list[object] = []

    def plain(value: Any) -> None:
        handled.extend(value if "batch" in kind else [value])

    async def coroutine(value: Any) -> None:
        plain(value)

    handler = coroutine if "coroutine" in kind else plain
    letters = consumed(values, handler, value=value, dead_letter_limit=None, **KINDS[kind])
    assert len(handled) + len(letters.sent) == len(values)
    assert {letter.record.value for letter in letters.sent} <= set(values)
