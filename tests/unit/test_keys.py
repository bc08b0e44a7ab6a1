"""Business keys: which record has which, and which have none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.keys import KeySpec, header, record_key, resolve_key
from holdfast.errors import KeyMissing, SettingError
from holdfast.testing.records import make_record

if TYPE_CHECKING:
    from holdfast.records import Record


def record(
    value: bytes | None = b"{}", *, key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Record:
    return make_record(value, topic="orders", partition=3, offset=42, key=key, headers=headers)


def of_json(value: object, spec: KeySpec = "id") -> str:
    return resolve_key(spec)(record(json.dumps({"id": value}).encode()))


def test_a_field_a_nested_field_the_records_key_a_header_and_a_function_give_a_key() -> None:
    made = record(
        b'{"id": "a", "order": {"id": "b"}}', key=b"c", headers=(("id", b"old"), ("id", b"d"), ("other", b"x"))
    )
    specs: list[KeySpec] = ["id", "order.id", record_key(), header("id"), lambda each: f"{each.topic}-{each.offset}"]
    assert [resolve_key(spec)(made) for spec in specs] == ["s:a", "s:b", "s:c", "s:d", "s:orders-42"]


def test_the_number_1_and_the_text_1_are_two_keys() -> None:
    assert of_json(1) != of_json("1")


def test_equal_numbers_are_one_key_however_they_were_taken() -> None:
    assert of_json(4711) == resolve_key(lambda _: 4711)(record()) == "n:4711"
    assert of_json(-(10**30)) == f"n:-{10**30}"


@pytest.mark.parametrize("value", [None, True, False, 1.5, 1.0, "", [], ["a"], {}, {"a": 1}])
def test_what_is_no_key_is_refused(value: object) -> None:
    with pytest.raises(KeyMissing):
        of_json(value)


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("id", record(None)),
        ("id", record(b"")),
        ("id", record(b"not json")),
        ("id", record(b"\xff\xfe\xfd")),
        ("id", record(b"[" * 100_000)),
        ("id", record(b'{"id": ' + b"1" * 5000 + b"}")),
        ("id", record(b'{"other": 1}')),
        ("id", record(b"[1]")),
        ("id", record(b'"id"')),
        ("a.b", record(b'{"a": "b"}')),
        ("a.b", record(b'{"a.b": 1}')),
        (record_key(), record()),
        (record_key(), record(key=b"")),
        (header("h"), record()),
        (header("h"), record(headers=(("h", None),))),
        (lambda _: None, record()),
    ],
)
def test_a_record_without_a_key_is_named_with_its_place_and_without_its_content(spec: KeySpec, made: Record) -> None:
    with pytest.raises(KeyMissing, match="orders, partition 3, offset 42") as caught:
        resolve_key(spec)(made)
    assert "not json" not in str(caught.value)
    assert not caught.value.retriable


@pytest.mark.parametrize(
    ("spec", "value", "told"),
    [
        ("order_ids", b'{"order_id": 1, "amount": 2}', "no field 'order_ids': its value has order_id, amount;"),
        ("order.ids", b'{"order": {"id": 1}}', "no field 'order.ids': order has id;"),
        ("order.id", b'{"order": [1]}', "no field 'order.id': order is a list;"),
        ("id", b"17", "no field 'id': its value is a number;"),
        ("id", b"{}", "no field 'id': its value is an object without fields;"),
        ("id", b'{"bob@example.org": 1, "at": 2}', "no field 'id': its value has at and 1 more;"),
        ("id", b'{"bob@example.org": 1}', "no field 'id': its value has 1 others;"),
        ("id", json.dumps({f"f{n}": n for n in range(100)}).encode(), "f0, f1, f2, f3, f4, f5, f6, f7 and 92 more;"),
    ],
)
def test_a_mistyped_field_is_told_with_the_names_that_the_record_has(spec: str, value: bytes, told: str) -> None:
    with pytest.raises(KeyMissing) as caught:
        resolve_key(spec)(record(value))
    assert told in str(caught.value)


@dataclass
class Order:
    """What a deserialiser makes of a value, when it is no mapping."""

    id: int = 4711
    of: object = None


def deserialised(value: object) -> Record:
    """As a message of DeserializingKafkaConsumer is seen: its value is no bytes any more."""
    return record()._replace(value=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("id", {"id": 4711}),
        ("id", MappingProxyType({"id": 4711})),
        ("id", Order()),
        ("id", '{"id": 4711}'),
        ("of.id", {"of": Order()}),
        ("of.id", Order(of={"id": 4711})),
    ],
)
def test_of_a_deserialised_value_a_field_is_of_a_mapping_or_an_attribute(spec: str, value: object) -> None:
    assert resolve_key(spec)(deserialised(value)) == "n:4711"


@pytest.mark.parametrize(
    ("spec", "value", "told"),
    [
        ("ids", {"id": 1}, "no field 'ids': its value has id;"),
        ("ids", Order(), "no field 'ids': its value is of type Order, without that attribute;"),
        ("of.ids", Order(of=Order()), "no field 'of.ids': of is of type Order, without that attribute;"),
        ("real", 17, "no field 'real': its value is a number;"),
        ("id", [1], "no field 'id': its value is a list;"),
        ("id", (1,), "no field 'id': its value is of type tuple, without that attribute;"),
        ("id", "not json", "its value is not JSON;"),
        ("id", {1: 2}, "no field 'id': its value has 1 others;"),
        ("id", Order(id=None), "its key is of type NoneType;"),  # type: ignore[arg-type]
    ],
)
def test_of_a_deserialised_value_without_the_field_is_told_what_it_is(spec: str, value: object, told: str) -> None:
    with pytest.raises(KeyMissing, match="orders, partition 3, offset 42") as caught:
        resolve_key(spec)(deserialised(value))
    assert told in str(caught.value)


def test_a_small_value_is_decoded_once_for_the_key_and_the_handler() -> None:
    made = record(b'{"id": 4711}')
    assert resolve_key("id")(made) == "n:4711"
    assert made.json() is made.json() is vars(made)["_decoded"]


def test_of_a_large_value_nothing_is_kept_for_a_handler_that_may_not_ask() -> None:
    made = record(json.dumps({"id": 4711, "more": "x" * 5000}).encode())
    assert resolve_key("id")(made) == "n:4711"
    assert not vars(made)


def test_the_error_of_a_function_of_yours_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        resolve_key(lambda each: each.offset // 0)(record())


@pytest.mark.parametrize("spec", ["", ".", "a.", ".a", "a..b", None, 7])
def test_a_spec_that_cannot_work_is_refused_where_it_is_written(spec: KeySpec) -> None:
    with pytest.raises(SettingError, match="key="):
        resolve_key(spec)


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(SettingError):
        header("")


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_two_keys_of_bytes_are_equal_only_if_the_bytes_are(one: bytes, other: bytes) -> None:
    key_of = resolve_key(record_key())
    assert (key_of(record(key=one)) == key_of(record(key=other))) == (one == other)


@given(
    st.lists(st.one_of(st.text(min_size=1), st.integers(), st.binary(min_size=1)), min_size=2, max_size=2, unique=True)
)
def test_different_values_are_different_keys_but_for_text_and_its_utf_8(values: list[str | int | bytes]) -> None:
    texts = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in values]
    answers = iter(values)
    key_of = resolve_key(lambda _: next(answers))
    one, other = key_of(record()), key_of(record())
    if one == other:
        assert texts[0] == texts[1]


def test_bytes_that_are_not_utf_8_do_not_meet_their_own_hex_digits() -> None:
    keys = [resolve_key(record_key())(record(key=each)) for each in (b"\xff", b"ff", b"x:ff", b"s:ff")]
    assert len(set(keys)) == 4


def test_a_lone_surrogate_in_json_is_a_key() -> None:
    assert of_json("\ud800") != of_json("\ud801")
