"""The shapes of holdfast's writers into tables, and all shapes by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark import writers
from tests.harness.servers.postgres import ask
from tests.spark.shapes import Append, DeltaTxn, Ours, Partition, Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.gates import Gate
    from tests.spark.shapes import Place, Shape


class Postgres(Ours):
    """Upsert, in one transaction with the batch's row."""

    name = "postgres"
    without_checkpoint = True

    def start(self, orders: DataFrame, place: Place, gate: Gate) -> StreamingQuery:
        columns = "order_id text PRIMARY KEY, kafka_partition int, kafka_offset bigint, sent timestamptz"
        ask(place.postgres, f"CREATE TABLE IF NOT EXISTS {_table(place)} ({columns})")
        return super().start(orders, place, gate)

    def writer(self, place: Place) -> writers.PostgresWriter:
        return writers.postgres(_table(place), place.postgres)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        found = ask(place.postgres, f"SELECT order_id, kafka_partition, kafka_offset FROM {_table(place)}")  # noqa: S608
        return spark.createDataFrame(found, "order_id string, kafka_partition int, kafka_offset bigint")


class DeltaMerge(Ours):
    """MERGE by the key."""

    name = "delta-merge"
    without_checkpoint = True

    def writer(self, place: Place) -> writers.DeltaMergeWriter:
        return writers.delta_merge(place.sink)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        return spark.read.format("delta").load(place.sink)


class DeltaReplace(Ours):
    """An append in place of what did not finish, and the reader of finished attempts."""

    name = "delta-replace"
    without_checkpoint = True

    def writer(self, place: Place) -> writers.DeltaReplaceWriter:
        return writers.delta_replace(place.sink)

    def rows(self, spark: SparkSession, place: Place) -> DataFrame:
        return self.writer(place).read(spark, place.name)


def _table(place: Place) -> str:
    return "orders_" + place.name.replace("-", "_")


_ALL = (Partition(), Postgres(), DeltaMerge(), DeltaReplace(), Append(), Watermark(), DeltaTxn())
SHAPES: dict[str, Shape] = {each.name: each for each in _ALL}
