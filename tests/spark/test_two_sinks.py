"""Two sinks: in one batch, each in a thread, or in one lake or table. Neither takes what the other works with."""

from __future__ import annotations

import uuid
from threading import Event
from typing import TYPE_CHECKING

import pytest
from pyspark import InheritableThread
from pyspark.sql import functions

from holdfast.adapters.spark import drop_done, writers
from holdfast.errors import SettingError
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchWrite
    from tests.spark.lake import Lake


def test_what_one_writes_was_claimed_by_it_whoever_ends_first(lake: Lake) -> None:
    """The rows are others each time that they are evaluated, as those of a join with a table that changes."""
    b_has_claimed, a_has_ended, written = Event(), Event(), list[str]()

    def write_a(rows: DataFrame, batch: BatchWrite) -> None:
        rows.collect()
        assert b_has_claimed.wait(PATIENCE_S)

    def write_b(rows: DataFrame, batch: BatchWrite) -> None:
        b_has_claimed.set()
        assert a_has_ended.wait(PATIENCE_S)
        written.extend(row.order_id for row in rows.collect())

    def put(name: str, write: Callable[..., None], ended: Event) -> None:
        lake.sink(name, write=write, safe="replace", query="q")(rows, 0)
        ended.set()

    fresh = functions.udf(lambda _: uuid.uuid4().hex, "string").asNondeterministic()
    rows = lake.spark.range(4).select(fresh("id").alias("order_id"))
    threads = [
        InheritableThread(target=put, args=("a", write_a, a_has_ended)),
        InheritableThread(target=put, args=("b", write_b, Event())),
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    again = lake.spark.createDataFrame([(key,) for key in written], "order_id string")
    assert len(written) == 4
    assert drop_done(again, key="order_id", claims=lake.url, scope="b").count() == 0


def test_a_lake_of_another_sink_is_refused_also_for_rows_without_a_key(lake: Lake, tmp_path: Path) -> None:
    bad = writers.partition(str(tmp_path / "bad"))
    lake.put(0, ("a", 1), (None, 1), bad_rows=bad)
    with pytest.raises(SettingError, match="belongs to sink 'orders-lake', and sink 'b' would remove rows of it"):
        lake.put(0, ("a", 1), sink="b")
    with pytest.raises(SettingError, match="belongs to sink 'orders-lake'"):
        lake.put(0, ("b", 1), (None, 1), sink="b", bad_rows=bad, write=writers.partition(str(tmp_path / "b")))
    with pytest.raises(SettingError, match="belongs to sink 'orders-lake'"):
        lake.sink("b").remove_orphans(lake.spark)
    assert lake.read() == [("a", 1)]
    assert bad.read(lake.spark).count() == 1


@pytest.mark.full
def test_a_table_of_delta_replace_is_one_sinks_and_two_may_merge_into_another(lake: Lake, tmp_path: Path) -> None:
    added, merged = (getattr(writers, f"delta_{each}")(str(tmp_path / each)) for each in ("replace", "merge"))
    lake.put(0, ("a", 1), write=added)
    with pytest.raises(SettingError, match="sink 'orders-lake' writes there, and sink 'b' would show"):
        lake.put(0, ("a", 2), sink="b", write=added)
    assert [row.amount for row in added.read(lake.spark, "orders-lake").collect()] == [1]
    lake.put(0, ("a", 1), ("b", 1), write=merged, query="m")
    lake.put(0, ("b", 2), ("c", 2), sink="b", write=merged, query="m")
    lake.put(1, ("d", 1), write=merged, query="m")
    rows = lake.spark.read.format("delta").load(merged.table).collect()
    assert sorted((row.order_id, row.amount) for row in rows) == [("b", 2), ("c", 2), ("d", 1)]
