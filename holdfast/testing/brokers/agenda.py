"""Agenda: events that are due later at a broker. Line: the way between a member and its brokers."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

#: A client repeats a request without an answer after this time.
_AGAIN_S = 1.0


class Agenda:
    """Events that are due later. There is no thread for them: each look at the broker first runs the events that are
    due. Guarded by the broker's lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, when: float, call: Callable[[], None]) -> None:
        """Run this call at that time."""
        heappush(self._heap, (when, next(self._numbers), call))

    @property
    def next(self) -> float | None:
        """The time of the next event; None = there is none."""
        return self._heap[0][0] if self._heap else None

    def do_next(self) -> None:
        """Run the next event."""
        heappop(self._heap)[2]()


class Line:
    """The line between a member and its brokers. Requests arrive in the order in which they were sent.

    `hears`: requests arrive. `speaks`: answers arrive. `delay_s`: the time of one way. `twice_s`: each commit arrives a
    second time, so much later; None = once.
    """

    __slots__ = ("arrived", "delay_s", "hears", "speaks", "twice_s")

    def __init__(self) -> None:
        self.hears = self.speaks = True
        self.delay_s = 0.0
        self.twice_s: float | None = None
        #: When the last request arrives: no later request arrives before it.
        self.arrived = 0.0

    def wait_for_answer(self, what: str, runtime: Runtime, deadline: Deadline) -> None:
        """Wait for the way of a request and its answer. Raises SourceUnavailable: no answer until the deadline."""
        allowed_s = deadline.left_s()
        while not (self.hears and self.speaks):
            runtime.sleep(deadline.left_s(_AGAIN_S))
            if deadline.left_s() <= 0:
                raise SourceUnavailable(f"{what}: no answer within {allowed_s:.1f} s")
        if self.delay_s:
            way_s, left_s = 2 * self.delay_s, deadline.left_s()
            runtime.sleep(min(way_s, left_s))
            if left_s <= way_s:
                raise SourceUnavailable(f"{what}: no answer within {allowed_s:.1f} s")

    def mend(self) -> None:
        """End all faults of the line."""
        self.hears = self.speaks = True
        self.delay_s, self.twice_s = 0.0, None
