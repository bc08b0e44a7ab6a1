"""Headers become properties and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.rocketmq.headers import BASE64, RESERVED, Headers, headers_of, properties_of, sent_on
from holdfast.adapters.rocketmq.remoting.messages import read_properties

_NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1).filter(
    lambda name: not name.startswith(BASE64) and name not in RESERVED  # what RocketMQ names so is text
)


def written(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


@given(st.dictionaries(_NAMES, st.binary()))
def test_any_value_comes_back_as_it_was(headers: dict[str, bytes]) -> None:
    assert dict(headers_of(written(properties_of(headers.items())))) == headers


@given(st.lists(st.tuples(st.sampled_from(["a", "xa", "b"]), st.text("ab=\x00", max_size=3))), st.booleans())
def test_headers_that_are_read_later_are_the_same(pairs: list[tuple[str, str]], closed: bool) -> None:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + ("\x02" if closed else "")
    later, now = Headers(raw.encode()), headers_of(raw.encode())
    for name in ("a", "xa", "b", "c"):
        assert later.last(name) == dict(now).get(name)
    assert later == Headers(raw.encode())
    assert (len(later), tuple(later), tuple(reversed(later))) == (len(now), now, now[::-1])


@given(st.text("ab\x01\x02\xe9", max_size=12), st.text("ab\x01\x02\xe9\ud800", max_size=2))
def test_one_that_is_asked_for_by_name_is_found_without_reading_all(raw: str, name: str) -> None:
    later, now = Headers(raw.encode()), headers_of(raw.encode())
    assert later.last(name) == dict(now).get(name)
    assert bool(Headers(raw.encode())) == bool(now)


def test_text_stays_text_and_what_is_none_is_marked() -> None:
    found = properties_of([("trace", b"7"), ("raw", b"\xff"), ("odd", b"a\x01b"), ("empty", b"")])
    assert found == {"trace": "7", f"{BASE64}raw": "/w==", f"{BASE64}odd": "YQFi", "empty": ""}


def test_the_last_header_of_a_name_counts_whatever_its_form() -> None:
    assert properties_of([("a", b"1"), ("a", b"\xff"), ("b", b"\xff"), ("b", b"2"), ("c", b"3"), ("c", None)]) == {
        f"{BASE64}a": "/w==",
        "b": "2",
    }


def test_of_a_batch_each_keeps_its_own_identity_though_the_batchs_own_follows() -> None:
    """As RocketMQ 4.9.7 stores it."""
    raw = b"u\x011\x02UNIQ_KEY\x01OWN\x02WAIT\x01true\x02UNIQ_KEY\x01BATCH\x02CLUSTER\x01c"
    for each in (raw, raw.removeprefix(b"u\x011\x02")):
        assert Headers(each).last("UNIQ_KEY") == dict(headers_of(each))["UNIQ_KEY"] == b"OWN"
        assert read_properties(each.decode())["UNIQ_KEY"] == "OWN"
    assert Headers(b"UNIQ_KEY\x02" + raw).last("UNIQ_KEY") == b"OWN"


@pytest.mark.parametrize("name", ["", "a\x01", "\x02"])
def test_a_name_that_no_property_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a property's name"):
        properties_of([(name, b"1")])


@given(st.binary())
def test_any_bytes_can_be_read(raw: bytes) -> None:
    headers_of(raw)


def test_a_mark_of_somebody_else_is_left_as_it_stands() -> None:
    assert headers_of(written({f"{BASE64}a": "no base64!"})) == ((f"{BASE64}a", b"no base64!"),)


def test_what_is_sent_on_keeps_its_identity_and_nothing_of_its_former_storing() -> None:
    headers = [("KEYS", b"k"), ("UNIQ_KEY", b"u"), ("DELAY", b"3"), ("RETRY_TOPIC", b"t"), ("mine", b"1")]
    assert sent_on(headers) == {"KEYS": "k", "UNIQ_KEY": "u", "mine": "1"}


def test_what_they_weigh_is_known_without_reading_them() -> None:
    raw = "".join(f"{name}\x01{'x' * 1_000}\x02" for name in "abc").encode()
    assert Headers(raw).size_bytes == len(raw) + 300
    assert Headers(b"").size_bytes == 0
