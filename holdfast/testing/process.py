"""Process: one operating system process of a simulated world."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.testing.simulated import SimulatedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.tasks import Scheduling, Task


class Process:
    """Threads that share a clock and end together. Made by `Scheduler.process`, which documents the arguments."""

    def __init__(
        self, scheduler: Scheduling, name: str, *, clock_offset_s: float, clock_rate: float, preempted: bool
    ) -> None:
        self.name = name
        self.number = scheduler.number()
        self.clock_offset_s = clock_offset_s
        self.clock_rate = clock_rate
        #: Whether other tasks may run where it reads its clock or takes a lock.
        self.preempted = preempted
        self.alive = True
        self.stalled_until = -math.inf
        self._scheduler = scheduler
        #: Clock, threads, locks and chance of this process.
        self.runtime = SimulatedRuntime(scheduler, self)

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        """Start a thread."""
        return self._scheduler.spawn(self, target, name)

    def crash(self) -> None:
        """End the process at once, as SIGKILL does: none of its tasks ever goes on. A process that is done ends in the
        same way, since its threads are daemons. Does not return to a task of its own."""
        self.alive = False
        self._let_go()

    def stall(self, seconds: float) -> None:
        """Freeze the process for so many seconds of the world, unnoticed by itself, as SIGSTOP or a suspended machine
        does."""
        self.stalled_until = max(self.stalled_until, self._scheduler.now + seconds)
        self._let_go()

    def real_s(self, seconds: float | None) -> float | None:
        """Seconds of its clock as seconds of the world, at least 0."""
        return None if seconds is None else max(0.0, seconds) / self.clock_rate

    def _let_go(self) -> None:
        current = self._scheduler.current
        if current is not None and current.process is self and not self._scheduler.over:
            self._scheduler.wait(0.0)

    def __repr__(self) -> str:
        return f"Process({self.name})"
