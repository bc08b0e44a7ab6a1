"""The sampler: what a group has committed, seen again and again while it works."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.scenarios.referee import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY_S = 0.1
_CALL_S = 5.0


class Sampler:
    """A thread with a client of its own, which never joins the group."""

    def __init__(self, bootstrap: str, group: str, partitions: Callable[[], dict[str, list[int]]]) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        #: Every (topic, partition, offset) ever seen committed -> its metadata.
        self.metadata: dict[tuple[str, int, int], str | None] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            for topic, numbers in self._partitions().items():
                try:
                    found = self._consumer.committed([TopicPartition(topic, each) for each in numbers], timeout=_CALL_S)
                except KafkaException:
                    continue  # a sample that could not be taken says nothing
                now = time.monotonic_ns()
                for each in found:
                    if each.offset >= 0:
                        self.metadata[(topic, each.partition, each.offset)] = each.metadata
                self.samples.append(
                    Sample(now, topic, {each.partition: each.offset for each in found if each.offset >= 0})
                )
