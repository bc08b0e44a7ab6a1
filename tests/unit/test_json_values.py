"""JSON of a type: by pydantic or msgspec, whichever is installed; what JSON has itself, also by neither."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired
from typing import TypedDict as StandardTypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from holdfast import make_record
from holdfast.errors import SettingError
from holdfast.plugin.handling.values import deserializer


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


class Struct(msgspec.Struct):
    order_id: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Foreign: ...


@dataclass
class Held:
    order_id: int
    foreign: Foreign


@dataclass
class Invoice:
    payment: Payment


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("the number has to be above 0")


class Book(StandardTypedDict):
    title: str


def without(patch: pytest.MonkeyPatch, *absent: str) -> None:
    for each in absent:
        patch.setitem(sys.modules, each, None)


@pytest.fixture(params=["msgspec", "pydantic"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which library decodes dataclasses."""
    if request.param == "pydantic":
        without(monkeypatch, "msgspec")
    return str(request.param)


def read(kind: Any, value: object) -> Any:
    record = make_record(value if isinstance(value, bytes) else json.dumps(value).encode())
    return deserializer(kind).deserialize(record)


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
            (dict[str, int], {"a": "1"}, ""),
        ],
    )
    def test_what_is_something_else_is_told_by_its_field(self, kind: Any, value: object, where: str) -> None:
        with pytest.raises((ValueError, RecursionError)) as caught:
            read(kind, value)
        assert where in str(caught.value)

    @pytest.mark.parametrize(
        ("kind", "value", "where"),
        [
            (Order, {"order_id": "secret"}, "order_id"),
            (Order, {"order_id": 1, "size": "secret"}, "size"),
            (Order, {"order_id": 1, "status": "secret - at `$.x`"}, "status"),
            (Size, "secret\nsecret", "nput|nvalid"),
            (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "secret"}, "tag"),
        ],
    )
    def test_nothing_of_the_records_content_is_in_the_error(self, kind: Any, value: object, where: str) -> None:
        with pytest.raises(ValueError, match=where) as caught:
            read(kind, value)
        assert "secret" not in "".join(traceback.format_exception_only(caught.value))
        assert caught.value.__suppress_context__

    def test_a_pydantic_model_is_read_by_pydantic(self) -> None:
        given = {"order_id": "17", "amountInCents": 5}
        assert read(Payment, given) == Payment(order_id=17, amountInCents=5)
        assert read(list[Payment], [given]) == [Payment(order_id=17, amountInCents=5)]

    def test_what_pydantic_says_holds_nothing_of_the_record(self) -> None:
        with pytest.raises(ValueError, match=r"order_id.*amountInCents") as caught:
            read(Payment, {"order_id": "secret", "amountInCents": "secret"})
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize("kind", [bytes, Foreign, Foreign | None, list[Foreign], Held])
    def test_a_type_that_json_has_not_is_told_at_once(self, kind: Any) -> None:
        with pytest.raises(SettingError, match=r"^value="):
            deserializer(kind)

    @pytest.mark.parametrize("kind", [Incomplete, IncompleteModel, list[IncompleteModel]])
    def test_a_type_whose_annotations_name_nothing_is_told_at_once(self, kind: Any) -> None:
        with pytest.raises(SettingError, match=r"^value=.*Nowhere.* has to be imported"):
            deserializer(kind)


@pytest.mark.usefixtures("installed")
def test_a_dataclass_checks_itself() -> None:
    assert read(Positive, {"number": 1}) == Positive(1)
    with pytest.raises(ValueError, match="has to be above 0"):
        read(Positive, {"number": 0})


def test_a_pydantic_model_in_a_dataclass_is_read_by_pydantic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="msgspec does not know the type Payment: give a pydantic model"):
        deserializer(Invoice)
    without(monkeypatch, "msgspec")
    found = read(Invoice, {"payment": {"order_id": 1, "amountInCents": 5}})
    assert found == Invoice(Payment(order_id=1, amountInCents=5))


def test_a_struct_is_read_by_msgspec() -> None:
    assert read(Struct, {"order_id": 17}) == Struct(17)


def test_a_typed_dict_that_pydantic_cannot_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(Book, {"title": "a", "pages": 3}) == {"title": "a"}
    without(monkeypatch, "msgspec")
    if sys.version_info >= (3, 12):
        assert read(Book, {"title": "a", "pages": 3}) == {"title": "a"}
    else:
        with pytest.raises(SettingError, match=r"pydantic cannot read it .*typing_extensions\.TypedDict"):
            deserializer(Book)


class TestWithNeither:
    @pytest.fixture(autouse=True)
    def _neither(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without(monkeypatch, "msgspec", "pydantic")

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (dict, {"a": 1}),
            (dict[str, Any], {"a": None}),
            (list, [1, "a"]),
            (list[Any], [None]),
            (str, "a"),
            (int, 3),
            (float, 3),
            (bool, True),
            (Any, None),
            (object, [1]),
        ],
    )
    def test_what_json_has_itself_is_read(self, kind: Any, value: object) -> None:
        assert read(kind, value) == value

    @pytest.mark.parametrize(
        ("kind", "value"), [(dict, []), (int, True), (int, 1.0), (str, 1), (float, "1"), (str, b"x")]
    )
    def test_and_another_value_is_refused(self, kind: Any, value: object) -> None:
        with pytest.raises(ValueError, match=r"^Expect"):
            read(kind, value)

    @pytest.mark.parametrize("kind", [Order, Line, list[int], int | None, Mapping[str, int]])
    def test_other_types_are_told_at_once_with_what_to_install(self, kind: Any) -> None:
        with pytest.raises(
            SettingError, match=r"^value=.* needs msgspec or pydantic: pip install 'holdfast-mq\[typed\]'$"
        ):
            deserializer(kind)

    def test_what_the_key_has_decoded_is_not_decoded_again(self) -> None:
        record = make_record({"order_id": 17})
        assert deserializer(dict).deserialize(record) is not record.json()
        assert deserializer(dict).deserialize(record) is record.json()


APP = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))
from dataclasses import dataclass
from holdfast import Holdfast, make_record
from holdfast.errors import SettingError
from holdfast.testing import ScriptedWorld

@dataclass
class Order:
    order_id: int

def consumed(kind):
    got = []
    def make_app(source, claims):
        app = Holdfast(source, claims=claims)
        app.handler("orders", name="bill", value=kind, dead_letter="letters")(got.append)
        return app
    with ScriptedWorld() as world:
        world.member(make_app)
        world.produce("orders", {"order_id": 17}, [17])
        world.settle()
        return got, len(world.dead_letters)

print(consumed(dict))
try:
    print(consumed(Order))
except SettingError as error:
    print(error)
"""


@pytest.mark.parametrize("absent", [["msgspec"], ["pydantic"], ["msgspec", "pydantic"]], ids="-".join)
def test_an_app_runs_with_either_and_with_neither(absent: list[str]) -> None:
    command = [sys.executable, "-c", APP, *absent]
    plain, typed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert plain == "([{'order_id': 17}], 1)"
    assert ("([Order(order_id=17)], 1)" if len(absent) == 1 else "pip install 'holdfast-mq[typed]'") in typed


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
def test_pydantic_takes_what_msgspec_takes_and_makes_the_same_of_it(value: object, kind: Any) -> None:
    found = []
    for absent in ((), ("msgspec",)):
        with pytest.MonkeyPatch.context() as patch:
            without(patch, *absent)
            try:
                found.append(repr(read(kind, value)))
            except ValueError:
                found.append("refused")
    assert found[0] == found[1]
