"""A clock that a test sets."""

from __future__ import annotations


class HandClock:
    """Seconds that pass when a test says so. Any thread."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """The time that has passed until now."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass, at once."""
        self._now += seconds
