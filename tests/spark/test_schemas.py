"""Rows whose columns change from batch to batch, in a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchRefused, BatchWrite, writers
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.lake import Lake


def put(lake: Lake, batch: int, schema: str, *rows: tuple[Any, ...], **given: Any) -> None:
    lake.sink(query="q", **given)(lake.spark.createDataFrame(list(rows), schema), batch)


@pytest.mark.parametrize("format_name", ["parquet", "orc"])
def test_a_column_that_comes_later_is_read_and_a_changed_type_is_refused(
    lake: Lake, tmp_path: Path, format_name: Any
) -> None:
    lake.writer = writers.partition(str(tmp_path / "other"), format=format_name, partition_by=("day",))
    put(lake, 0, "order_id string, day string, at struct<x: int>", ("a", "2024-01-01", (1,)))
    put(
        lake, 1, "order_id string, note string, day string, at struct<x: int, y: int>", ("b", "n", "2024-01-02", (1, 2))
    )
    put(lake, 2, "order_id string, day string", ("c", "2024-01-02"))
    with pytest.raises(BatchRefused, match=r"column 'at.y' is string here and int in .*: cast it before the sink"):
        put(lake, 3, "order_id string, day string, at struct<y: string>", ("d", "2024-01-02", ("2",)))
    rows = lake.writer.read(lake.spark).select("order_id", "day", "note", "at", "hf_batch").orderBy("order_id")
    assert [tuple(row) for row in rows.collect()] == [
        ("a", "2024-01-01", None, (1, None), 0),
        ("b", "2024-01-02", "n", (1, 2), 1),
        ("c", "2024-01-02", None, None, 2),
    ]
    assert lake.writer.orphans(lake.spark) == []
    put(lake, 3, "order_id string, day string", ("d", "2024-01-02"))
    assert lake.reports[-1].owned == 1


def test_a_lake_whose_columns_nobody_has_noted_is_read_with_all_of_them(lake: Lake, tmp_path: Path) -> None:
    lake.put(0, ("a", 1))
    put(lake, 1, "order_id string, note string", ("b", "n"))
    for noted in (tmp_path / "lake" / "_holdfast" / "_schemas").iterdir():
        noted.unlink()
    assert {"amount", "note"} <= set(lake.writer.read(lake.spark).columns)
    with pytest.raises(BatchRefused, match="column 'note' is int here and string in"):
        put(lake, 2, "order_id string, note int", ("c", 1))


@pytest.mark.parametrize("name", ["hf_query", "HF_Batch", "hf_of_attempt"])
def test_a_column_with_a_name_of_the_lakes_own_is_refused_before_its_values_are_hidden(lake: Lake, name: str) -> None:
    with pytest.raises(SettingError, match="the lake has a column of that name by itself: rename it, or drop it"):
        put(lake, 0, f"order_id string, {name} string", ("a", "of another lake"))
    assert lake.put(0, ("a", 1)).owned == 1


def test_tries_that_fail_leave_no_more_than_one_note_of_columns(lake: Lake, tmp_path: Path) -> None:
    put(lake, 0, "order_id string", ("a",))
    fails = lake.spark.range(1).selectExpr("'b' AS order_id", "raise_error('no') AS note")
    for number in range(1, 4):
        fence = 9_000_000_000_000 + number
        attempt = Attempt(BatchId("orders-lake", "q", 1), 1, f"s{number}", fence)
        with pytest.raises(Exception, match="no"):
            lake.writer.write(fails, BatchWrite.of(attempt, ("order_id",), 1))
    notes = sorted(path.name for path in (tmp_path / "lake" / "_holdfast" / "_schemas").iterdir() if path.suffix == "")
    assert len(notes) == 2
    assert notes[-1].endswith("-s3")
