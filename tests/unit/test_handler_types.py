"""What type checkers make of handlers: mypy and pyright judge this file, running it only keeps it true."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - looked up at the registration
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, assert_type

from pydantic import BaseModel

from holdfast import BatchOf, HandlerCall, Holdfast, Letter, LogPlace, Record, make_record
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)


@dataclass
class Order:
    order_id: int


class Payment(BaseModel):
    amount: float


class Click(TypedDict):
    url: str


class Clicks:
    def deserialize(self, record: Record) -> Click:
        return {"url": record.text()}


@app.use
def around(call: HandlerCall) -> Iterator[None]:
    assert_type(call.record, Record)
    yield


async def around_coroutines(call: HandlerCall) -> AsyncIterator[None]:
    yield


def takes_no_call(call: str) -> Iterator[None]:
    yield


if TYPE_CHECKING:
    app.use(around_coroutines)
    app.use(LogPlace())
    app.use(takes_no_call)  # type: ignore[type-var]


@app.on_dead_letter
def tell(letter: Letter) -> None:
    assert_type(letter.reason, Exception)


@app.handler("records")
def plain(record: Record, *, copies: int = 1) -> int:
    return copies


@app.handler("values", value=Order, key="order_id")
def one(order: Order) -> int:
    return order.order_id


@app.handler("both", value=Order)
async def both(order: Order, record: Record) -> str:
    return record.topic


@app.handler("the other way", value=Payment, retry=None)
def reversed_(record: Record, payment: Payment | None) -> None: ...


@app.handler("batches", value=Order, batch=BatchOf(records=3))
def many(orders: list[Order]) -> int:
    return len(orders)


@app.handler("batches with records", value=Click, batch=BatchOf())
async def many_clicks(clicks: Sequence[Click | None], records: Sequence[Record]) -> None: ...


@app.handler("functions", value=int)
def counted(value: int) -> int:
    return value


@app.handler("lists", value=list[Order])
def lists(value: list[Order]) -> None: ...


@app.handler("deserializers", value=Clicks())
def click(value: Click) -> str:
    return value["url"]


def length(raw: bytes) -> int:
    return len(raw)


@app.handler("bytes", value=length)
def sized(value: int) -> None: ...


def test_handlers_keep_their_types() -> None:
    assert_type(plain(make_record(), copies=2), int)
    assert_type(one(Order(3)), int)
    assert_type(many([Order(3)]), int)
    assert_type(click({"url": "/"}), str)
    if TYPE_CHECKING:

        async def awaits() -> None:
            assert_type(await both(Order(3), make_record()), str)

        del awaits
        one(3)  # type: ignore[arg-type]
        kept: Callable[[Order, Record], Coroutine[Any, Any, str]] = both
        del kept


def test_a_handler_of_another_type_is_told() -> None:
    if TYPE_CHECKING:

        @app.handler("wrong", value=Order)  # type: ignore[arg-type]
        def wrong(value: Payment) -> None: ...

        @app.handler("no list", value=Order, batch=BatchOf())  # type: ignore[arg-type]
        def no_list(value: Order) -> None: ...

        @app.handler("a list", value=Order)  # type: ignore[arg-type]
        def a_list(value: list[Order]) -> None: ...

        @app.handler("wrong", value=3)  # type: ignore[call-overload,untyped-decorator]
        def nothing(value: int) -> None: ...


def test_headers_have_the_type_that_is_asked_for() -> None:
    record = make_record("x", headers={"n": "3"})
    assert_type(record.header("n"), bytes | None)
    assert_type(record.header("n", int), int | None)
    assert_type(record.header("n", str), str | None)
    assert_type(record.text(), str)
