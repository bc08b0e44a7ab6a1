"""What a dead letter says about its record."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DeadLetterError, DeadLetterRefused, RecordUnreadable
from holdfast.plugin.retrying.dead_letter import MAX_ERROR_BYTES, Letter, forms_of, headers_of
from holdfast.records import Partition, Record
from holdfast.testing.records import make_record

ORDERS_3 = Partition("orders", 3)


def record(*headers: tuple[str, bytes | None], place: Partition = ORDERS_3, offset: int = 41) -> Record:
    made = make_record(b"v", offset=offset, key=b"k", headers=headers, timestamp_ms=1_700_000_000_000)
    return made._replace(partition=place)


def letter(of: Record, reason: Exception | None = None, attempts: int = 5) -> Letter:
    return Letter(
        record=of,
        topic="orders.dlq",
        handler="handle",
        reason=reason or ValueError("no such customer"),
        attempts=attempts,
        group="billing",
    )


def ours(of: Letter) -> dict[str, str]:
    return {
        name.removeprefix("holdfast-"): (value or b"").decode()
        for name, value in headers_of(of)
        if name.startswith("holdfast-")
    }


def test_a_letter_says_where_its_record_came_from_and_what_befell_it() -> None:
    said = ours(letter(record()))
    assert int(said.pop("failed-at-ms")) > 1_700_000_000_000
    assert said == {
        "origin-topic": "orders",
        "origin-partition": "3",
        "origin-offset": "41",
        "origin-timestamp": "1700000000000",
        "handler": "handle",
        "group": "billing",
        "attempts": "5",
        "error-type": "ValueError",
        "error-message": "no such customer",
        "traceback": "ValueError: no such customer\n",
    }


def test_the_schema_of_what_could_not_be_decoded_is_named_where_it_is_known() -> None:
    once = letter(record(), RecordUnreadable("no such schema", schema_id="17"))
    assert ours(once)["schema-id"] == "17"
    again = letter(record(*headers_of(once)), RecordUnreadable("no schema at all"))
    assert "schema-id" not in ours(again)


def test_the_records_own_headers_stay_in_their_order_with_their_repetitions() -> None:
    own = (("a", b"1"), ("b", None), ("a", b"2"), ("holdfast-something-else", b"x"))
    assert tuple(headers_of(letter(record(*own)))[: len(own)]) == own


def test_a_replayed_record_that_fails_again_keeps_its_first_origin() -> None:
    first = headers_of(letter(record(("trace", b"7")), ValueError("once"), attempts=5))
    replayed = record(*first, place=Partition("orders", 1), offset=902)
    second = letter(replayed, KeyError("twice"), attempts=1)
    said = ours(second)
    assert (said["origin-topic"], said["origin-partition"], said["origin-offset"]) == ("orders", "3", "41")
    assert (said["error-type"], said["error-message"], said["attempts"]) == ("KeyError", "'twice'", "1")


def test_headers_do_not_grow_with_every_round() -> None:
    headers = headers_of(letter(record(("trace", b"7"))))
    for offset in range(5):
        again = headers_of(letter(record(*headers, offset=900 + offset)))
        assert [name for name, _ in again] == [name for name, _ in headers]
        headers = again


def test_half_an_origin_is_not_believed() -> None:
    said = ours(letter(record(("holdfast-origin-topic", b"orders"), ("holdfast-origin-partition", b"9"))))
    assert (said["origin-topic"], said["origin-partition"], said["origin-offset"]) == ("orders", "3", "41")


@pytest.mark.parametrize("forged", ["retry-of", "origin-topic"])
def test_the_topic_of_a_letter_is_where_its_record_was_found_whatever_its_headers_say(forged: str) -> None:
    """A replay sends letters there."""
    origin = {"origin-partition": b"0", "origin-offset": b"0", "origin-timestamp": b"0", forged: b"payments"}
    headers = headers_of(letter(record(*((f"holdfast-{name}", value) for name, value in origin.items()))))
    assert [value for name, value in headers if name == "holdfast-origin-topic"] == [b"orders"]
    assert dict(headers)["holdfast-origin-offset"] == b"41"
    assert b"payments" not in dict(headers).values()


def test_brokers_that_number_their_queues_alike_are_told_apart() -> None:
    assert ours(letter(record(place=Partition("orders", 3, "broker-a"))))["origin-partition"] == "broker-a-3"


def test_the_type_of_an_error_tells_its_module() -> None:
    assert ours(letter(record(), DeadLetterError("x")))["error-type"] == "holdfast.errors.DeadLetterError"


@given(st.text(max_size=3 * MAX_ERROR_BYTES))
def test_any_error_text_is_bounded_and_valid_utf_8(text: str) -> None:
    [value] = [v for name, v in headers_of(letter(record(), ValueError(text))) if name == "holdfast-error-message"]
    assert value is not None
    assert len(value) <= MAX_ERROR_BYTES
    value.decode()


@pytest.mark.parametrize("length", [MAX_ERROR_BYTES - 1, MAX_ERROR_BYTES, MAX_ERROR_BYTES + 1])
def test_a_text_is_cut_only_where_it_is_too_long(length: int) -> None:
    said = ours(letter(record(), ValueError("x" * length)))["error-message"]
    assert said.endswith("…") is (length > MAX_ERROR_BYTES)


def test_a_character_is_never_cut_in_two() -> None:
    said = ours(letter(record(), ValueError("€" * MAX_ERROR_BYTES)))["error-message"]
    assert set(said) == {"€", "…"}


def test_lone_surrogates_of_names_that_were_no_utf_8_do_no_harm() -> None:
    assert ours(letter(record(), ValueError("\udcff.txt")))["error-message"] == "?.txt"


def test_an_error_that_cannot_be_printed_does_not_keep_its_letter_back() -> None:
    class Silent(Exception):
        def __str__(self) -> NoReturn:
            raise RuntimeError("not today")

    assert "RuntimeError" in ours(letter(record(), Silent()))["error-message"]


def test_a_refused_letter_is_not_sent_again() -> None:
    assert DeadLetterError.retriable
    assert issubclass(DeadLetterRefused, DeadLetterError)
    assert not DeadLetterRefused.retriable


class TestForms:
    """The ways to write a letter that is too large for its topic."""

    def test_the_record_and_its_origin_stay_whole_to_the_last(self) -> None:
        record = make_record(b"v" * 10, topic="orders", partition=3, offset=7, key=b"k", headers=(("trace", b"7"),))
        made = Letter(record=record, topic="dlq", handler="h", reason=ValueError("no"), attempts=1, group="g")
        forms = forms_of(made)
        assert [name for name, _ in forms[0].headers] == [name for name, _ in headers_of(made)]
        assert [(form.value, form.key) for form in forms] == [(b"v" * 10, b"k")] * 3
        assert [len(form.headers) for form in forms] == [12, 11, 5]
        assert dict(forms[-1].headers) == {
            "trace": b"7",
            "holdfast-origin-topic": b"orders",
            "holdfast-origin-partition": b"3",
            "holdfast-origin-offset": b"7",
            "holdfast-origin-timestamp": str(record.timestamp_ms).encode(),
        }

    def test_without_the_value_it_says_so_and_in_the_end_names_the_place_alone(self) -> None:
        forged = (
            ("trace", b"x" * 5_000),
            ("holdfast-left-out", b"nothing"),
            ("holdfast-origin-topic", b"orders"),
            *((f"holdfast-origin-{name}", b"9" * 5_000) for name in ("partition", "offset", "timestamp")),
        )
        record = make_record(b"v" * 10, topic="orders", partition=3, offset=7, key=b"k" * 5_000, headers=forged)
        made = Letter(
            record=record, topic="dlq", handler="h", reason=ValueError("no"), attempts=1, group="g", without_value=True
        )
        forms = forms_of(made)
        assert made.value is None
        assert all(form.value is None for form in forms)
        assert [dict(form.headers)["holdfast-value-bytes"] for form in forms] == [b"10"] * 3
        assert [dict(form.headers)["holdfast-left-out"] for form in forms] == [
            b"value",
            b"value",
            b"value, key, headers",
        ]
        least = dict(forms[-1].headers)
        assert forms[-1].key is None
        assert least["holdfast-origin-offset"] == b"7"
        assert sum(len(value or b"") for value in least.values()) < 200
