"""Streams from a real Kafka: a Redis that dies, a loop that starts again, two queries on one sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from examples.spark_stream import keep_running
from holdfast.adapters.spark import BatchReport, idempotent_sink, writers
from tests.harness.servers.redis import RedisServer
from tests.spark import orders
from tests.spark.gates import Gate, GatedWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.adapters.spark import IdempotentSink
    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full

_ORDERS = 60


class Streams:
    """Queries on one lake."""

    def __init__(self, spark: SparkSession, kafka: KafkaServer, folder: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self.folder = folder
        self.lake = writers.partition(str(folder / "lake"))
        self.reports: list[BatchReport] = []

    def sink(self, url: str, write: writers.PartitionWriter | GatedWriter | None = None) -> IdempotentSink:
        # Patient: queries on one sink wait for each other.
        return idempotent_sink(
            "orders-lake",
            key="order_id",
            claims=url,
            write=write or self.lake,
            observer=self.reports.append,
            patience_s=300 if write is None else 1,
        )

    def start(self, sink: IdempotentSink, topic: str, per_batch: int | None = None) -> StreamingQuery:
        stream = orders.read(self.spark, self.kafka.bootstrap, topic, per_batch)
        writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.folder / topic)).start()

    def judged(self, sent: int) -> orders.Judged:
        return orders.judge(self.lake.read(self.spark), sent)


@pytest.fixture
def streams(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Streams:
    return Streams(spark, kafka, tmp_path)


class Falls(Gate):
    """Where the Redis dies, once."""

    def __init__(self, folder: Path, phase: str, redis: RedisServer) -> None:
        super().__init__(folder, "")
        self._falls_at: str | None = phase
        self._redis = redis

    def at(self, phase: str, batch: int) -> None:
        if phase == self._falls_at:
            self._falls_at = None
            self._redis.kill()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("phase", ["begun", "written"])
def test_a_redis_that_dies_in_a_batch_ends_the_query_and_a_loop_that_starts_it_again_is_right(
    streams: Streams, tmp_path: Path, phase: str
) -> None:
    topic = f"redis-dies-{phase}"
    streams.kafka.create_topic(topic, 2)
    orders.send(streams.kafka.bootstrap, topic, [*range(_ORDERS), *range(_ORDERS)])
    with RedisServer(aof=True) as redis:
        sink = streams.sink(redis.url, GatedWriter(streams.lake, Falls(tmp_path, phase, redis)))
        ended: list[StreamingQuery] = []

        def start() -> StreamingQuery:
            if ended:  # the first one has failed by now
                with pytest.raises(StreamingQueryException, match="no answer from the Redis"):
                    ended[0].awaitTermination()
                assert ended[0].lastProgress is None  # by which the loop knows that it did not get on
                redis.restart()
            ended.append(streams.start(sink, topic, _ORDERS))
            return ended[-1]

        keep_running(start)
    assert len(ended) == 2
    assert streams.judged(_ORDERS).right
    assert streams.lake.orphans(streams.spark) == []


@pytest.mark.timeout(900)
def test_two_queries_on_one_sink_take_turns_and_write_each_key_once(streams: Streams, redis_url: str) -> None:
    for topic in ("left", "right"):
        streams.kafka.create_topic(topic, 2)
        orders.send(streams.kafka.bootstrap, topic, range(_ORDERS))
    both = [streams.start(streams.sink(redis_url), topic, _ORDERS // 2) for topic in ("left", "right")]
    for query in both:
        query.awaitTermination()
    assert streams.judged(_ORDERS).right
    assert {each.query for each in streams.reports} == {str(query.id) for query in both}
    assert sum(each.skipped for each in streams.reports) == _ORDERS
