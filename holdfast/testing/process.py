"""Process: one operating system process of a simulated world."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.testing.simulated import SimulatedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.tasks import Scheduling, Task


class Process:
    """Threads that share a clock, and end together. Made by `Scheduler.process`, which has the arguments."""

    def __init__(
        self, scheduler: Scheduling, name: str, *, clock_offset_s: float, clock_rate: float, preempted: bool
    ) -> None:
        self.name = name
        self.number = scheduler.number()
        self.clock_offset_s = clock_offset_s
        self.clock_rate = clock_rate
        #: Whether others may go first where it looks at its clock or takes a lock.
        self.preempted = preempted
        self.alive = True
        self.stalled_until = -math.inf
        self._scheduler = scheduler
        #: The machine, as this process sees it.
        self.runtime = SimulatedRuntime(scheduler, self)

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        """Start a thread."""
        return self._scheduler.spawn(self, target, name)

    def crash(self) -> None:
        """The end, without a word: none of its tasks ever goes on. It ends in the same way when it is done, as its
        threads are daemons. Does not return to a task of its own."""
        self.alive = False
        self._let_go()

    def stall(self, seconds: float) -> None:
        """Let the process stand still for so many of the world's seconds. It knows nothing of it: SIGSTOP, a suspended
        machine."""
        self.stalled_until = max(self.stalled_until, self._scheduler.now + seconds)
        self._let_go()

    def real_s(self, seconds: float | None) -> float | None:
        """How long so many of its seconds are in the world; none are negative."""
        return None if seconds is None else max(0.0, seconds) / self.clock_rate

    def _let_go(self) -> None:
        current = self._scheduler.current
        if current is not None and current.process is self and not self._scheduler.over:
            self._scheduler.wait(0.0)

    def __repr__(self) -> str:
        return f"Process({self.name})"
