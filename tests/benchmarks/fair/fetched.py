"""Rows: bytes that the client receives from brokers for each byte that is handled (its statistics' `rx_bytes`), until a
backlog is done: what is thrown away and fetched again shows."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.benchmarks.count import Count
from tests.benchmarks.lab import PARTITIONS
from tests.benchmarks.registry import Goal, Row

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_WORKERS = 16
#: Bytes of a value, records, and seconds of a handler. An app pauses a partition with so large a backlog meanwhile.
_SIZES = ((100, 120_000, 0.002), (10_000, 20_000, 0.01))
_KEY_BYTES = 8


def rows(lab: Lab) -> list[Row]:
    """16 workers, records that are not compressed; 8 partitions, of which one has the backlog, or all. The bare loop
    handles as many a second, one after the other."""
    found = []
    for size, many, handler_s in _SIZES:
        records = many // 8 if lab.quick else many
        for in_backlog in (1, PARTITIONS):
            what = f"bytes received by bytes handled: {size:,} bytes a record, backlog in {in_backlog} of {PARTITIONS}"
            if not lab.wants(what):
                continue
            topic, sent = _topic(lab, size, records, in_backlog), records * (size + _KEY_BYTES)
            conf, redis_url = lab.client(), lab.emptied_redis()
            own = lab.in_child(app, lab.client(), topic, records, handler_s, redis_url) / sent
            bare_loop = lab.in_child(bare, conf, topic, records, handler_s / _WORKERS) / sent
            found += [
                Row(what=f"{what}, bare loop", figure=bare_loop, unit=""),
                Row(
                    what=f"{what}, app",
                    figure=own,
                    unit="",
                    ratio=own / bare_loop,
                    goal=Goal(value=1.5, at_least=False),
                ),
            ]
    return found


class _Received:
    """The client's statistics."""

    def __init__(self) -> None:
        self.bytes = 0

    def told(self, statistics: str) -> None:
        self.bytes = json.loads(statistics)["rx_bytes"]

    @property
    def conf(self) -> dict[str, Any]:
        return {"statistics.interval.ms": 200, "stats_cb": self.told}


def app(conf: dict[str, Any], topic: str, records: int, handler_s: float, redis_url: str) -> int:
    """The bytes that an app's client receives until it has handled so many records; in a process of its own."""
    claims, received = RedisClaims.from_url(redis_url, namespace=topic), _Received()
    source = KafkaSource(conf | received.conf, assignment="keep")
    holdfast = Holdfast(source, claims=claims, settings=Settings(workers=_WORKERS))
    count = Count(records, holdfast.stop)

    def handle(record: object) -> None:
        time.sleep(handler_s)
        count.one(record)

    holdfast.handler(topic, name="bench")(handle)
    holdfast.run()
    return received.bytes


def bare(conf: dict[str, Any], topic: str, records: int, handler_s: float) -> int:
    """The same of a `poll()` loop of the bare client."""
    received = _Received()
    consumer = Consumer(conf | received.conf)
    consumer.subscribe([topic])
    handled = 0
    while handled < records:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            handled += 1
            time.sleep(handler_s)
    consumer.close()
    return received.bytes


def _topic(lab: Lab, size: int, records: int, in_backlog: int) -> str:
    topic = f"fair-{size}-{in_backlog}-{records}"
    if not lab.kafka.partitions(topic):
        lab.kafka.create_topic(topic, PARTITIONS)
        producer = lab.producer(records, {"compression.type": "none"})
        for number in range(records):
            key = b"%0*d" % (_KEY_BYTES, number)
            producer.produce(topic, key=key, value=b" " * size, partition=number % in_backlog)
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not take all messages")
    return topic
