"""A driver whose executors are processes of their own, and are killed at each phase of a batch.

    python -m tests.spark.cluster FOLDER REDIS_URL

One batch a phase, with new keys and some of the batch before. What is in the lake in the end goes to FOLDER/found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from pyspark.sql import functions as F  # noqa: N812 - as all of pyspark's documents have it

from holdfast.adapters.spark import idempotent_sink, writers
from tests.spark.kills import executors
from tests.spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchWrite
    from holdfast.adapters.spark.values import Safe
    from holdfast.dedup.spark_batches import Attempt

#: Nothing is claimed yet; tasks are claiming; all is claimed; tasks are writing; written and not finished; finished.
PHASES = ("begun", "claiming", "claimed", "writing", "written", "finished")
_NEW, _AGAIN = 20_000, 2_000
_PATIENCE_S = 120.0
_CONF = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
    "spark.sql.shuffle.partitions": "4",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Killer:
    """A lake's writer; where a batch comes to its phase, the oldest executor is killed."""

    safe: Safe = "replace"

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._writer = writers.partition(str(path))
        self._redis = redis.Redis.from_url(url)
        self.killed: list[str] = []

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        self._at("begun", batch.batch)
        keys = self._redis.dbsize()
        self._when("claiming", batch.batch, lambda: self._redis.dbsize() >= keys + _NEW // 4)
        return self._writer.finished(spark, batch)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        self._at("claimed", batch.batch)
        self._when(
            "writing", batch.batch, lambda: any(self._path.glob(f"*/*/*={batch.attempt}/_temporary/**/*.parquet"))
        )
        self._writer.write(rows, batch)
        self._at("written", batch.batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        self._at("finished", attempt.of.batch)
        self._writer.confirm(spark, attempt)

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        return self._writer.lacking(rows, batch)

    def _at(self, phase: str, batch: int) -> None:
        name = f"{phase} {batch}"
        if PHASES[batch] == phase and name not in self.killed:
            os.kill(executors(os.getsid(0))[0], signal.SIGKILL)
            self.killed.append(name)

    def _when(self, phase: str, batch: int, there: Callable[[], bool]) -> None:
        def wait() -> None:
            ends = time.monotonic() + _PATIENCE_S
            while not there() and time.monotonic() < ends:
                time.sleep(0.002)
            self._at(phase, batch)

        if PHASES[batch] == phase:
            threading.Thread(target=wait, daemon=True).start()


def run(folder: Path, url: str) -> None:
    """All phases, one after the other."""
    spark = local_session(folder / "warehouse", _CONF, connectors=False)
    lake = folder / "lake"
    killer = Killer(lake, url)
    sink = idempotent_sink("orders", key="order_id", claims=url, write=killer, query="q")
    for batch in range(len(PHASES)):
        first = batch * _NEW
        rows = spark.range(max(0, first - _AGAIN), first + _NEW, numPartitions=4)
        sink(rows.select(F.concat(F.lit("k"), F.col("id").cast("string")).alias("order_id")), batch)
    keys = Counter(row.order_id for row in writers.partition(str(lake)).read(spark).select("order_id").collect())
    sent = _NEW * len(PHASES)
    found = {"killed": killer.killed, "lost": sent - len(keys), "doubled": sum(n > 1 for n in keys.values())}
    (folder / "found").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
