"""What is written on a command line is read as it is meant, or refused with a sentence."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.cli import arguments
from holdfast.adapters.cli.arguments import Target
from holdfast.adapters.cli.claims import candidates
from holdfast.errors import SettingError
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from pathlib import Path

TEN = 1_795_168_800_000  # 2026-11-20T10:00:00Z


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Target(kind="earliest")),
        ("latest", Target(kind="latest")),
        ("0", Target(kind="offset", value=0)),
        ("4711", Target(kind="offset", value=4711)),
        ("-1000", Target(kind="shift", value=-1000)),
        ("+5", Target(kind="shift", value=5)),
        ("2026-11-20T10:00:00Z", Target(kind="time", value=TEN)),
        ("2026-11-20T11:00:00+01:00", Target(kind="time", value=TEN)),
        ("2026-11-20T10:00:00.250Z", Target(kind="time", value=TEN + 250)),
    ],
)
def test_a_target_is_a_name_an_offset_a_shift_or_a_time(text: str, meant: Target) -> None:
    assert arguments.target(text) == meant


@pytest.mark.parametrize("text", ["", "begin", "1.5", "--5", "2026-11-20T10:00:00", "2026-13-01T00:00:00Z", "²"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"(no|nor a) point in time|no zone"):
        arguments.target(text)


@pytest.mark.parametrize(("text", "ago_s"), [("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)])
def test_since_may_be_a_span(text: str, ago_s: int) -> None:
    before = wall_ms()
    found = arguments.since_ms(text)
    assert before - ago_s * 1000 <= found <= wall_ms() - ago_s * 1000


@pytest.mark.parametrize("text", ["abc", "", "5", "2 h", "-2h"])
def test_since_names_what_it_takes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"90s, 15m, 2h or 7d, or as 2026-11-20T10|no point in"):
        arguments.since_ms(text)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_partitions_are_numbers_and_ranges(numbers: set[int]) -> None:
    ranges = ",".join(f"{number}-{number}" if number % 2 else f"{number}" for number in sorted(numbers))
    assert arguments.partitions(ranges) == numbers
    assert arguments.partitions("0,3-5") == {0, 3, 4, 5}


@pytest.mark.parametrize("text", ["", "a", "1,", "5-3", "-1", "1-", "0-100000", "1.5"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no partitions"):
        arguments.partitions(text)


def test_properties_are_taken_as_they_stand() -> None:
    text = "# a comment\n! another\n\nsasl.password = a=b:c\\d #!\n  client.id=x\nempty=\n"
    assert arguments.parse_properties(text, "f") == {"sasl.password": "a=b:c\\d #!", "client.id": "x", "empty": ""}


def test_a_line_that_is_no_property_is_named_by_its_number_alone() -> None:
    with pytest.raises(SettingError, match="line 2") as caught:
        arguments.parse_properties("a=b\nsecret-without-a-name\n", "f")
    assert "secret" not in str(caught.value)


def test_a_configuration_is_a_file_with_the_brokers_of_the_command_line(tmp_path: Path) -> None:
    lines, json = tmp_path / "client.properties", tmp_path / "client.json"
    lines.write_text("bootstrap.servers=a:1\nclient.id=x\n")
    json.write_text('{"bootstrap.servers": "a:1", "client.id": "x", "socket.timeout.ms": 5000}')
    assert arguments.kafka_conf("b:2", str(lines)) == {"bootstrap.servers": "b:2", "client.id": "x"}
    assert arguments.kafka_conf(None, str(json))["socket.timeout.ms"] == 5000
    json.write_text('{"sasl.password": "secret')
    for file in (json, tmp_path / "missing"):
        with pytest.raises(SettingError, match="--kafka-config") as caught:
            arguments.kafka_conf(None, str(file))
        assert "secret" not in str(caught.value)
    with pytest.raises(SettingError, match="--bootstrap"):
        arguments.kafka_conf(None, None)


def test_the_address_of_the_store_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "redis.url"
    file.write_text("# the store\nredis://:secret@somewhere/0\n")
    assert arguments.redis_url(f"@{file}") == "redis://:secret@somewhere/0"
    assert arguments.redis_url("redis://elsewhere/1") == "redis://elsewhere/1"
    file.write_text("redis://:secret@a\nredis://:secret@b\n")
    with pytest.raises(SettingError, match="2 lines") as caught:
        arguments.redis_url(f"@{file}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("4711", ["s:4711", "n:4711"]),
        ("-5", ["s:-5", "n:-5"]),
        ("0", ["s:0", "n:0"]),
        ("007", ["s:007"]),
        ("-0", ["s:-0"]),
        ("a-1", ["s:a-1"]),
        ("s:x", ["s:s:x"]),
        ("１", ["s:１"]),  # noqa: RUF001 - a digit that no JSON number has
    ],
)
def test_a_key_is_looked_for_as_text_and_as_the_number_that_it_may_be(key: str, found: list[str]) -> None:
    assert candidates(key, stored=False) == found


def test_a_key_as_stored_says_its_type() -> None:
    assert candidates("x:ff00", stored=True) == ["x:ff00"]
    with pytest.raises(SettingError, match="--stored"):
        candidates("4711", stored=True)
