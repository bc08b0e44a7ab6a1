"""A batch whose columns are others than those of its Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchRefused, BatchWrite, writers
from holdfast.dedup.spark_batches import Attempt, BatchId

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

_KINDS: dict[str, Any] = {"merge": writers.delta_merge, "replace": writers.delta_replace}


class Table:
    """A table, written batch by batch."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self.spark = spark
        self.path = str(folder / "orders")
        self._writer = _KINDS[kind](self.path)
        self._batch = 0

    def made(self, columns: str) -> None:
        self.spark.sql(f"CREATE TABLE delta.`{self.path}` ({columns}) USING delta")

    def write(self, *columns: str) -> None:
        """A row of these expressions."""
        self._batch += 1
        fence = 1_700_000_000_000 + self._batch
        attempt = Attempt(BatchId("orders-delta", "q", self._batch), 1, f"s{fence}", fence)
        self._writer.write(self.spark.range(1).selectExpr(*columns), BatchWrite.of(attempt, ("order_id",), 1))
        self._writer.confirm(self.spark, attempt)

    def read(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.spark.read.format("delta").load(self.path).select(*columns).orderBy("order_id")
        return [tuple(row) for row in rows.collect()]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_new_column_is_added_and_one_that_is_missing_is_null(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Table(spark, tmp_path, kind)
    table.write("'a' AS order_id", "1 AS amount", "named_struct('x', 1) AS at")
    table.write("'b' AS order_id", "2 AS Amount", "'DE' AS country", "named_struct('x', 2, 'y', 'z') AS at")
    table.write("'c' AS order_id", "'FR' AS country")
    assert table.read("order_id", "amount", "country", "at.x", "at.y") == [
        ("a", 1, None, 1, None),
        ("b", 2, "DE", 2, "z"),
        ("c", None, "FR", None, None),
    ]


def test_a_row_that_is_merged_keeps_what_the_batch_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, "merge")
    table.write("'a' AS order_id", "1 AS amount", "'x' AS note")
    table.write("'a' AS order_id", "2 AS amount", "'DE' AS country")
    assert table.read("order_id", "amount", "note", "country") == [("a", 2, "x", "DE")]


_LOSSY = (
    ("int", "cast(4294967297 AS bigint)"),
    ("int", "1.5D"),
    ("bigint", "'12'"),
    ("string", "12"),
    ("float", "0.1D"),
    ("date", "timestamp'2024-01-01 12:00:00'"),
    ("timestamp_ntz", "timestamp'2024-01-01 12:00:00'"),
    ("decimal(10,2)", "cast('1.005' AS decimal(10,3))"),
    ("decimal(10,2)", "cast(1 AS bigint)"),
    ("struct<x: int>", "named_struct('x', 1.5D)"),
    ("array<int>", "array(1.5D)"),
)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_type_that_does_not_hold_all_values_is_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Delta would cast some of these, and the values would be others."""
    table = Table(spark, tmp_path, kind)
    table.write("'a' AS order_id", *(f"cast(NULL AS {there}) AS v{n}" for n, (there, _) in enumerate(_LOSSY)))
    for n, (_, value) in enumerate(_LOSSY):
        with pytest.raises(BatchRefused, match=f"column 'v{n}' is .* here and .*: cast it before the sink"):
            table.write("'b' AS order_id", f"{value} AS v{n}")
    assert table.read("order_id") == [("a",)]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_type_that_holds_all_values_takes_them(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Table(spark, tmp_path, kind)
    wide = ("bigint", "double", "decimal(12,3)", "decimal(20,0)", "string")
    table.write("'a' AS order_id", *(f"cast(NULL AS {each}) AS v{n}" for n, each in enumerate(wide)))
    narrow = ("cast(1 AS int)", "cast(0.5 AS float)", "cast('1.25' AS decimal(10,2))", "cast(7 AS bigint)", "NULL")
    table.write("'b' AS order_id", *(f"{each} AS v{n}" for n, each in enumerate(narrow)))
    [_, (*found, nothing)] = table.read("order_id", *(f"v{n}" for n in range(5)))
    assert [*map(str, found), nothing] == ["b", "1", "0.5", "1.250", "7", None]


def test_a_key_that_the_table_fills_up_with_spaces_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, tmp_path, "merge")
    table.made("order_id CHAR(5), amount INT")
    with pytest.raises(BatchRefused, match=r"the key 'order_id' is char\(5\) in .*: two keys would be one"):
        table.write("'a' AS order_id", "1 AS amount")


def test_a_key_of_another_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The table would take '7', '07' and 7 for one."""
    table = Table(spark, tmp_path, "merge")
    table.made("order_id INT, amount INT")
    with pytest.raises(BatchRefused, match="column 'order_id' is string here and int in"):
        table.write("'07' AS order_id", "1 AS amount")


@pytest.mark.parametrize("kind", _KINDS)
def test_a_log_without_a_commit_is_no_table_and_the_first_batch_makes_it(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """What a driver leaves that is killed while it makes the table."""
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    table = Table(spark, tmp_path, kind)
    table.write("'a' AS order_id")
    assert table.read("order_id") == [("a",)]
