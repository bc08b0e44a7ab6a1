"""Folding: what a client says again and again is told once, and then now and then."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.timing import Clock

#: How often a thing is told that goes on.
EVERY_S: Final = 30.0
#: Of so many things it is remembered when they were told; who can name more (hosts, topics) is told more often.
_KINDS: Final = 256
#: What differs between two lines of one kind: how long something took. Another partition, or broker, is another kind.
_TIMES = re.compile(r"\b\d+(?:\.\d+)?(?= ?m?s\b)")


class Folding:
    """Lines of one client, or of one app. Any thread.

    Args:
        clock: by which the time goes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        #: By kind: when it was told, and how often it came since.
        self._told: dict[str, tuple[float, int]] = {}

    def says(self, text: str) -> str | None:
        """The line to tell now; None = its kind was told just now. Lines that differ by times alone are of a kind."""
        kind, now = _TIMES.sub("#", text), self._clock.now()
        with self._lock:
            told_at, more = self._told.pop(kind, (now - EVERY_S, 0))
            due = now - told_at >= EVERY_S
            if len(self._told) >= _KINDS:
                del self._told[next(iter(self._told))]
            self._told[kind] = (now, 0) if due else (told_at, more + 1)
        if not due:
            return None
        return f"{text} ({more} more like this since the last such line)" if more else text


#: Lines of one kind within `EVERY_S`, before the rest is counted.
LINES: Final = 200


class Rated:
    """Lines about single records: so many of each kind in a while, and how many more there were. One thread.

    Args:
        clock: by which the time goes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By kind: when the while began, and how many came in it.
        self._came: dict[str, tuple[float, int]] = {}

    def has_room(self, kind: str) -> bool:
        """Note one more. False = it is counted, and not told."""
        since, count = self._came.get(kind, (self._clock.now(), 0))
        self._came[kind] = since, count + 1
        return count < LINES

    def over(self, *, all_of_them: bool = False) -> list[tuple[str, int]]:
        """The kinds whose while is over, and how many lines of it were left out; `all_of_them`: there are no more."""
        now = self._clock.now()
        ended = [kind for kind, (since, _) in self._came.items() if all_of_them or now - since >= EVERY_S]
        counts = [(kind, self._came.pop(kind)[1] - LINES) for kind in ended]
        return [(kind, more) for kind, more in counts if more > 0]
