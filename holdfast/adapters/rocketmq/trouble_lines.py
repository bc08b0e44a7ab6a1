"""TroubleLines: limits the log lines about a lasting trouble: the first after a while, then one a minute."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

Place = TypeVar("Place", bound=Hashable)

#: The time between two log lines about the same place.
_AGAIN_S = 60.0
#: A trouble that was not met for this long is over.
_OVER_S = 10.0


class TroubleLines(Generic[Place]):
    """The log lines about one kind of trouble, by its place: a queue, or a topic at a broker. One thread at a time.

    Args:
        after_s: how long the trouble must last before the first line.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        #: Place -> (when the trouble was met last, when the next line is due).
        self._met: dict[Place, tuple[float, float]] = {}

    def due(self, place: Place) -> bool:
        """Note that the trouble was met, now. Returns whether to log it."""
        now = SYSTEM_CLOCK.now()
        last, tell_at = self._met.get(place, (now, now + self._after_s))
        if now - last > _OVER_S:
            tell_at = now + self._after_s
        due = now >= tell_at
        self._met[place] = now, (now + _AGAIN_S if due else tell_at)
        return due

    def forget(self, places: Iterable[Place]) -> None:
        """Forget queues that are not read any more."""
        for place in places:
            self._met.pop(place, None)
