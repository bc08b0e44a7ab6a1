"""Records: their JSON, and those that users make for their own tests."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast import Record, Unretriable, make_record
from holdfast.errors import NotJson, RecordUnreadable
from holdfast.records import Partition, size_of
from holdfast.testing.records import MadeFence


def test_the_json_is_decoded_at_the_first_call_and_then_the_same() -> None:
    made = make_record({"order_id": 17})
    assert not vars(made)
    assert made.json() == {"order_id": 17}
    assert made.json() is made.json()


@pytest.mark.parametrize(("value", "expected"), [(b"null", None), (b"0", 0), (b"[]", []), ('"\u00fc"', "\u00fc")])
def test_null_and_other_falsy_json_is_kept_too(value: bytes | str, expected: object) -> None:
    made = make_record(value)
    assert made.json() == expected
    assert "_decoded" in vars(made)


@pytest.mark.parametrize("value", [None, b"", b"secret", b"\xff\xfe\xfd", b"[" * 100_000])
def test_what_is_no_json_is_unretriable_and_told_with_its_place_alone(value: bytes | None) -> None:
    made = make_record(value, topic="orders", partition=3, offset=42)
    with pytest.raises(NotJson, match="orders, partition 3, offset 42") as caught:
        made.json()
    assert isinstance(caught.value, Unretriable)
    assert "secret" not in str(caught.value)


def test_text_is_utf8_or_what_is_asked_for() -> None:
    assert make_record("ü").text() == "ü"
    assert make_record(b"\xfc").text("latin-1") == "ü"


@pytest.mark.parametrize("value", [None, b"secret\xff"])
def test_what_is_no_text_is_unretriable_and_told_with_its_place_alone(value: bytes | None) -> None:
    made = make_record(value, topic="orders", partition=3, offset=42)
    with pytest.raises(RecordUnreadable, match="orders, partition 3, offset 42") as caught:
        made.text()
    assert "secret" not in str(caught.value)


def test_a_header_is_read_as_what_is_asked_for() -> None:
    headers: dict[str, str | bytes | None] = {"id": "ü", "n": "17", "rate": "0.5", "raw": b"\xff", "none": None}
    made = make_record("x", headers=headers)
    assert (made.header("id", str), made.header("n", int), made.header("rate", float)) == ("ü", 17, 0.5)
    assert (made.header("raw"), made.header("raw", bytes.hex)) == (b"\xff", "ff")
    assert (made.header("none", int), made.header("missing", int)) == (None, None)


@pytest.mark.parametrize(("name", "kind"), [("raw", str), ("raw", int), ("text", float)])
def test_a_header_that_is_something_else_is_unretriable_and_told_by_its_name(name: str, kind: Any) -> None:
    headers = [("raw", b"\xff"), ("text", b"secret")]
    made = make_record("x", topic="orders", offset=42, headers=headers)
    with pytest.raises(
        RecordUnreadable, match=f"header '{name}' .* orders, partition 0, offset 42 is no {kind.__name__}"
    ) as caught:
        made.header(name, kind)
    assert "secret" not in str(caught.value)


def test_a_copy_decodes_its_own_value() -> None:
    made = make_record({"a": 1})
    made.json()
    assert made._replace(value=b"2").json() == 2
    assert pickle.loads(pickle.dumps(made)).value == b'{"a": 1}'  # noqa: S301 - our own bytes


def test_a_record_is_made_as_a_handler_gets_it() -> None:
    fence = MadeFence()
    made = make_record(
        "text",
        topic="orders",
        key="k",
        headers={"a": "1", "b": None},
        partition=2,
        offset=7,
        timestamp_ms=5,
        fence=fence,
    )
    assert made == Record(Partition("orders", 2), 7, b"k", b"text", (("a", b"1"), ("b", None)), 5, fence)
    assert (made.topic, made.header("a"), made.size_bytes) == ("orders", b"1", 5 + 3 + 200)
    assert not made.cancelled
    fence.cancelled = True
    assert made.cancelled


def test_the_size_of_many_is_the_sum_of_their_sizes() -> None:
    records = [make_record(value, key=key) for value in (None, b"", b"abc") for key in (None, b"", b"de")]
    assert size_of(records) == sum(record.size_bytes for record in records) == 15
    records += [make_record(b"", headers=headers) for headers in ((("a", b"x" * 900_000),), (("b", None),) * 1_000)]
    assert size_of(records) == sum(record.size_bytes for record in records) == 15 + 900_101 + 101_000


def test_headers_may_come_more_than_once() -> None:
    assert make_record(headers=[("a", "1"), ("a", b"2")]).header("a") == b"2"
