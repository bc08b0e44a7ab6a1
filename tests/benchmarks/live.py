"""Producers that go on while somebody consumes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.benchmarks.lab import PARTITIONS, value

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def live(bootstrap: str, topic: str, per_s: float) -> Iterator[None]:
    """Meanwhile about so many messages a second come to the topic, one by one."""
    over = threading.Event()
    producer = threading.Thread(target=_send, args=(bootstrap, topic, per_s, over))
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join()


def _send(bootstrap: str, topic: str, per_s: float, over: threading.Event) -> None:
    producer, number = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0}), 0
    while not over.wait(1 / per_s):
        producer.produce(topic, key=b"live-%d" % number, value=value(number), partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush(10)
