"""A handler that asks for its own call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

import holdfast
from holdfast import BatchOf, HandlerCall, Retry, Settings
from holdfast.errors import SettingError
from tests.harness.engine import QUICK, Bench, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast import Record

COUNT = 12


def plain(seen: list[tuple[int, HandlerCall]]) -> Callable[..., Any]:
    def handle(record: Record, *, call: HandlerCall) -> None:
        seen.append((record.offset, call))
        if record.offset == 4 and call.attempt < 3:
            raise ValueError("not yet")

    return handle


def coroutine(seen: list[tuple[int, HandlerCall]]) -> Callable[..., Any]:
    async def handle(record: Record, *, call: HandlerCall) -> None:
        await asyncio.sleep(0)
        plain(seen)(record, call=call)

    return handle


@pytest.mark.parametrize("kind", [plain, coroutine])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("value", [None, bytes.decode])
def test_each_gets_its_own(kind: Callable[..., Any], workers: int, value: Any) -> None:
    seen = list[tuple[int, HandlerCall]]()
    handler = kind(seen)
    if value is not None:
        inner = handler

        async def in_loop(record: Record, value: str, *, call: HandlerCall) -> None:
            assert value == record.text()
            await inner(record, call=call)

        def in_thread(record: Record, value: str, *, call: HandlerCall) -> None:
            assert value == record.text()
            inner(record, call=call)

        handler = in_loop if kind is coroutine else in_thread
    with Bench() as bench:
        bench.broker.produce("orders", 0, *numbered("r", range(COUNT)))
        bench.member(
            settings=Settings(workers=workers, commit_interval_s=0.01),
            handler=handler,
            retry=QUICK,
            **({} if value is None else {"value": value}),
        )
        bench.wait_committed(COUNT)
    assert sorted((offset, call.attempt) for offset, call in seen) == sorted(
        [*((offset, 1) for offset in range(COUNT)), (4, 2), (4, 3)]
    )
    assert all(call.record.offset == offset for offset, call in seen)
    assert {(call.handler, call.group) for _, call in seen} == {("handle", "g")}


def either(record: Record, *, call: HandlerCall | None) -> None:
    assert call is not None
    assert call.record is record


def by_default(record: Record, *, call: Optional[HandlerCall] = None) -> None:  # noqa: UP045 - as it is written
    either(record, call=call)


def annotated(record: Record, *, call: Annotated[HandlerCall, "mine"]) -> None:
    either(record, call=call)


def of_a_module(record: Record, *, call: holdfast.HandlerCall | None = None) -> None:
    either(record, call=call)


def for_type_checkers(record: Record, *, call: Unknown.HandlerCall) -> None:  # type: ignore[name-defined]  # noqa: F821
    either(record, call=call)


async def in_loop(record: Record, *, call: Annotated[HandlerCall | None, "mine"] = None) -> None:
    either(record, call=call)


def not_as_text(record: Record, *, call) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    either(record, call=call)


not_as_text.__annotations__["call"] = HandlerCall | None


@pytest.mark.parametrize(
    "handler", [either, by_default, annotated, of_a_module, for_type_checkers, in_loop, not_as_text]
)
def test_however_it_is_annotated(handler: Callable[..., Any]) -> None:
    with Bench() as bench:
        bench.broker.produce("orders", 0, "r0")
        bench.member(handler=handler, retry=Retry(attempts=1))
        bench.wait_committed(1)


def test_a_batch_gets_one_and_middlewares_have_the_same() -> None:
    seen, around = list[HandlerCall](), list[HandlerCall]()

    def handle(records: list[Record], *, which: HandlerCall) -> None:
        assert which.records == records
        seen.append(which)

    def middleware(call: HandlerCall) -> Iterator[None]:
        around.append(call)
        yield

    with Bench() as bench:
        bench.broker.produce("orders", 0, *numbered("r", range(COUNT)))
        member = bench.member(handler=handle, batch=BatchOf(records=4, wait_s=0.001), start=False)
        member.app.use(middleware)
        member.start()
        bench.wait_committed(COUNT)
    assert seen == around
    assert all(one is other for one, other in zip(seen, around, strict=True))


def test_by_position_it_is_no_parameter_of_a_handler() -> None:
    with Bench() as bench, pytest.raises(SettingError, match="called with one argument"):
        bench.member(handler=lambda record, call: None, start=False)
