"""Results come back as the type that a function is annotated with, objects that differ share no key, and a call in its
own body does not wait for itself."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from holdfast import KeyBusy, MemoryClaims, idempotent
from holdfast.dedup.typed_json import installed as installed_package
from holdfast.errors import KeyMissing, ResultNotStored, SettingError


class Receipt(pydantic.BaseModel):
    id: int
    total: Decimal


class Other(Receipt):
    more: str = ""


@dataclass
class Line:
    item: str
    price: Decimal


class Shipped(msgspec.Struct):
    at: dt.datetime
    lines: list[Line]


class Colour(enum.StrEnum):
    RED = "red"


class Html(str):
    __slots__ = ()


class Foreign:
    """As a web framework's response."""


@dataclass
class Held:
    foreign: Foreign


NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 5, dt.UTC)
LINE = Line("book", Decimal("1.10"))
RESULTS: list[tuple[Any, Any]] = [
    *(
        (Receipt, Receipt(id=1, total=Decimal("1.10"))),
        (Receipt | None, None),
        (list[Receipt], [Receipt(id=1, total=Decimal(2))]),
    ),
    *((Line, LINE), (Shipped, Shipped(NOON, [LINE])), (dict[int, Line], {1: LINE}), (tuple[int, str], (1, "a"))),
    *(
        (Decimal, Decimal("1.10")),
        (dt.datetime, NOON),
        (dt.date, NOON.date()),
        (uuid.UUID, uuid.UUID(int=7)),
    ),
    *((Colour, Colour.RED), (set[int], {1, 2}), (str, "text"), (dict[str, Any], {"a": [1, None]}), (Any, {"a": 1.5})),
]


@pytest.fixture
def claims() -> MemoryClaims:
    return MemoryClaims()


@pytest.fixture(params=["msgspec", "pydantic"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pydantic":
        monkeypatch.setitem(sys.modules, "msgspec", None)


def returning(claims: MemoryClaims, kind: Any, value: object, **choices: Any) -> Any:
    def f(order_id: int) -> Any:
        return value

    f.__annotations__["return"] = kind
    return idempotent(claims, key="order_id", name="f", **choices)(f)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("kind", "value"), RESULTS)
def test_a_result_comes_back_as_its_annotation_says(claims: MemoryClaims, kind: Any, value: object) -> None:
    if isinstance(value, Shipped) and installed_package("msgspec") is None:
        with pytest.raises(SettingError, match="encode="):
            returning(claims, kind, value)
        return
    f = returning(claims, kind, value)
    first, second = f(1), f(1)
    assert str(first) == str(second) == str(value)
    assert type(second) is type(value)


def test_so_does_each_of_a_batch_and_of_a_coroutine(claims: MemoryClaims) -> None:
    @idempotent(claims, key="id", name="batch", batch=True)
    def load(orders: list[dict[str, int]]) -> list[Receipt] | None:
        return [Receipt(id=order["id"], total=Decimal(1)) for order in orders]

    @idempotent(claims, key="order_id", name="task")
    async def task(order_id: int) -> Decimal:
        return Decimal("1.10")

    for _ in range(2):
        assert [each.id for each in load([{"id": 1}, {"id": 2}, {"id": 1}])] == [1, 2, 1]
        assert str(asyncio.run(task(1))) == "1.10"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Receipt, Other(id=1, total=Decimal(1), more="lost")),
        (Line, Line(Html("<b>"), Decimal(1))),
        (Decimal, 1.5),
        (str, Colour.RED),
    ],
    ids=["a subclass", "a subclass inside", "another type", "no annotation would keep it"],
)
def test_what_would_come_back_as_another_type_is_told(claims: MemoryClaims, kind: Any, value: object) -> None:
    f = returning(claims, kind, value)
    for _ in range(2):
        with pytest.raises(ResultNotStored):
            f(1)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", [Foreign, list[Foreign], Foreign | None, Held])
def test_an_annotation_that_cannot_be_kept_is_refused_at_the_decoration(claims: MemoryClaims, kind: Any) -> None:
    with pytest.raises(SettingError, match="encode="):
        returning(claims, kind, Foreign())
    returning(claims, kind, Foreign(), on_done="marker")(1)


def test_with_neither_installed_only_json_is_kept(claims: MemoryClaims, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("msgspec", "pydantic"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SettingError, match="install msgspec or pydantic"):
        returning(claims, Decimal, Decimal(1))
    assert returning(claims, list[str], ["a"])(1) == ["a"]


def test_functions_of_ones_own_write_and_read(claims: MemoryClaims) -> None:
    f = returning(claims, Foreign, 7, encode=lambda value: f"<{value}>", decode=lambda text: int(text[1:-1]))
    assert [f(1), f(1)] == [7, 7]


def test_one_that_fails_costs_the_result_and_not_the_key(claims: MemoryClaims) -> None:
    f = returning(claims, Any, "x", encode=int, decode=str)
    for _ in range(2):
        with pytest.raises(ResultNotStored):
            f(1)


@pytest.mark.parametrize("choices", [{"encode": str}, {"decode": str}, {"encode": 1, "decode": 2}])
def test_both_or_neither(claims: MemoryClaims, choices: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="code="):
        returning(claims, Any, None, **choices)


class Tenant:
    def __init__(self, name: str) -> None:
        self.name = name
        self.connection = object()

    def charge(self, order: int) -> str:
        return self.name

    def load(self, orders: list[dict[str, int]]) -> list[str]:
        return [self.name] * len(orders)


class Special(Tenant): ...


def test_objects_that_differ_share_no_key(claims: MemoryClaims) -> None:
    charge = idempotent(claims, key="order", name="charge")(Tenant.charge)
    load = idempotent(claims, key="id", name="load", batch=True)(Tenant.load)
    assert charge(Tenant("a"), 1) == charge(Tenant("a"), 1) == "a"
    assert load(Tenant("a"), [{"id": 1}]) == ["a"]
    for other in (Tenant("b"), Special("a")):
        with pytest.raises(SettingError, match=r"self\.tenant"):
            charge(other, 1)
        with pytest.raises(SettingError, match=r"self\.tenant"):
            load(other, [{"id": 1}])


def test_an_object_that_changes_is_itself(claims: MemoryClaims) -> None:
    charge, tenant = idempotent(claims, key="order", name="charge")(Tenant.charge), Tenant("a")
    assert charge(tenant, 1) == "a"
    tenant.name = "b"
    assert [charge(tenant, 1), charge(tenant, 2)] == ["a", "b"]


def test_or_the_key_has_something_of_them_or_decides(claims: MemoryClaims) -> None:
    parts = idempotent(claims, key=("self.name", "order"), name="parts")(Tenant.charge)
    alike = idempotent(claims, key=lambda self, order: order, name="alike")(Tenant.charge)
    assert [parts(Tenant(name), 1) for name in "aba"] == ["a", "b", "a"]
    assert [alike(Tenant(name), 1) for name in "aba"] == ["a", "a", "a"]


def test_keys_of_several_parts_do_not_meet(claims: MemoryClaims) -> None:
    ran = []
    f = idempotent(claims, key=("a", "b"), name="f")(lambda a, b: ran.append((a, b)))
    calls: list[tuple[Any, Any]] = [("x", "y"), ('x","s:y', "z"), ("x", 1), ("x", "1"), ('x","n:1', "z")]
    for call in calls * 2:
        f(*call)
    assert ran == calls
    for key in ((), ("a", 5), ("a", "c")):
        with pytest.raises(SettingError, match="key"):
            idempotent(claims, key=key, name="g")(lambda a, b: None)  # type: ignore[arg-type]


def test_a_function_made_around_another_text_is_another_function(claims: MemoryClaims) -> None:
    def sender(queue: str, connection: object) -> Any:
        @idempotent(claims, key="order", name="send")
        def send(order: int) -> str:
            return f"{queue} {bool(connection)}"

        return send

    assert sender("a", object())(1) == sender("a", object())(1)
    with pytest.raises(SettingError, match="another name="):
        sender("b", object())


def test_a_call_in_its_own_body_for_its_own_key_does_not_wait(claims: MemoryClaims) -> None:
    ran = []

    @idempotent(claims, key="order", name="inner")
    def inner(order: int) -> None:
        outer(order)

    @idempotent(claims, key="order", name="outer")
    def outer(order: int) -> None:
        ran.append(order)
        if order > 0:
            outer(order - 1)
        inner(5)

    with pytest.raises(KeyBusy, match="wait for itself"):
        outer(5)
    assert ran == [5, 4, 3, 2, 1, 0]


def test_an_array_is_no_key(claims: MemoryClaims) -> None:
    f = idempotent(claims, key="order", name="f")(lambda order: None)
    with pytest.raises(KeyMissing, match="ndarray"):
        f(np.array([1, 2]))


def test_a_batch_may_have_a_default(claims: MemoryClaims) -> None:
    def f(orders: Any = ({"id": 1},)) -> list[int]:
        return [order["id"] for order in orders]

    assert idempotent(claims, key="id", name="f", batch=True)(f)() == [1]
