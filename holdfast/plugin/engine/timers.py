"""Timers: run actions later, on the thread that runs the app."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.timing import Clock


class Timers:
    """A heap of (when, what). Nothing is cancelled: what comes due looks whether it is still wanted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in a later turn, not before `seconds` have passed."""
        heapq.heappush(self._heap, (self._clock.now() + seconds, next(self._order), then))

    def next_s(self, at_most: float) -> float:
        """Seconds until the next one is due."""
        return max(0.0, min(at_most, self._heap[0][0] - self._clock.now())) if self._heap else at_most

    def run_due(self) -> None:
        """Call what is due."""
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
