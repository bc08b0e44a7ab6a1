"""Events to come: messages between a member and its brokers, and what brokers do when time has passed."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

#: A question that got lost is asked again after that time, as clients do.
_AGAIN_S = 1.0


class Agenda:
    """Events that are due later. An agenda has no thread: who looks at the broker does first what is due. Guarded by
    its lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, when: float, call: Callable[[], None]) -> None:
        """Do that then."""
        heappush(self._heap, (when, next(self._numbers), call))

    @property
    def next(self) -> float | None:
        """When the next of them is due; None = nothing is to come."""
        return self._heap[0][0] if self._heap else None

    def do_next(self) -> None:
        """Do what is due first."""
        heappop(self._heap)[2]()


class Line:
    """The line between a member and its brokers. Requests arrive in the order in which they were sent.

    `hears`: requests arrive. `speaks`: answers arrive. `delay_s`: how long either takes. `twice_s`: a commit arrives
    once more, so much later.
    """

    __slots__ = ("arrived", "delay_s", "hears", "speaks", "twice_s")

    def __init__(self) -> None:
        self.hears = self.speaks = True
        self.delay_s = 0.0
        self.twice_s: float | None = None
        #: Nothing that is sent arrives before that.
        self.arrived = 0.0

    def wait_for_answer(self, what: str, runtime: Runtime, deadline: Deadline) -> None:
        """Wait while a question and its answer are on their way. Raises SourceUnavailable: none until the deadline."""
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
        """Make the line as good as it was."""
        self.hears = self.speaks = True
        self.delay_s, self.twice_s = 0.0, None
