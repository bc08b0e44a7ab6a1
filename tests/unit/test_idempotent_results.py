"""What a later call is given is what the first call was given, types and all; or both are told that it cannot be."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, UserDict, defaultdict
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.calls.results import decode, encode


class Status(enum.StrEnum):
    PAID = "paid"


class Level(enum.IntEnum):
    HIGH = 3


class Flags(enum.IntFlag):
    ON = 1


class Text(str):
    __slots__ = ()


class Money(float):
    """As numpy's float64."""


class Number(int):
    """Of somebody's."""


class Items(list[Any]):
    """Of somebody's."""


class Pair(NamedTuple):
    a: int
    b: int


FOREIGN: list[Any] = [
    *(Status.PAID, Level.HIGH, Flags.ON, Text("hi"), Money(1.1), Number(1), Items([1]), Pair(1, 2), (1, 2)),
    *(Counter("aab"), OrderedDict(b=1, a=2), defaultdict(list, a=[1]), UserDict(a=1), Decimal("1.10"), b"x", {1}),
    *(float("nan"), float("inf"), {1: "a"}, {1: "a", "1": "b"}, {None: 1}, {True: 1}, {Text("a"): 1}, {Status.PAID: 1}),
]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(plain)
def test_what_json_has_is_given_back_with_its_types(value: object) -> None:
    text, lost = encode(value)
    assert lost is None
    assert repr(decode(text)) == repr(value)


@pytest.mark.parametrize("foreign", FOREIGN, ids=repr)
@given(data=st.data())
def test_what_would_come_back_as_another_type_is_told_at_the_first_call(foreign: object, data: st.DataObject) -> None:
    value: object = foreign
    for _ in range(data.draw(st.integers(0, 2))):  # wherever it is
        value = data.draw(st.sampled_from([[1, value], {"a": None, "b": value}, [[], value, "x"]]))
    _, lost = encode(value)
    assert lost is not None
