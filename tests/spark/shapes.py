"""Ways from a stream to a sink, holdfast's and others, each with the phases at which it can be killed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.adapters.spark import idempotent_sink, writers
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
