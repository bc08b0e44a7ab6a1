"""A driver whose attempt ends while it writes, and which can know it, commits nothing: each writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchFenced, writers
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.errors import SettingError
from tests.spark.lake import SINK

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchWrite
    from tests.harness.servers.postgres import PostgresServer
    from tests.spark.lake import Lake


class Losing:
    """The attempt's session ends when the sink has asked, and before the writer commits: as if Redis had been away
    for longer than a lease."""

    def __init__(self, lake: Lake, inner: Any) -> None:
        self._lake, self._inner = lake, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """As the writer inside."""
        RedisBatches.of(self._lake.store).give_up(batch.attempt.partition("-")[2])
        self._inner.write(rows, batch)


def test_a_lake_shows_nothing_of_it_and_the_next_try_writes(lake: Lake) -> None:
    with pytest.raises(BatchFenced):
        lake.put(0, ("a", 1), write=Losing(lake, lake.writer))
    with pytest.raises(SettingError, match="holds no finished batch yet"):
        lake.read()
    assert lake.put(0, ("a", 2)).owned == 1
    assert lake.read() == [("a", 2)]


def test_a_function_is_told_when_it_asks_right_before_its_commit(lake: Lake) -> None:
    committed: list[str] = []

    def write(rows: DataFrame, batch: BatchWrite) -> None:
        keys = [row.order_id for row in rows.collect()]
        batch.check()
        if batch.batch == 1:
            RedisBatches.of(lake.store).give_up(batch.attempt.partition("-")[2])
        batch.check()
        committed.extend(keys)

    lake.put(0, ("a", 1), write=write, safe="transaction")
    with pytest.raises(BatchFenced):
        lake.put(1, ("b", 1), write=write, safe="transaction")
    assert committed == ["a"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta_merge", "delta_replace"])
def test_a_delta_table_stays_as_it_was(lake: Lake, tmp_path: Path, kind: str) -> None:
    writer = getattr(writers, kind)(str(tmp_path / "table"))
    lake.put(0, ("a", 1), write=writer)
    with pytest.raises(BatchFenced):
        lake.put(1, ("b", 1), write=Losing(lake, writer))
    rows = lake.spark.read.format("delta").load(writer.table).collect()
    assert [row.order_id for row in rows] == ["a"]


def test_a_table_of_postgresql_stays_as_it_was(lake: Lake, postgres: PostgresServer) -> None:
    url = postgres.database()
    database = url.rpartition("/")[2]
    postgres.execute("CREATE TABLE orders (order_id text PRIMARY KEY, amount int)", database)
    writer = writers.postgres("orders", url)
    lake.put(0, ("a", 1), write=writer)
    with pytest.raises(BatchFenced):
        lake.put(1, ("a", 2), ("b", 1), write=Losing(lake, writer))
    assert postgres.execute("SELECT * FROM orders", database) == [("a", 1)]
    noted = postgres.execute("SELECT sink, batch, finished_at IS NOT NULL FROM holdfast_batches", database)
    assert noted == [(SINK, 0, True)]
