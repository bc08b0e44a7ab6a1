"""Ways from a stream to a sink, holdfast's and others, each with the phases at which it can be killed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.adapters.spark import BatchFenced, BatchRefused, idempotent_sink, writers
from tests.spark.gates import GatedWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.adapters.spark.values import Writer
    from tests.spark.gates import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a query has its things.

    Args:
        folder: its own.
        redis: the URL.
        name: of the query, and of its sink.
        postgres: the URL of a database.
    """

    folder: Path
    redis: str
    name: str
    postgres: str = ""

    @property
    def sink(self) -> str:
        return str(self.folder / "sink")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


class Shape(ABC):
    """One way."""

    name: ClassVar[str]
    #: It promises that each key is written once.
    ours: ClassVar[bool] = False
    #: Its readers are to see no more than that where its checkpoint is deleted, too.
    without_checkpoint: ClassVar[bool] = False

    @abstractmethod
    def start(self, orders: DataFrame, place: Place, gate: Gate) -> StreamingQuery:
        """Begin or go on, until nothing is left to read."""

    @abstractmethod
    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        """What its readers see."""


class Ours(Shape):
    """`idempotent_sink`."""

    ours = True

    @abstractmethod
    def writer(self, place: Place) -> Writer:
        """What is tried."""

    def start(self, orders: DataFrame, place: Place, gate: Gate) -> StreamingQuery:
        gated = GatedWriter(self.writer(place), gate)
        sink = idempotent_sink(place.name, key="order_id", claims=place.redis, write=gated, observer=gated.observe)
        writer = orders.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(place.checkpoint)).start()


class Partition(Ours):
    """Folders and marks, and the reader of finished attempts."""

    name = "partition"
    without_checkpoint = True

    def writer(self, place: Place) -> writers.PartitionWriter:
        return writers.partition(place.sink)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        return self.writer(place).read(spark)


class PartitionCompacted(Partition):
    """The same, and its files are put together again and again meanwhile, what was replaced removed at once."""

    name = "partition-compacted"

    def __init__(self) -> None:
        self._compacting: dict[str, threading.Thread] = {}

    def start(self, orders: DataFrame, place: Place, gate: Gate) -> StreamingQuery:
        query = super().start(orders, place, gate)
        lake = self.writer(place)
        # A short lease: the one of a driver that was killed is waited for.
        sink = idempotent_sink(place.name, key="order_id", claims=place.redis, write=lake, lease_s=3, patience_s=5)

        def compact() -> None:
            while query.isActive:
                try:
                    [done] = sink.compact(orders.sparkSession, grace_s=0)
                except (BatchFenced, BatchRefused):
                    continue  # the machine is busy; or the one before was killed, and its lease goes on
                with (place.folder / "compacted").open("a") as told:
                    told.write(f"{done.attempts} {len(done.removed)}\n")
                time.sleep(0.2)

        self._compacting[place.name] = threading.Thread(target=compact, daemon=True)
        self._compacting[place.name].start()
        return query

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        self._compacting[place.name].join()
        return super().rows(spark, place)


class Append(Shape):
    """What most write first."""

    name = "append"

    def start(self, orders: DataFrame, place: Place, gate: Gate) -> StreamingQuery:
        def write(rows: DataFrame, batch: int) -> None:
            for phase in ("begun", "claimed"):
                gate.at(phase, batch)
            self.append(rows, batch, place)
            for phase in ("written", "finished", "settled"):
                gate.at(phase, batch)

        writer = self.prepared(orders).writeStream.foreachBatch(write).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(place.checkpoint)).start()

    def prepared(self, orders: DataFrame) -> DataFrame:
        """The stream above the sink."""
        return orders

    def append(self, rows: DataFrame, batch: int, place: Place) -> None:
        """The write."""
        rows.write.mode("append").parquet(place.sink)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        return spark.read.parquet(place.sink)


class Watermark(Append):
    """Spark's own deduplication, then append."""

    name = "watermark"

    def prepared(self, orders: DataFrame) -> DataFrame:
        return orders.withWatermark("sent", "1 day").dropDuplicatesWithinWatermark(["order_id"])


class DeltaTxn(Append):
    """Delta's own protection of batches that come again."""

    name = "delta-txn"

    def append(self, rows: DataFrame, batch: int, place: Place) -> None:
        once = rows.write.format("delta").option("txnAppId", place.name).option("txnVersion", batch)
        once.mode("append").save(place.sink)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        return spark.read.format("delta").load(place.sink)
