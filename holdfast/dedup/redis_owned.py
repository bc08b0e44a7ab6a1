"""Positions as the session that owns them knows them: all that is done there, and the last drop. They are sent again
when a failover has lost them at the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.claims import NEVER, Mark, Standing
from holdfast.dedup.offset_set import OffsetSet, runs
from holdfast.dedup.redis_long import leaps

if TYPE_CHECKING:
    from holdfast.dedup.claims import Acquired, Drop, LetGo, Since


class Ended(NamedTuple):
    """The end of an ownership, and all that is done in it."""

    let: LetGo
    known: Standing | None


class Dropping(NamedTuple):
    """A drop that is about to be sent."""

    drop: Drop
    since: Since
    seen: int  #: the end of the offsets that are known as done or running; 0 = not known


class Owned:
    """The marks of one ownership, and those that its acquire has returned: a watermark, and what is done above it.

    Args:
        epoch: of the ownership.
        found: the reply to its acquire.
    """

    __slots__ = ("_above", "_again", "_ran", "_watermark", "epoch", "since")

    def __init__(self, epoch: int, found: Acquired | None = None) -> None:
        self.epoch = epoch
        self._watermark, self._above, self._ran = 0, OffsetSet(), 0
        self._again, self.since = 0, NEVER
        if found:
            self._watermark, self._above = found.watermark, OffsetSet(found.done)
            self._ran = max(found.running, default=-1) + 1
            self._again, self.since = found.again, found.since

    @classmethod
    def dropped(cls, drop: Drop, since: Since, again: int) -> Owned:
        """An ownership after a drop: what was known before is forgotten on purpose."""
        made = cls(drop.epoch)
        made._watermark, made._again, made.since = drop.offset, again, since
        return made

    def add(self, mark: Mark) -> int:
        """Note one more. Returns how often its watermark has to be sent again (see `leaps`)."""
        more = 0
        if mark.watermark > self._watermark:
            if self._above:
                more = leaps(self._above.remove_below(mark.watermark), self._watermark, mark.watermark)
            self._watermark = mark.watermark
        ranges = runs(mark.offsets)
        if ranges and ranges[-1].stop > self._watermark:
            self._above.add_all(ranges, at_least=self._watermark)
        return more

    @property
    def seen(self) -> int:
        """The end of the offsets that are known as done or running."""
        return max(self._watermark, self._above.end, self._ran)

    def all(self, partition: str) -> Standing:
        """All marks as one."""
        mark = Mark(partition, self.epoch, self._watermark, OffsetSet(self._above))
        return Standing(mark, self.since, self._again)
