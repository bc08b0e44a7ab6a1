"""JSON of a type: pydantic's, msgspec's, and ours where there is no msgspec, which is to do as msgspec does."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from holdfast import make_record
from holdfast.errors import SettingError
from holdfast.plugin.handling.json_values import Json


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Line(TypedDict):
    sku: str
    gift: NotRequired[bool]


@dataclass
class Order:
    order_id: int
    amount: float = 1.0
    note: str | None = None
    size: Size = Size.SMALL
    status: Literal["new", "paid"] = "new"
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    before: Order | None = None


class Payment(BaseModel):
    order_id: int
    cents: int = Field(alias="amountInCents", gt=0)


@dataclass
class Incomplete:
    line: Nowhere  # type: ignore[name-defined]  # noqa: F821


class IncompleteModel(BaseModel):
    line: Nowhere  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture(params=["msgspec", "orjson", "json"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is there: msgspec, or else orjson, or neither."""
    library: str = request.param
    if library != "json":
        pytest.importorskip(library)
    for each in ("msgspec", "orjson")[: ("msgspec", "orjson", "json").index(library)]:
        monkeypatch.setitem(sys.modules, each, None)
    return library


def read(kind: Any, value: object) -> Any:
    return Json(kind).deserialize(make_record(value if isinstance(value, bytes) else json.dumps(value).encode()))


@pytest.mark.usefixtures("installed")
class TestKinds:
    def test_a_dataclass_and_all_that_is_in_it(self) -> None:
        before = {"order_id": 16}
        lines = [{"sku": "a"}, {"sku": "b", "gift": True}]
        given = {"order_id": 17, "amount": 5, "size": "l", "lines": lines, "tags": {"x": 1}, "before": before, "new": 1}
        assert read(Order, given) == Order(17, 5.0, None, Size.LARGE, "new", lines, {"x": 1}, Order(16))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (dict, {"a": 1}),
            (list, [1, "a"]),
            (dict[str, Any], {"a": None}),
            (Mapping[str, int], {"a": 1}),
            (Sequence[str], ["a"]),
            (list[int | str], [1, "a"]),
            (str, "a"),
            (int, 3),
            (float, 3),
            (bool, True),
            (Any, {"a": [1]}),
            (Line, {"sku": "a"}),
            (Annotated[int, "cents"], 3),
        ],
    )
    def test_what_json_has(self, kind: Any, value: object) -> None:
        assert read(kind, value) == value

    @pytest.mark.parametrize(
        ("kind", "value", "where"),
        [
            (Order, {"order_id": "17"}, "order_id"),
            (Order, {"amount": 1.0}, "order_id"),
            (Order, {"order_id": True}, "order_id"),
            (Order, {"order_id": 1, "before": {"order_id": None}}, "before"),
            (Order, {"order_id": 1, "size": "xl"}, "size"),
            (Order, {"order_id": 1, "status": "lost"}, "status"),
            (Order, {"order_id": 1, "lines": [{"sku": "a"}, {"gift": True}]}, "sku"),
            (Order, [], ""),
            (Order, b"\xff\x00", ""),
            (Order, b"", ""),
            (list[int], b"[" * 100_000, ""),
            (dict, [], ""),
            (Payment, {"order_id": 1, "amountInCents": 0}, "amountInCents"),
        ],
    )
    def test_what_is_something_else_is_told_by_its_field(self, kind: Any, value: object, where: str) -> None:
        with pytest.raises((ValueError, RecursionError, _msgspec_error())) as caught:
            read(kind, value)
        assert where in str(caught.value)

    def test_a_pydantic_model_is_read_by_pydantic(self) -> None:
        given = {"order_id": "17", "amountInCents": 5}
        assert read(Payment, given) == Payment(order_id=17, amountInCents=5)
        assert read(list[Payment], [given]) == [Payment(order_id=17, amountInCents=5)]

    def test_what_pydantic_says_holds_nothing_of_the_record(self) -> None:
        with pytest.raises(ValueError, match=r"order_id.*amountInCents") as caught:
            read(Payment, {"order_id": "secret", "amountInCents": "secret"})
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize("kind", [bytes, Json])
    def test_a_type_that_json_has_not_is_told_at_once(self, kind: Any) -> None:
        with pytest.raises(SettingError, match=r"^value="):
            Json(kind)

    @pytest.mark.parametrize("kind", [Incomplete, IncompleteModel, list[IncompleteModel]])
    def test_a_type_whose_annotations_name_nothing_is_told_at_once(self, kind: Any) -> None:
        with pytest.raises(SettingError, match=r"^value=.*Nowhere.* has to be imported"):
            Json(kind)


def test_without_msgspec_a_type_that_only_msgspec_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(SettingError, match="pip install msgspec"):
        Json(dict[str, complex])


def test_a_struct_is_read_by_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")
    struct = msgspec.defstruct("Struct", [("order_id", int)])
    assert read(struct, {"order_id": 17}) == struct(17)


def test_what_the_key_has_decoded_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    record = make_record({"order_id": 17})
    assert Json(dict).deserialize(record) is not record.json()
    assert Json(dict).deserialize(record) is record.json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["s", "new", "lost", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["order_id", "sku", "gift", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
ORDERS = st.fixed_dictionaries(
    {"order_id": st.integers(-3, 3) | JSON},
    optional=dict.fromkeys(("amount", "note", "size", "status", "tags", "before"), JSON)
    | {"lines": st.lists(st.fixed_dictionaries({"sku": st.just("a")}, optional={"gift": st.booleans() | JSON}))},
)


@given(value=JSON | ORDERS, kind=st.sampled_from([Order, Line, list[Order], dict[str, int | str], int | None, float]))
def test_ours_takes_what_msgspec_takes_and_makes_the_same_of_it(value: object, kind: Any) -> None:
    pytest.importorskip("msgspec")
    found = []
    for library in ("msgspec", "ours"):
        with pytest.MonkeyPatch.context() as patch:
            if library == "ours":
                patch.setitem(sys.modules, "msgspec", None)
            try:
                found.append(repr(read(kind, value)))
            except (ValueError, _msgspec_error()):
                found.append("refused")
    assert found[0] == found[1]


def _msgspec_error() -> type[Exception]:
    try:
        import msgspec  # noqa: PLC0415 - it may not be there
    except ImportError:
        return ValueError
    found: type[Exception] = msgspec.MsgspecError
    return found
