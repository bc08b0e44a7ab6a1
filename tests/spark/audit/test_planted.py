"""Damaged event files, judged by a real Spark: what is said is right, or "unknown", and never that all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.adapters.spark.audit import audit
from holdfast.plugin.audit.report.build import audit_of
from holdfast.plugin.audit.report.words import mood
from tests.spark.audit.planted import NAMELESS, Case, cases, documented, said, wrong

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def judged(spark: SparkSession, folder: Path, some: list[Case]) -> list[str]:
    """What is wrong of all that is said of them."""
    for number, case in enumerate(some):
        at = folder / "events, in ä" / str(number)
        at.mkdir(parents=True)
        for name, content in case.files.items():
            # A run is of one process: each case has its own.
            of_case = name.replace("-00000000", f"-{number:08x}")
            (at / of_case).write_bytes(content.replace(b'"run":"00000000', f'"run":"{number:08x}'.encode()))
    with audit(spark, str(folder / "events, in ä")) as found:
        found.write(str(folder / "tables"))
    gaps = parquet.read_table(folder / "tables" / "gaps").to_pylist()
    report = audit_of(ParquetTables(folder / "tables"))
    moods = {each.group: mood(type(report)(groups=[each])) for each in report.groups}
    assert moods.keys() == {case.group for case in some}
    for case in some:
        assert documented()[case.group][0] == said(case, gaps), ("docs/audit.md", case.group)
        if case.group in ("no fault", "twice the same"):
            assert moods[case.group] == "good"
    return [what for case in some for what in wrong(case, gaps, moods[case.group])]


def test_what_members_told_and_cannot_be_read_is_unknown(quick: SparkSession, tmp_path: Path) -> None:
    some = [case for case in cases() if case.name not in NAMELESS]
    assert judged(quick, tmp_path, some) == []


@pytest.mark.parametrize("name", sorted(NAMELESS))
def test_where_nobody_knows_whose_a_file_was_nothing_is_said_to_be_lost(
    name: str, quick: SparkSession, tmp_path: Path
) -> None:
    assert judged(quick, tmp_path, [case for case in cases() if case.name == name]) == []
