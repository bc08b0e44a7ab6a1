"""The report asks the same of tables in Parquet and of those in a database, and is told the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.adapters.parquet.writing import write_tables
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.page import page
from holdfast.tools.audit_report.pages.reading import Steps
from tests.docs.sample_audit import sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.tools.audit_report.pages.reading import TableReader

_RUNS: list[dict[str, Any]] = [
    {"group": "g", "member": "m", "run": "c", "handled": 3, "share": 0.5, "complete": True},
    {"group": "g", "member": "m", "run": "a", "handled": None, "complete": False},
    {"group": "g", "member": "n", "run": "b", "handled": 3, "missing": 2},
    {"group": "h", "member": "n", "run": "d", "handled": 9},
]


@pytest.fixture(params=["sqlite", "parquet"])
def some(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TableReader]:
    """Tables with these runs, a gap, and a few samples of the lag."""
    with SqliteTables() as tables:
        tables.add(("members", each) for each in _RUNS)
        tables.add([("gaps", {"group": "g", "verdict": "lost", "runs": ["a", "b"], "members": []})])
        tables.add(("lag", {"group": "g", "topic": "t", "at_ms": at, "lag": at // 10}) for at in range(100, 400, 50))
        if request.param == "sqlite":
            yield tables
            return
        write_tables(tmp_path, tables.rows)
    yield ParquetTables(tmp_path)


def test_the_highest_come_first_and_those_without_a_value_last(some: TableReader) -> None:
    found = some.largest(t.MEMBERS, "handled", 2, {"group": "g"})
    assert ([each["run"] for each in found.rows], found.total) == (["c", "b"], 3)
    assert [each["run"] for each in some.largest(t.MEMBERS, "handled", 9, {}).rows] == ["d", "c", "b", "a"]
    [row] = some.largest(t.MEMBERS, "missing", 9, {"run": "c", "complete": True}).rows
    assert row == dict.fromkeys(t.MEMBERS.names) | _RUNS[0]
    assert some.largest(t.MEMBERS, "handled", 0, {}) == ([], 4)
    assert some.largest(t.MEMBERS, "handled", 5, {"group": frozenset(["h", "i"])}).total == 1


def test_lists_come_as_lists(some: TableReader) -> None:
    [row] = some.largest(t.GAPS, "offsets", 5, {"verdict": "lost"}).rows
    assert (row["runs"], row["members"], row["reason"]) == (["a", "b"], [], None)


def test_groups_are_summed_by_keys_and_steps(some: TableReader) -> None:
    by_member = some.grouped(t.MEMBERS, ("group", "member"), value="handled", how="sum", where={})
    assert sorted(by_member) == [("g", "m", 3), ("g", "n", 3), ("h", "n", 9)]
    assert sorted(some.grouped(t.MEMBERS, ("group",), value="missing", how="count", where={})) == [("g", 1), ("h", 0)]
    steps = Steps("at_ms", 100, 100)
    highest = some.grouped(t.LAG, ("topic",), value="lag", how="max", where={"group": "g"}, steps=steps)
    assert sorted(highest) == [("t", 0, 15), ("t", 1, 25), ("t", 2, 35)]
    assert list(some.grouped(t.PAUSES, ("group",), value="pause_ms", how="min", where={})) == []


def test_the_page_is_the_same(tmp_path: Path) -> None:
    with SqliteTables() as tables:
        tables.add((table.name, row) for table, rows in sample().items() for row in rows)
        write_tables(tmp_path, tables.rows)
        assert page(audit_of(tables)) == page(audit_of(ParquetTables(tmp_path)))
