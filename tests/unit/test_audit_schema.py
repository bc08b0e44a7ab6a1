"""The audit's events: what is written is what is read, and the page names every field."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import EventUnreadable
from holdfast.plugin.audit.schema import (
    KINDS,
    Assigned,
    AuditPartition,
    Body,
    Event,
    Keyed,
    Outcome,
    Progress,
    Rebalanced,
    Revoked,
    Span,
    Spans,
    Stamp,
    Started,
    Stopped,
    decode,
    encode,
    label,
)
from holdfast.records import Partition

_TEXT = st.text(max_size=8)
_COUNT = st.integers(0, 2**62)
_MAYBE = st.none() | _COUNT
_SECONDS = st.none() | st.floats(0, 1e6)
_PLACE = st.builds(
    AuditPartition, topic=_TEXT, partition=_TEXT, epoch=_MAYBE, position=_MAYBE, end=_MAYBE, in_flight=_MAYBE
)
_PLACES = st.lists(_PLACE, max_size=3).map(tuple)
_OUTCOME = st.sampled_from(Outcome)
_SPAN = st.builds(Span, first=_MAYBE, next=_MAYBE, outcome=_OUTCOME, records=_COUNT, began_ms=_COUNT, ended_ms=_COUNT)
_KEYED = st.builds(Keyed, offset=_MAYBE, key=_TEXT, outcome=_OUTCOME)
_BODIES: st.SearchStrategy[Body] = st.one_of(
    st.builds(
        Started,
        protocol=st.none() | _TEXT,
        source=_TEXT,
        settings=st.dictionaries(_TEXT, st.floats(0, 9) | _TEXT, max_size=3),
    ),
    st.builds(
        Stopped,
        clean=st.booleans(),
        records=st.dictionaries(_TEXT, _COUNT, max_size=3),
        in_hand=_COUNT,
        error=st.none() | _TEXT,
    ),
    st.builds(
        Spans,
        topic=_TEXT,
        partition=_TEXT,
        epoch=_MAYBE,
        spans=st.lists(_SPAN, max_size=3).map(tuple),
        keys=st.none() | st.lists(_KEYED, max_size=3).map(tuple),
        ordered=st.booleans(),
    ),
    st.builds(Assigned, partitions=_PLACES, trigger=_TEXT),
    st.builds(Revoked, partitions=_PLACES, trigger=_TEXT),
    st.builds(
        Rebalanced,
        trigger=_TEXT,
        gained=_COUNT,
        given=_COUNT,
        drained=_COUNT,
        abandoned=_COUNT,
        handed_back=_COUNT,
        duplicates_suppressed=_COUNT,
        phases_s=st.dictionaries(_TEXT, st.floats(0, 9), max_size=2),
        pause_s=_SECONDS,
        recovered_s=_SECONDS,
        steady_intake_per_s=_SECONDS,
        peak_intake_per_s=_SECONDS,
        ramp_s=_SECONDS,
    ),
    st.builds(Progress, partitions=_PLACES),
)
_STAMP = st.builds(Stamp, group=_TEXT, member=_TEXT, run=_TEXT, seq=_COUNT, at_ms=_COUNT, dropped=_COUNT)


@given(st.builds(Event, stamp=_STAMP, body=_BODIES))
def test_an_event_is_one_line_and_is_read_as_it_was_written(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line
    assert decode(line) == event
    assert decode(line.encode()) == event


@given(st.builds(Event, stamp=_STAMP, body=_BODIES), st.data())
def test_a_line_that_was_cut_is_no_event(event: Event, data: st.DataObject) -> None:
    line = encode(event)
    with pytest.raises(EventUnreadable):
        decode(line[: data.draw(st.integers(0, len(line) - 1))])


def test_fields_of_a_later_holdfast_are_passed_over_and_later_versions_and_kinds_are_refused() -> None:
    stamp = Stamp(group="g", member="m", run="aa", seq=0, at_ms=1, dropped=0)
    place = AuditPartition(topic="orders", partition="3")
    flat: dict[str, Any] = json.loads(encode(Event(stamp=stamp, body=Progress(partitions=(place,)))))
    flat["colour"] = "blue"
    flat["partitions"][0]["colour"] = "blue"
    assert decode(json.dumps(flat)).body == Progress(partitions=(place,))
    for change, said in (({"v": 2}, "version 2"), ({"kind": "song"}, "song"), ({"v": None}, "no version")):
        with pytest.raises(EventUnreadable, match=said):
            decode(json.dumps(flat | change))


@pytest.mark.parametrize(
    "line",
    ["", "[]", "null", '{"v":1}', '{"v":1,"kind":"progress"}', '{"v":1,"kind":"progress","partitions":[3]}'],
)
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(EventUnreadable):
        decode(line)


def test_partitions_of_brokers_that_number_their_own_carry_the_brokers_name() -> None:
    assert (label(Partition("orders", 3)), label(Partition("orders", 3, "broker-a"))) == ("3", "broker-a-3")


def test_the_page_names_every_kind_field_and_outcome() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "audit.md").read_text()
    said = set(re.findall(r"`([a-z_]+)`", page))
    wanted = set(KINDS) | set(Outcome)
    for each in (Stamp, Span, Keyed, AuditPartition, *KINDS.values()):
        wanted |= {field.name for field in fields(each)}
    assert wanted - said == set()
