"""Damaged events, judged as a stream brings them: what is said is right, or "unknown"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.tools.audit_report.judge.kept import LiveSettings
from holdfast.tools.audit_report.judge.live import LiveGroup
from holdfast.tools.audit_report.judge.unread import sorted_out
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.words import mood
from holdfast.tools.audit_report.tables import TABLES
from tests.docs.sample_audit import write
from tests.spark.audit.planted import AT_MS, Case, cases, documented, said, verdicts, wrong

if TYPE_CHECKING:
    from pathlib import Path

    Row = dict[str, Any]

_ALL = cases()
_DAY_MS = 86_400_000


def streamed(case: Case, at_once: int = 7) -> dict[str, list[Row]]:
    """Tables' rows, the state having been written and read between any two steps."""
    live = LiveGroup(case.group)
    rows: list[tuple[str, Row]] = []
    lines = case.lines
    for first in range(0, len(lines), at_once):
        read = sorted_out(lines[first : first + at_once], AT_MS + _DAY_MS)
        live.feed(read.events)
        live.unreadable(read.unreadable)
        rows += live.settle()
        live = LiveGroup.restored(json.loads(json.dumps(live.state())), LiveSettings())
    tables: dict[str, list[Row]] = {}
    for table, row in rows + live.silence():
        tables.setdefault(table, []).append(row)
    return tables


def moods(tables: dict[str, list[Row]], folder: Path) -> str:
    """Of the whole of it."""
    nothing = {name: dict.fromkeys(table.names) for name, table in TABLES.items()}
    rows = {TABLES[name]: [nothing[name] | row for row in of_table] for name, of_table in tables.items()}
    return mood(audit_of(ParquetTables(write(folder, rows))))


@pytest.mark.parametrize("case", _ALL, ids=[case.group for case in _ALL])
def test_a_stream_says_what_is_so_or_that_it_is_unknown(case: Case, tmp_path: Path) -> None:
    tables = streamed(case)
    below = 200 if "of the last owner" in case.name else 300  # what nobody is known to have reached is told later
    assert wrong(case, tables.get("gaps", []), moods(tables, tmp_path), below) == []
    assert documented()[case.group][1] == said(case, tables.get("gaps", [])), "docs/operations/audit.md"


def test_what_is_not_damaged_is_known(tmp_path: Path) -> None:
    well, lost = (case for case in _ALL if case.name == "no fault")
    assert (verdicts(well, streamed(well).get("gaps", [])), moods(streamed(well), tmp_path)) == ({}, "good")
    assert verdicts(lost, streamed(lost)["gaps"]) == {"lost": set(lost.lost)}
