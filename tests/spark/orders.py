"""Orders in Kafka that producers send again, and what a sink has made of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark.sql.functions import col, from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


def send(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """One record each; the same order always in the same partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, key=str(number), value=json.dumps({"order_id": f"order-{number}"}))
    assert producer.flush(60) == 0


def read(spark: SparkSession, bootstrap: str, topic: str, per_batch: int | None = None) -> DataFrame:
    """The stream of them, each row with its place in Kafka.

    Args:
        spark: a session with the connector.
        bootstrap: of the broker.
        topic: of the orders.
        per_batch: records at most; None = all that are there.
    """
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest")
    if per_batch is not None:
        stream = stream.option("maxOffsetsPerTrigger", per_batch)
    order = from_json(col("value").cast("string"), "order_id string")
    return stream.load().select(
        order.getField("order_id").alias("order_id"),
        col("partition").alias("kafka_partition"),
        col("offset").alias("kafka_offset"),
        col("timestamp").alias("sent"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Keys."""

    lost: int
    doubled: int
    replayed: int  #: of those doubled: by a record that was written twice; the others were sent twice

    @property
    def right(self) -> bool:
        """Each key once."""
        return not self.lost and not self.doubled


def judge(rows: DataFrame, sent: int) -> Judged:
    """Count in the sink.

    Args:
        rows: all that is in it, with the columns of `read`.
        sent: orders 0 to this one, without it.
    """
    found = [tuple(row) for row in rows.select("order_id", "kafka_partition", "kafka_offset").collect()]
    keys = Counter(order for order, *_ in found)
    replayed = {order for (order, *_), times in Counter(found).items() if times > 1}
    return Judged(lost=sent - len(keys), doubled=sum(times > 1 for times in keys.values()), replayed=len(replayed))
