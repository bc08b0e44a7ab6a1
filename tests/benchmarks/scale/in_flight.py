"""How much memory a process has with so many records in flight: that were polled, and have not ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from holdfast import Holdfast, RedisClaims, Settings, record_key
from holdfast.adapters.kafka import KafkaSource
from tests.harness.waiting import until


class Memory(NamedTuple):
    """Resident memory of one process, bytes."""

    start: int
    full: int

    @property
    def grown(self) -> int:
        return self.full - self.start


def bytes_a_record(few: int, few_in: Memory, many: int, many_in: Memory) -> float:
    """What each record adds, by two counts of them: what a client and its threads cost is in both."""
    return (many_in.grown - few_in.grown) / (many - few)


def of_app(conf: dict[str, Any], topic: str, records: int, redis_url: str, *, keys: bool = False) -> Memory:
    """An app whose 16 handlers wait, and all other records for them."""
    claims = RedisClaims.from_url(redis_url, namespace=str(conf["group.id"]))
    settings = Settings(workers=16, ramp=None, max_in_flight=records, max_in_flight_bytes=1 << 30)
    app = Holdfast(KafkaSource(conf, assignment="keep"), claims=claims, settings=settings)
    go_on = threading.Event()
    app.handler(topic, name="bench", key=record_key() if keys else None)(lambda _: go_on.wait())
    start = _resident()
    app.start()
    until(lambda: app.snapshot().load.in_flight == records, lambda: f"in flight: {app.snapshot().load}")
    memory = Memory(start, _resident())
    go_on.set()
    app.stop(wait=True)
    return memory


def of_messages(conf: dict[str, Any], topic: str, records: int) -> Memory:
    """A list of the client's own messages, which is the least that a consumer could keep."""
    start = _resident()
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    kept: list[object] = []
    while len(kept) < records:
        kept += consumer.consume(500, 1.0)
    memory = Memory(start, _resident())
    consumer.close()
    return memory


def _resident() -> int:
    """proc(5)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
