"""Folding: logs a repeated line of a client once, and then from time to time with a count."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.timing import Clock

#: The time between two log lines of one kind.
EVERY_S: Final = 30.0
#: How many kinds of lines are remembered. With more (hosts, topics), lines are logged more often.
_KINDS: Final = 256
#: Durations, which may differ between two lines of one kind. A line with another partition or broker is another kind.
_TIMES = re.compile(r"\b\d+(?:\.\d+)?(?= ?m?s\b)")


class Folding:
    """Folds the lines of one client, or of one app. Any thread.

    Args:
        clock: measures the time between lines.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        #: Kind -> (time of the last logged line, number of lines since).
        self._logged: dict[str, tuple[float, int]] = {}

    def says(self, text: str) -> str | None:
        """The line to log now; None: a line of its kind was logged less than `EVERY_S` ago. Lines that differ only in
        durations are of one kind."""
        kind, now = _TIMES.sub("#", text), self._clock.now()
        with self._lock:
            logged_at, more = self._logged.pop(kind, (now - EVERY_S, 0))
            due = now - logged_at >= EVERY_S
            if len(self._logged) >= _KINDS:
                del self._logged[next(iter(self._logged))]
            self._logged[kind] = (now, 0) if due else (logged_at, more + 1)
        if not due:
            return None
        return f"{text} ({more} more like this since the last such line)" if more else text


#: Lines of one kind within `EVERY_S`, before the rest is counted.
LINES: Final = 200


class LineLimit:
    """Limits lines about single records: at most `LINES` of each kind in `EVERY_S`, and a count of the others. One
    thread.

    Args:
        clock: measures the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Kind -> (begin of the current interval, number of lines in it).
        self._counted: dict[str, tuple[float, int]] = {}

    def has_room(self, kind: str) -> bool:
        """Count one more line. Returns False: do not log it."""
        since, count = self._counted.get(kind, (self._clock.now(), 0))
        self._counted[kind] = since, count + 1
        return count < LINES

    def over(self, *, all_of_them: bool = False) -> list[tuple[str, int]]:
        """The kinds whose interval is over, and the number of lines that were left out. `all_of_them`: end all
        intervals."""
        now = self._clock.now()
        ended = [kind for kind, (since, _) in self._counted.items() if all_of_them or now - since >= EVERY_S]
        counts = [(kind, self._counted.pop(kind)[1] - LINES) for kind in ended]
        return [(kind, more) for kind, more in counts if more > 0]
