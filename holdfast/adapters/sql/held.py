"""Held: what this process owns in the database, as it knows it; and from whom it may not take a position back yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.offset_set import OffsetSet, runs

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.adapters.sql.rows import Position, Row
    from holdfast.dedup.claims import Mark


class Known(NamedTuple):
    """A position's content after a change."""

    watermark: int
    done: OffsetSet


class Held:
    """One ownership: its owner's name in the row, and the content of the row as of the last answer."""

    __slots__ = ("begun", "epoch", "known", "owner", "version")
    begun: bool
    version: int
    known: Known

    def __init__(self, owner: UUID, epoch: int, position: Position) -> None:
        self.owner, self.epoch = owner, epoch
        self.learn(position)

    def with_mark(self, mark: Mark) -> Known | None:
        """The content after that mark; None = it changes nothing."""
        before = self.known
        watermark = max(before.watermark, mark.watermark)
        done = OffsetSet(before.done)
        done.add_all(runs(mark.offsets), at_least=watermark)
        done.remove_below(watermark)
        after = Known(watermark, done)
        return None if self.begun and after == before else after

    def has(self, offset: int) -> bool:
        """Whether that is done."""
        return offset < self.known.watermark or offset in self.known.done

    def open_of(self, mark: Mark) -> frozenset[int]:
        """The offsets of a mark that are not done."""
        if mark.epoch == self.epoch:
            return frozenset()
        return frozenset(offset for offset in mark.offsets if not self.has(offset))

    def marked(self, after: Known) -> None:
        """The database has acknowledged that change."""
        self.begun, self.version, self.known = True, self.version + 1, after

    def learn(self, position: Position) -> None:
        """Take over what the row has: at first, and for a change of ours whose answer was lost."""
        self.begun = any(row.begun for row in position.rows)
        self.version = position.first.version
        self.known = Known(position.watermark, position.done)


class _Taker(NamedTuple):
    """Another process has taken a position from this one."""

    epoch: int  #: of our ownership
    version: int  #: as last seen
    since: float  #: when it was seen first with that version


class Takers:
    """Positions that others have taken from this process: a process that was frozen must not take them back.

    It learns by a refused mark that it was taken for dead, and often before its broker tells it so. Taken back at once,
    the position would go to and fro, and each time the records in hand would run again. So it waits: until the other
    has let the position go, or has changed nothing there for a lease.
    """

    def __init__(self) -> None:
        self._taken: dict[str, _Taker] = {}

    def note(self, name: str, epoch: int, row: Row, now: float) -> None:
        """A mark or a drop of ours was refused. Args: epoch: of our ownership. row: as it is now."""
        if row.epoch > epoch:
            self._taken[name] = _Taker(epoch, row.version, now)

    def wait(self, row: Row, now: float, lease_s: float) -> bool:
        """Whether the position is to be left to its owner."""
        taker = self._taken.get(row.name)
        if taker is None:
            return False
        if row.version != taker.version:
            taker = self._taken[row.name] = taker._replace(version=row.version, since=now)
        # A lower epoch: the database has lost the taking.
        if row.free or row.epoch <= taker.epoch or now - taker.since >= lease_s:
            del self._taken[row.name]
            return False
        return True
