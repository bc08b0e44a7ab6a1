"""Clock and Deadline: the only place of the library that reads a clock or sleeps."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

# CLOCK_BOOTTIME goes on while the machine is suspended, CLOCK_MONOTONIC does not (man 2 clock_gettime).
# A lease in the store runs out during a suspension, so the clock that judges it has to see that time.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """Seconds that never go backwards. Any thread."""

    def now(self) -> float:
        """Seconds since some fixed point."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""
        ...


class SystemClock:
    """The machine's clock; it counts time in which the machine was suspended, where the system can tell."""

    def __init__(self) -> None:
        # Asked before each start of a handler: no function of our own around it.
        self.now = time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()


def wall_ms() -> int:
    """Milliseconds since 1970, for people and for headers; never for a decision."""
    return time.time_ns() // 1_000_000


class Deadline:
    """One budget that is handed down through all steps of a piece of work, instead of a timeout for each."""

    __slots__ = ("_clock", "_end", "budget_s")

    def __init__(self, budget_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._end = clock.now() + budget_s
        self.budget_s = budget_s

    def left_s(self, at_most: float | None = None) -> float:
        """Seconds left, never negative; no more than `at_most`, where that is given."""
        left = max(0.0, self._end - self._clock.now())
        return left if at_most is None else min(left, at_most)

    @property
    def passed(self) -> bool:
        """Whether the budget is used up."""
        return self._clock.now() >= self._end

    def __repr__(self) -> str:
        return f"Deadline({self.left_s():.3f} s of {self.budget_s} s left)"
