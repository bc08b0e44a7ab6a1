"""Told: a trouble that goes on as long as its cause, and is told after a while, and then now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.records import Partition

#: The same is told that often.
_AGAIN_S = 60.0
#: What was not met again for so long is over.
_OVER_S = 10.0


class Told:
    """One thread at a time.

    Args:
        after_s: for how long it is borne in silence.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        #: By queue: when it was met last, and when it is to be told.
        self._met: dict[Partition, tuple[float, float]] = {}

    def due(self, queue: Partition) -> bool:
        """Note that it was met again; whether to tell of it now."""
        now = SYSTEM_CLOCK.now()
        last, tell_at = self._met.get(queue, (now, now + self._after_s))
        if now - last > _OVER_S:
            tell_at = now + self._after_s
        due = now >= tell_at
        self._met[queue] = now, (now + _AGAIN_S if due else tell_at)
        return due

    def forget(self, queues: Iterable[Partition]) -> None:
        """Forget queues that are not read any more."""
        for queue in queues:
            self._met.pop(queue, None)
