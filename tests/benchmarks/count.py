"""The trivial handler of every consumer that is compared. Nothing of ours is imported here: peers have no holdfast."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Count:
    """Counts, and notes when the first and the last record came. Any thread."""

    def __init__(self, records: int, last: Callable[[], None] = lambda: None) -> None:
        self._records, self._last = records, last
        self._count = itertools.count(1)
        self._batched = 0
        self._began = self._ended = (0.0, 0.0)
        self.over = False

    def one(self, _: object) -> None:
        """Handle one record."""
        number = next(self._count)
        if number == 1:
            self._began = _now()
        if number == self._records:
            self._end()

    def many(self, records: Sequence[object]) -> None:
        """Handle a batch. One thread at a time."""
        if not self._batched:
            self._began = _now()
        self._batched += len(records)
        if self._batched >= self._records:
            self._end()

    def _end(self) -> None:
        self._ended = _now()
        self.over = True
        self._last()

    @property
    def figures(self) -> tuple[int, float, float]:
        """Records, seconds, and seconds of processor time, from the first record to the last."""
        return self._records, self._ended[0] - self._began[0], self._ended[1] - self._began[1]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
