"""Rows whose columns change from batch to batch, in a lake: by its writer alone, without a sink."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchWrite, writers
from holdfast.adapters.spark._pyspark import SPARK_ERRORS
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Lake:
    """Finished attempts, one a batch."""

    def __init__(self, spark: SparkSession, path: Path, **given: Any) -> None:
        self.spark = spark
        self.path = path
        self.writer = writers.partition(str(path), **given)

    def batch(self, number: int, key: Sequence[str] = ("order_id",), query: str = "q") -> tuple[Attempt, BatchWrite]:
        attempt = Attempt(BatchId("orders", query, number), 1 + number, f"session{number}", 1_700_000_000_000)
        return attempt, BatchWrite.of(attempt, tuple(key), 1)

    def rows(self, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema)

    def put(self, number: int, schema: str, *rows: tuple[Any, ...], query: str = "q") -> None:
        attempt, batch = self.batch(number, query=query)
        self.writer.write(self.rows(schema, *rows), batch)
        self.writer.confirm(self.spark, attempt)

    def read(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.writer.read(self.spark).select(*columns).orderBy("order_id")
        return [tuple(row) for row in rows.collect()]


@pytest.mark.parametrize("format_name", ["parquet", "orc"])
def test_a_column_that_comes_later_is_read_and_one_of_another_type_is_an_error_of_the_reader(
    spark: SparkSession, tmp_path: Path, format_name: Any
) -> None:
    lake = Lake(spark, tmp_path / "lake", format=format_name, partition_by=("day",))
    lake.put(0, "order_id string, day string, at struct<x: int>", ("a", "2024-01-01", (1,)))
    lake.put(1, "order_id string, note string, day string, at struct<x: int, y: int>", ("b", "n", "2024-01-02", (1, 2)))
    lake.put(2, "order_id string, day string", ("c", "2024-01-02"))
    assert lake.read("order_id", "day", "note", "at", "hf_batch") == [
        ("a", "2024-01-01", None, (1, None), 0),
        ("b", "2024-01-02", "n", (1, 2), 1),
        ("c", "2024-01-02", None, None, 2),
    ]
    lake.put(3, "order_id string, day string, at struct<y: string>", ("d", "2024-01-02", ("2",)))
    with pytest.raises(SPARK_ERRORS, match=r"(?i)merg"):
        lake.writer.read(spark)


def test_keys_are_looked_up_though_other_columns_cannot_be_read_together(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.put(0, "order_id string, amount int", ("a", 1))
    lake.put(1, "order_id string, amount string", ("b", "1"))
    again = lake.rows("order_id string, amount string", ("a", "1"), ("b", "1"), ("new", "1"), (None, "1"))
    assert lake.writer.lacking(again, lake.batch(1)[1]) == 1


def test_what_the_names_of_folders_say_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    """By itself Spark would make numbers and dates of texts."""
    lake = Lake(spark, tmp_path / "lake", partition_by=("branch", "day"))
    rows = [("a", "007", dt.date(2024, 1, 1)), ("b", None, None)]
    lake.put(0, "order_id string, branch string, day date", *rows, query="0042")
    read = [("a", "007", "2024-01-01", "0042", 0), ("b", None, None, "0042", 0)]
    assert lake.read("order_id", "branch", "day", "hf_query", "hf_batch") == read
    lake.writer = writers.partition(str(lake.path))  # of a reader that does not know `partition_by`
    assert lake.read("order_id", "branch", "day", "hf_query", "hf_batch") == read


def test_a_key_that_is_the_name_of_a_folder_is_looked_up_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake", partition_by=("branch", "shop"))
    schema = "order_id int, branch string, shop int"
    lake.put(0, schema, (7, "007", 1), (8, "0042", 2))
    again = lake.rows(schema, (7, "007", 1), (8, "0042", 2), (7, "7", 1), (7, "007", 2))
    assert lake.writer.lacking(again, lake.batch(0, ["order_id", "branch", "shop"])[1]) == 2


def test_batches_without_a_row_are_finished_and_have_no_columns_yet(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake", partition_by=("day",))
    nothing, [_, batch] = lake.rows("order_id string, day string"), lake.batch(0)
    lake.put(0, "order_id string, day string")
    assert lake.writer.finished(spark, batch)
    assert lake.writer.lacking(nothing, batch) == 0
    assert lake.writer.of_batch(spark, batch) is None
    with pytest.raises(SettingError, match="holds no finished batch yet"):
        lake.writer.read(spark)
    lake.put(1, "order_id string, day string", ("a", "2024-01-01"))
    assert lake.read("order_id", "day") == [("a", "2024-01-01")]


def test_a_reader_passes_over_no_file_whatever_its_session_says(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark.newSession(), tmp_path / "lake")
    lake.spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    lake.put(0, "order_id string", ("a",))
    lake.put(1, "order_id string", ("b",))
    rows = lake.writer.read(lake.spark)
    for part in lake.path.glob("hf_query=q/hf_batch=0/*/part-*"):
        part.unlink()
    with pytest.raises(SPARK_ERRORS, match=r"(?i)exist"):
        rows.collect()


@pytest.mark.parametrize("name", ["hf_query", "HF_Batch", "hf_attempt"])
def test_a_column_with_a_name_of_the_lakes_own_is_refused_before_its_values_are_hidden(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    lake = Lake(spark, tmp_path / "lake")
    with pytest.raises(SettingError, match="the lake has a column of that name by itself: rename it, or drop it"):
        lake.put(0, f"order_id string, {name} string", ("a", "of another lake"))
    lake.put(0, "order_id string", ("a",))
    assert lake.read("order_id", "hf_query") == [("a", "q")]
