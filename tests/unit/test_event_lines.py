"""A line of the log is one line, and a shell's rules split it into key=value."""

from __future__ import annotations

import shlex
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.plugin import events
from holdfast.plugin.events import Event, RebalanceReport, RecordFailed, SourceTrouble, Status
from holdfast.plugin.folding import EVERY_S, LINES
from holdfast.plugin.observe.observers import Observers
from holdfast.records import Partition
from tests.harness.clocks import HandClock

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: tuple[type[Any], ...] = get_args(Event)


def parsed(line: str) -> dict[str, str]:
    name, _, rest = line.partition(": ")
    assert name
    assert "=" not in name
    return dict(pair.split("=", 1) for pair in shlex.split(rest))


def values(kind: type[Any], text: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind, vars(events) | {"Mapping": dict, "Sequence": tuple, "Partition": Partition})
    for field in fields(kind):
        hint = hints[field.name]
        if field.default is not MISSING or field.default_factory is not MISSING:
            continue
        yield (
            field.name,
            Partition("orders", 3)
            if hint is Partition
            else text
            if hint is str
            else 1.5
            if hint in (float, float | None)
            else 7,
        )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(text=st.text())
def test_whatever_is_said_can_be_read_back(kind: type[Any], text: str) -> None:
    given_values = dict(values(kind, text))
    line = str(kind(**given_values))
    assert len(line.splitlines()) == 1
    found = parsed(line)
    assert set(given_values) <= set(found)
    assert {found[name] for name, value in given_values.items() if value == 7} <= {"7"}
    # What no log should carry raw (line ends, control characters) is escaped as JSON escapes it.
    if text.isprintable():
        assert all(found[name] == text for name, value in given_values.items() if value == text)


def test_a_status_line_says_what_a_person_looks_for() -> None:
    status = Status(
        state="paused: store down",
        group="billing",
        handled=120_034,
        rate_s=412.25,
        in_flight=600,
        running=8,
        lag=None,
        lag_known=10,
        lag_unknown_in=1,
        partitions=12,
        store="down",
        duplicates=3,
        failed_attempts=0,
        dead_lettered=0,
        overdue=1,
        stuck=0,
    )
    assert str(status) == (
        'status: state="paused: store down" group=billing handled=120034 rate_s=412.250 in_flight=600 running=8 '
        "lag_known=10 lag_unknown_in=1 partitions=12 store=down duplicates=3 failed_attempts=0 dead_lettered=0 "
        "overdue=1 stuck=0"
    )


def test_partitions_and_phases_stay_one_value() -> None:
    report = RebalanceReport(
        trigger="revoked",
        protocol="consumer",
        group="a group",
        began_ms=1790000000000,
        given=tuple(Partition("orders", number) for number in (0, 1, 2, 7)),
        phases_s={"fence": 0.0, "drain": 0.25},
    )
    found = parsed(str(report))
    assert found["given"] == "orders-[0-2,7]"
    assert found["phases_s"] == "fence:0.000,drain:0.250"
    assert found["group"] == "a group"


def test_a_quotation_mark_alone_breaks_no_line() -> None:
    assert parsed(str(SourceTrouble(error="it's"))) == {"error": "it's"}


def test_a_line_is_bounded_whatever_an_error_says_of_itself() -> None:
    line = str(SourceTrouble(error="input_value=" + "y" * 200_000))
    assert len(line) < 1_200
    assert "200,012 characters" in line


def test_lines_about_records_have_a_rate_and_those_that_are_left_out_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    seen: list[object] = []
    observers = Observers(seen.append, (), clock)
    failed = RecordFailed(
        partition=Partition("orders", 0), offset=7, handler="bill", attempt=1, error="no", retry_in_s=None
    )
    for _ in range(LINES + 50):
        observers.tell(failed)
    assert len(seen) == LINES + 50  # whoever counts is told of each
    assert len(caplog.messages) == LINES
    clock.sleep(EVERY_S)
    observers.tell(failed)
    assert caplog.messages[LINES].startswith("50 more lines of RecordFailed were left out")
    assert len(caplog.messages) == LINES + 2
