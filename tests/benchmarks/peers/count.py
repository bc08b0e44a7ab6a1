"""The trivial handler of a peer's process. Nothing here is imported that a peer's environment has not."""

from __future__ import annotations

import itertools
import os
import time


class Count:
    """Counts; when the last record has come it prints the line that `speed_of` reads, and ends the process. One thread
    at a time."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._count = itertools.count(1)
        self._batched = 0
        self._began = (0.0, 0.0)

    def one(self, _: object) -> None:
        """Handle one record."""
        number = next(self._count)
        if number == 1:
            self._began = _now()
        if number == self._records:
            self._end()

    def many(self, records: int) -> None:
        """Handle a batch of so many."""
        if not self._batched:
            self._began = _now()
        self._batched += records
        if self._batched >= self._records:
            self._end()

    def _end(self) -> None:
        ended = _now()
        print(self._records, ended[0] - self._began[0], ended[1] - self._began[1], flush=True)
        # How each leaves its group is not measured, and may take its time.
        os._exit(0)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
