"""The sampler: what a group has committed, seen again and again while it works."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.harness.group.referee import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.group.ground import Watch

_EVERY_S = 0.1


class Sampler:
    """A thread with a watch of its own, which it closes."""

    def __init__(self, watch: Watch, partitions: Callable[[], dict[str, list[int]]]) -> None:
        self._watch = watch
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
            self._watch.close()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            for topic, numbers in self._partitions().items():
                found = self._watch.committed(topic, numbers)
                if found is None:
                    continue  # a sample that could not be taken says nothing
                now = time.monotonic_ns()
                for number, each in found.items():
                    self.metadata[(topic, number, each.offset)] = each.metadata
                self.samples.append(Sample(now, topic, {number: each.offset for number, each in found.items()}))
