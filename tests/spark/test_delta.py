"""writers.delta_merge and writers.delta_replace on a real Delta. With the sink around them: test_kills.py."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from holdfast.adapters.spark import BatchFenced, BatchRefused, BatchWrite, writers
from holdfast.adapters.spark.writers.delta.table import Table as DeltaTable
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError
from tests.spark.lake import SINK as LAKE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.lake import Lake

pytestmark = pytest.mark.full

SINK = "orders-delta"
_TO_DELTA = ("DeltaLog", "delta", "sql", "spark", "apache", "org")


class Table:
    """A table, and attempts at it: their fences rise as they are made."""

    def __init__(self, spark: SparkSession, path: str, kind: str) -> None:
        self.spark = spark
        self.path = path
        self.kind = kind
        self._fence = 1_700_000_000_000

    def writer(self) -> Any:
        return writers.delta_replace(self.path) if self.kind == "replace" else writers.delta_merge(self.path)

    def attempt(self, batch: int, *, query: str = "q") -> Attempt:
        self._fence += 1
        return Attempt(BatchId(SINK, query, batch), 1, f"s{self._fence}", self._fence)

    def of(self, attempt: Attempt, rows: int = 0) -> BatchWrite:
        return BatchWrite.of(attempt, ("order_id",), rows)

    def write(self, attempt: Attempt, *rows: tuple[Any, ...], finish: bool = True) -> None:
        frame = self.spark.createDataFrame(list(rows), "order_id string, amount int").coalesce(1)
        self.writer().write(frame, self.of(attempt, len(rows)))
        if finish:
            self.writer().confirm(self.spark, attempt)

    def finished(self, attempt: Attempt) -> bool:
        return bool(self.writer().finished(self.spark, self.of(attempt)))

    def read(self) -> list[tuple[Any, ...]]:
        """As the documentation says."""
        if self.kind == "replace":
            rows = self.writer().read(self.spark, SINK)
        else:
            rows = self.spark.read.format("delta").load(self.path)
        return sorted((row.order_id, row.amount) for row in rows.collect())


@pytest.mark.parametrize("kind", ["merge", "replace"])
def test_a_table_has_what_was_finished_whatever_dies_or_comes_late(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = Table(spark, str(tmp_path / "orders"), kind)
    assert not table.finished(table.attempt(0))
    frozen = table.attempt(0)
    table.write(table.attempt(0), ("a", 1), ("b", 2))
    assert table.finished(table.attempt(0))
    assert not table.finished(table.attempt(1))

    # Written and not finished; the next try, by a query with a new checkpoint, has other rows.
    table.write(table.attempt(1), ("c", 1), ("gone", 1), finish=False)
    gone = [("gone", 1)] if kind == "merge" else []
    assert table.read() == [("a", 1), ("b", 2), *([("c", 1), *gone] if gone else [])]
    assert not table.finished(table.attempt(1))
    last = table.attempt(0, query="q2")
    table.write(last, ("c", 2), ("late", 2))
    assert table.read() == sorted([("a", 1), ("b", 2), ("c", 2), ("late", 2), *gone])

    # Batch numbers that begin anew; a zombie that asks, and one that had asked before the others wrote.
    table.write(table.attempt(1, query="q2"))
    assert sorted(each.parent.name for each in Path(table.path, "_holdfast").glob("*/*/*/[0-9]*")) == ["0", "1"]
    with pytest.raises(BatchRefused, match="knows batch 1 of query q2"):
        table.finished(table.attempt(0, query="q2"))
    with pytest.raises(BatchFenced, match="knows a later attempt"):
        table.write(frozen, ("a", 9), ("x", 9))
    monkeypatch.setattr(DeltaTable, "check", lambda self, batch, *, alone=False: None)
    with pytest.raises(BatchFenced, match="knows a later attempt"):
        table.write(frozen, ("a", 9), ("x", 9))
    assert table.read() == sorted([("a", 1), ("b", 2), ("c", 2), ("late", 2), *gone])


def test_a_reader_sees_what_was_finished_while_the_next_batch_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the log and its look at the marks, of which a query has one."""
    table = Table(spark, str(tmp_path / "orders"), "replace")
    table.write(table.attempt(0), ("a", 1))
    table.write(table.attempt(1), ("b", 2))
    is_finished, late = DeltaTable.is_finished, [table.attempt(2)]

    def after_the_next_one(self: DeltaTable, sink: str, fence: int) -> bool:
        if late:
            table.write(late.pop(), ("c", 3))
        return is_finished(self, sink, fence)

    monkeypatch.setattr(DeltaTable, "is_finished", after_the_next_one)
    assert table.read() == [("a", 1), ("b", 2), ("c", 3)]


def test_a_table_of_the_catalog_is_merged_into_and_may_keep_its_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(spark, "orders_of_catalog", "merge")
    monkeypatch.setattr(table, "writer", lambda: writers.delta_merge("orders_of_catalog", matched="nothing"))
    table.write(table.attempt(0), ("a", 1))
    table.write(table.attempt(1), ("a", 2), ("b", 2))
    assert sorted(tuple(row) for row in spark.table("orders_of_catalog").collect()) == [("a", 1), ("b", 2)]
    assert table.finished(table.attempt(1))
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
    spark.sql("DROP TABLE orders_of_catalog")


def test_a_table_that_is_not_there_yet_is_said_to_its_reader(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not there yet"):
        Table(spark, str(tmp_path / "orders"), "replace").read()


def test_a_spark_without_delta_is_told_what_to_set(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    bare = reduce(lambda found, name: SimpleNamespace(**{name: found}), _TO_DELTA, jvm.there_is.no_such_package)
    says = r"start Spark with spark\.jars\.packages=io\.delta:delta-spark_4\.2_2\.13:4\.4\.0, spark\.sql\.extensions="
    without = object.__new__(type(spark))
    without.__dict__ |= spark.__dict__ | {"_jvm": bare}
    with pytest.raises(SettingError, match=says):
        DeltaTable(without, "/lake")


def test_settings_that_cannot_work_are_refused_where_they_are_written() -> None:
    with pytest.raises(SettingError, match="give a path, or a name in the catalog"):
        writers.delta_merge("")
    with pytest.raises(SettingError, match="give a path, or a name in the catalog"):
        writers.delta_replace("")
    with pytest.raises(SettingError, match="'update' or 'nothing'"):
        writers.delta_merge("orders", matched="append")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["merge", "replace"])
def test_a_lake_is_moved_to_a_table_and_its_query_goes_on(lake: Lake, tmp_path: Path, kind: str) -> None:
    """As docs/reference/spark.md says it."""

    def fail(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)
        raise RuntimeError

    lake.put(0, ("a", 1))
    for mark in (tmp_path / "lake" / "_holdfast" / "q" / "0").glob("0.*"):
        mark.unlink()  # the driver died before it
    with pytest.raises(RuntimeError):
        lake.put(1, ("b", 1), write=fail, safe="replace")
    lake.sink().remove_orphans(lake.spark)
    rows, fence = lake.writer.read(lake.spark), "cast(regexp_extract(hf_attempt, 'a([0-9]+)-', 1) AS bigint)"
    kept = rows.drop("hf_query", "hf_batch") if kind == "merge" else rows.withColumn("hf_fence", functions.expr(fence))
    kept.drop("hf_attempt").write.format("delta").save(str(tmp_path / "table"))
    table = getattr(writers, f"delta_{kind}")(str(tmp_path / "table"))
    assert lake.put(0, ("a", 1), write=table).finished_before
    assert lake.put(1, ("a", 2), ("b", 2), write=table).owned == 1
    assert lake.put(1, ("a", 2), ("b", 2), write=table).finished_before
    read = lake.spark.read.format("delta").load(table.table) if kind == "merge" else table.read(lake.spark, LAKE)
    assert sorted((row.order_id, row.amount) for row in read.collect()) == [("a", 1), ("b", 2)]
