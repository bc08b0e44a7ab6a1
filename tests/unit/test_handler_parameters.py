"""What a handler with `value=` is given, by its parameters; and what is told at the registration."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from holdfast import BatchOf, Holdfast, Record, header, make_record
from holdfast.errors import RecordUnreadable, SettingError
from holdfast.plugin.handling.values import Reading
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.handlers import Handler


@dataclass
class Order:
    order_id: int


@dataclass
class Payment:
    cents: int


RECORD = make_record({"order_id": 17})


def registered(call: Callable[..., Any], value: Any = Order, **others: Any) -> Handler:
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)
    assert app.handler("orders", name="bill", value=value, **others)(call) is call
    [one] = app._routes.handlers
    return one


def called(call: Callable[..., Any], value: Any = Order, **others: Any) -> Any:
    handler = registered(call, value, **others)
    assert handler.reading is not None
    record = make_record({"order_id": 17})
    handler.reading.read(record)
    return handler.call([record] if handler.batch else record)


def by_name(value: Any, record: Any) -> Any:
    return value, record


def by_annotation(message: Record, order: Order) -> Any:
    return order, message


def not_to_be_looked_up(order: OnlyForTypeCheckers, message: Record) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return order, message


def by_position(order: Order, message: Record, /) -> Any:
    return order, message


def by_keyword(*, record: Record, order: Order) -> Any:
    return order, record


def a_base(record: Any, order: object) -> Any:
    return order, record


def with_a_default(record: Record, order: Order, copies: int = 1, then: Order | None = None) -> Any:
    assert (copies, then) == (1, None)
    return order, record


def bound(shop: str, value: Order, record: Record) -> Any:
    assert shop == "shop"
    return value, record


class Shop:
    def method(self, order: Order, record: Record) -> Any:
        return order, record

    def __call__(self, record: Record, order: Order) -> Any:
        return order, record


@pytest.mark.parametrize(
    "call",
    [
        by_name,
        by_annotation,
        not_to_be_looked_up,
        by_position,
        by_keyword,
        a_base,
        with_a_default,
        functools.partial(bound, "shop"),
        Shop().method,
        Shop(),
    ],
)
def test_a_handler_gets_what_its_parameters_ask_for(call: Callable[..., Any]) -> None:
    value, record = called(call)
    assert value == Order(17)
    assert isinstance(record, Record)


def test_a_single_parameter_is_the_value_whatever_its_name() -> None:
    assert called(lambda order: order) == Order(17)
    assert called(lambda *orders: orders) == (Order(17),)
    found: list[object] = []
    called(found.append)
    assert found == [Order(17)]


def test_batches_are_lists() -> None:
    def both(orders: Sequence[Order], records: list[Record]) -> Any:
        return orders, records

    def unsaid(orders: list, records) -> Any:  # type: ignore[no-untyped-def,type-arg]  # noqa: ANN001
        return orders, records

    for call in (both, unsaid):
        orders, records = called(call, batch=BatchOf())
        assert orders == [Order(17)]
        assert [each.offset for each in records] == [0]


def test_coroutines_get_the_same() -> None:
    async def one(record: Record, order: Order) -> Any:
        return order, record.offset

    async def many(values: list[Order]) -> Any:
        return values

    assert registered(one).is_async
    assert asyncio.run(called(one)) == (Order(17), 0)
    assert asyncio.run(called(many, batch=BatchOf())) == [Order(17)]


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Order, "Order | None"),
        (dict, Mapping[str, Any]),
        (dict[str, Any], "dict"),
        (bytes.hex, "Anything"),
        (int, float | int),
        (Order, Annotated[Order, "of the shop"]),
        (Annotated[Order, "of the shop"], Order),
        (Annotated[Order, "of the shop"], "Annotated[Order, 'of the shop'] | None"),
    ],
)
def test_an_annotation_may_be_wider(value: Any, annotation: Any) -> None:
    def call(order):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return order

    call.__annotations__["order"] = annotation
    registered(call, value)


def wrong(order: Payment) -> None: ...


def wrong_by_name(value: Payment) -> None: ...


def two_values(order: Order, value: Order) -> None: ...


def unsaid(order: Order, amount) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def no_value(record: Record) -> None: ...


def nothing() -> None: ...


def a_list(orders: list[Order]) -> None: ...


def a_list_of_records(value: Order, records: list[Record]) -> None: ...


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            wrong,
            (
                "handler='bill(order)': its parameter 'order' is annotated Payment, and value= makes Order: annotate "
                "it `value: Order`, or say value=Payment"
            ),
        ),
        (wrong_by_name, "its parameter 'value' is annotated Payment"),
        (two_values, "its parameter 'value' is a second one for the value: leave one of them out"),
        (unsaid, "its parameter 'amount' is neither the record nor the value: name it record or value"),
        (no_value, "no parameter takes the value: add `value: Order`, or leave value= out"),
        (nothing, "no parameter takes the value"),
        (
            a_list,
            "its parameter 'orders' is annotated list[Order], which batches are",
        ),
        (a_list_of_records, "its parameter 'records' is annotated list[Record], which batches are"),
    ],
)
def test_a_parameter_that_is_neither_is_told_with_its_remedy(call: Any, told: str) -> None:
    with pytest.raises(SettingError) as caught:
        registered(call)
    assert str(caught.value).startswith("handler='bill(")
    assert told in str(caught.value)


@pytest.mark.parametrize("call", [wrong, by_annotation])
def test_of_a_batch_it_is_a_list(call: Any) -> None:
    with pytest.raises(SettingError, match=r"gets a list, .* annotate it `values: list\[Order\]`"):
        registered(call, batch=BatchOf())


def test_nothing_of_what_a_function_holds_is_in_an_error() -> None:
    def decrypt(data: bytes, key: str) -> bytes:
        raise ValueError

    class Cipher:
        """With the repr of a dataclass."""

        def __call__(self, data: bytes) -> bytes:
            raise ValueError

        def __repr__(self) -> str:
            return "Cipher(key='hunter2')"

    for spec, name in ((functools.partial(decrypt, key="hunter2"), "decrypt"), (Cipher(), "Cipher")):
        reading = Reading(spec, tombstones=False)
        with pytest.raises(RecordUnreadable, match=f"cannot be decoded by .*{name}: ValueError") as told:
            reading.read(make_record(b"x"))
        assert "hunter2" not in str(told.value)


def test_what_decodes_nothing_is_told() -> None:
    with pytest.raises(SettingError, match=r"^value=3: give a type"):
        registered(by_name, 3)
    with pytest.raises(SettingError, match="it has a yield"):
        registered(lambda value: (yield value))


def test_a_field_of_json_is_no_key_where_the_value_is_none() -> None:
    class Binary:
        reads_json = False

        def deserialize(self, record: Record) -> bytes:
            return record.value or b""

    with pytest.raises(SettingError, match=r"^key='order_id': it names a field of JSON"):
        registered(by_name, Binary(), key="order_id")
    registered(by_name, Binary(), key=header("id"))
