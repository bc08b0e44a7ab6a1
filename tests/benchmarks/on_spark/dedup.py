"""Streams of one batch through a Spark, in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import redis
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.adapters.spark import idempotent_sink
from tests.benchmarks.on_spark.cpu import used_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.adapters.spark import BatchWrite

HDFS, ROCKSDB, OURS, PLAIN = "hdfs", "rocksdb", "digests", "plain"
_STORES = {
    HDFS: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_WARM_ROUNDS = 6
_SCHEMA = "order_id string, at timestamp, customer bigint, amount double, note string"
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
}


class Measured(NamedTuple):
    """One batch."""

    way: str
    rows: int
    elapsed_s: float
    cpu_s: float  #: of all processes of this Spark, and of Redis
    key_bytes: float  #: that Redis has taken for each

    @property
    def per_s(self) -> float:
        return self.rows / self.elapsed_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.rows * 1e6


def measure(url: str, rounds: Mapping[int, int], ways: Sequence[str], expected: int = 1_000_000) -> list[Measured]:
    """Each way in turns, so many rounds for each number of rows, and some before the clock starts: a stream runs for
    days, and Java compiles until it is warm. `expected`: keys."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    found = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        spark = _session(Path(folder))
        try:
            warm = min(100_000, *rounds)
            for rows in {warm, *rounds}:
                _put(spark, f"{folder}/{rows}", rows)
            for _ in range(_WARM_ROUNDS):
                for way in ways:
                    _run(spark, way, url, f"{folder}/{warm}", warm, expected)
            for rows, times in rounds.items():
                for _ in range(times):
                    found += [_run(spark, way, url, f"{folder}/{rows}", rows, expected) for way in ways]
        finally:
            spark.stop()
    return found


def _session(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("holdfast")
    for name, value in {**_CONF, "spark.sql.warehouse.dir": f"{folder}/warehouse"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _put(spark: SparkSession, path: str, rows: int) -> None:
    """Orders of about 100 bytes, in no order."""
    orders = spark.range(rows).select(
        F.concat(F.lit("order-"), F.substring(F.sha1(F.col("id").cast("string")), 1, 18)).alias("order_id"),
        F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id") % 60).alias("at"),
        (F.col("id") % 9973).alias("customer"),
        F.rand(1).alias("amount"),
        F.md5(F.col("id").cast("string")).alias("note"),
    )
    orders.repartition(4).write.parquet(path)


def _run(spark: SparkSession, way: str, url: str, path: str, rows: int, expected: int) -> Measured:
    """On an empty Redis; no state is kept, and none of what ran before is left on the heap."""
    _forget(spark)
    with redis.Redis.from_url(url, socket_timeout=60.0) as client:
        client.flushall()
        stream = spark.readStream.schema(_SCHEMA).parquet(path)
        writer = _by_state(spark, stream, way) if way in _STORES else _by_claims(stream, way, url, expected)
        before_bytes, before_s = _used(client), _cpu(client)
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as checkpoint:
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        read = sum(each["numInputRows"] for each in batches)
        if read != rows:
            raise RuntimeError(f"{read} of {rows} rows were read")
        elapsed_s = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
        return Measured(way, rows, elapsed_s, _cpu(client) - before_s, (_used(client) - before_bytes) / rows)


def _forget(spark: SparkSession) -> None:
    """State stores of queries that have ended stay loaded for a minute, a heap full of them: whoever runs next collects
    garbage."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    jvm.System.gc()


def _by_state(spark: SparkSession, stream: DataFrame, way: str) -> DataStreamWriter:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STORES[way])
    unique = stream.withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["order_id"])
    return unique.writeStream.format("noop")


def _by_claims(stream: DataFrame, way: str, url: str, expected: int) -> DataStreamWriter:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        rows.write.format("noop").mode("overwrite").save()

    sink = idempotent_sink(
        f"bench-{uuid4().hex[:8]}",
        key="order_id",
        claims=url,
        write=write,
        safe="replace",
        hash_keys=way == OURS,
        keys_expected=expected,
    )
    return stream.writeStream.foreachBatch(sink)


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _cpu(client: redis.Redis) -> float:
    own = client.info("cpu")
    return float(own["used_cpu_user"]) + float(own["used_cpu_sys"]) + used_s()
