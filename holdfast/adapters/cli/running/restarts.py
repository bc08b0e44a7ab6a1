"""Restarts: when a process that has ended is started again, and when that is given up. Pure."""

from __future__ import annotations

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
#: Who has run for so long was well: its end begins a new row.
WELL_S = 60.0
#: So many in a row, then it is given up.
DEFAULT_LIMIT = 5


class Restarts:
    """Restarts of one process.

    Args:
        limit: so many restarts in a row; 0: none.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        #: Ends in a row.
        self.ends = 0
        #: When the first of them was, in milliseconds since 1970.
        self.since_ms = 0

    def after(self, lived_s: float, now_ms: int) -> float | None:
        """A process has ended that nobody has asked to. Returns: seconds until the next start; None = no more.

        Args:
            lived_s: how long it ran.
            now_ms: milliseconds since 1970.
        """
        if lived_s >= WELL_S:
            self.ends = 0
        if self.ends == 0:
            self.since_ms = now_ms
        self.ends += 1
        if self.ends > self._limit:
            return None
        return float(min(FIRST_WAIT_S * 2 ** min(self.ends - 1, 10), LONGEST_WAIT_S))
