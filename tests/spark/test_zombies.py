"""A driver that is frozen before each step that touches files, tables or the store, and goes on when its successor has
finished that batch and the next one: each key is in the sink once, whatever it still does.

Without a Spark, and at each step of the files alone: test_partition_files.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrameWriter

from holdfast.adapters.spark import idempotent_sink, writers
from holdfast.adapters.spark.writers.delta.table import Table
from holdfast.adapters.spark.writers.files import Files
from holdfast.adapters.spark.writers.postgres.at import PostgresAt
from holdfast.dedup.redis_spark_batches import RedisBatches
from tests.harness.servers.postgres import ask
from tests.spark.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.harness.servers.postgres import PostgresServer

#: Before which of its steps a driver stands still. Of what it reads in a row only the first: in between nothing has
#: become of it that its successor could not see. The last one is its end, and what follows is a replay.
_STEPS = {
    "partition": (0, 1, 3, 4, 7, 8, 13, 14, 15, 16, 17, 18),
    "bad_rows": (0, 1, 3, 4, 7, 8, 10, 11, 15, 16, 21, 22, 23, 24, 25, 26, 27, 28),
    "postgres": range(14),
    "delta_merge": range(14),
    "delta_replace": range(15),
}
#: Of each the place of a step, and the step, so that it is certain to be reached.
_QUICK = {
    "partition": (16, "Files.touch"),
    "bad_rows": (21, "DataFrameWriter.save"),
    "postgres": (5, "PostgresAt.connected"),
    "delta_merge": (10, "Files.touch"),
    "delta_replace": (11, "Files.touch"),
}

#: Whose are played in each run; the steps in files, which all of them have, by test_partition_files.py as well.
_EACH_RUN = ("partition", "delta_merge")


class Orders:
    """A sink by one kind of writer, and what is in it."""

    def __init__(self, spark: SparkSession, redis_url: str, kind: str, path: str, url: str) -> None:
        self._spark, self._kind, self._path, self._url = spark, kind, path, url
        if kind == "postgres":
            ask(url, "CREATE TABLE orders (order_id text PRIMARY KEY, amount int)")
        made = {"postgres": ("orders", url)}.get(kind, (path,))
        self.writer: Any = getattr(writers, "partition" if kind == "bad_rows" else kind)(*made)
        self._bad = writers.partition(f"{path}-bad") if kind == "bad_rows" else None
        self._sink = idempotent_sink(
            "orders", key="order_id", claims=redis_url, write=self.writer, query="q", bad_rows=self._bad
        )

    def put(self, batch: int, *keys: str | None) -> None:
        if self._bad:
            keys = (*keys, None)
        self._sink(self._spark.createDataFrame([(key, batch) for key in keys], "order_id string, amount int"), batch)

    def read(self) -> list[str]:
        if self._kind == "postgres":
            return sorted(order for (order,) in ask(self._url, "SELECT order_id FROM orders"))
        readers: dict[str, Callable[[], Any]] = {
            "partition": lambda: self.writer.read(self._spark),
            "bad_rows": lambda: self.writer.read(self._spark),
            "delta_merge": lambda: self._spark.read.format("delta").load(self._path),
            "delta_replace": lambda: self.writer.read(self._spark, "orders"),
        }
        return sorted(row.order_id for row in readers[self._kind]().collect())

    def bad(self) -> list[int]:
        """The batches of the rows without a key."""
        return sorted(row.amount for row in self._bad.read(self._spark).collect()) if self._bad else [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        pytest.param(kind, before, marks=() if before == quick and kind in _EACH_RUN else pytest.mark.full)
        for kind, (quick, _) in _QUICK.items()
        for before in _STEPS[kind]
    ],
)
def test_a_frozen_driver_that_goes_on_after_its_successor_loses_and_doubles_nothing(
    spark: SparkSession,
    redis_url: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    before: int,
) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    orders = Orders(spark, redis_url, kind, str(tmp_path / "orders"), server.database() if server else "")
    zombie = Frozen(lambda: orders.put(0, "a", "b"), before)
    zombie.watch(monkeypatch, RedisBatches, "begin", "fate", "finish", "give_up")
    zombie.watch(monkeypatch, Files, "found", "remove", "touch")
    zombie.watch(monkeypatch, DataFrameWriter, "save")
    zombie.watch(monkeypatch, Table, "make", "log", "mark")
    zombie.watch(monkeypatch, PostgresAt, "connected")
    stood = zombie.stand()
    orders.put(0, "a", "b")
    orders.put(1, "c")
    zombie.go_on()
    assert stood == (before != _STEPS[kind][-1]), zombie.steps
    quick, step = _QUICK[kind]
    assert before != quick or zombie.steps[before] == step, zombie.steps
    assert orders.read() == ["a", "b", "c"], zombie.steps
    orders.put(1, "c")  # a replay
    orders.put(2, "a", "d")
    assert orders.read() == ["a", "b", "c", "d"], zombie.steps
    assert orders.bad() == [0, 1, 2], zombie.steps
