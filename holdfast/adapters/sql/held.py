"""Held: what this process owns in the database, as it knows it; and from whom it may not take a position back yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.sql.changes import Change
from holdfast.dedup.offset_set import OffsetSet, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from holdfast.adapters.sql.rows import Position, Row
    from holdfast.dedup.claims import Mark


class Content(NamedTuple):
    """One row, as the database has acknowledged it."""

    version: int
    watermark: int
    done: OffsetSet


def lost_by(known: Mapping[int, Content], position: Position) -> bool:
    """Whether the rows lack what the database had acknowledged. Args: known: before they were read."""
    found = {row.stripe: row.version for row in position.rows}
    return any(found.get(stripe, -1) < content.version for stripe, content in known.items())


class Held:
    """One ownership: its owner's name in the rows, and their content as of the last answer. Under `Books.lock`.

    Marks of the loop are in the first row. Each transaction of a handler that is open has a further one for itself, a
    stripe: it holds that row's lock from its first statement to its end, and waits for no other. So there are as many
    stripes as such transactions were open at the same time.
    """

    __slots__ = ("_idle", "_next", "begun", "done", "epoch", "owner", "rows", "unsure", "watermark")

    def __init__(self, owner: UUID, epoch: int, position: Position) -> None:
        self.owner, self.epoch = owner, epoch
        self.rows: dict[int, Content] = {}
        #: Stripes that no transaction has, the one that was used last at the end.
        self._idle = [row.stripe for row in reversed(position.rows) if row.stripe]
        self._next = max(row.stripe for row in position.rows) + 1
        #: Offsets of transactions whose COMMIT was not answered, by their stripe, which no other gets meanwhile.
        self.unsure: dict[int, frozenset[int]] = {}
        self.reset(position)

    def has(self, offset: int) -> bool:
        """Whether that is done."""
        return offset < self.watermark or offset in self.done

    def open_of(self, mark: Mark) -> frozenset[int]:
        """The offsets of a mark that are not done."""
        if mark.epoch == self.epoch:
            return frozenset()
        return frozenset(offset for offset in mark.offsets if not self.has(offset))

    def with_mark(self, mark: Mark) -> Change | None:
        """The first row after that mark; None = it changes nothing."""
        done = [each for run in runs(mark.offsets) for each in self._gaps(run)]
        if self.begun and not done and mark.watermark <= self.watermark:
            return None
        return self._change(0, done, mark.watermark)

    def with_open(self, stripe: int, offsets: Sequence[int]) -> Change:
        """A stripe after a transaction in which these are handled."""
        return self._change(stripe, runs(offsets), 0)

    def marked(self, change: Change) -> None:
        """The database has acknowledged that change."""
        self.rows[change.stripe] = Content(change.version + 1, change.watermark, change.done)
        self.begun = True
        self._add(change.offsets, change.watermark)

    def reset(self, position: Position) -> None:
        """Hold what the rows have, and nothing else."""
        self.begun = any(row.begun for row in position.rows)
        self.rows = {row.stripe: Content(row.version, row.watermark, row.above) for row in position.rows}
        self.watermark, self.done = position.watermark, position.done

    def learn(self, position: Position) -> None:
        """Take over what the rows have besides: changes of ours whose answer was lost."""
        self.begun = self.begun or any(row.begun for row in position.rows)
        for row in position.rows:
            known = self.rows.get(row.stripe)
            if known is None or known.version < row.version:
                self.rows[row.stripe] = Content(row.version, row.watermark, row.above)
        self._add(list(position.done.runs()), position.watermark)

    # ---- stripes
    def take_stripe(self) -> int:
        """Take one for a transaction: the one that was used last, or the number of one that is to be made."""
        if self._idle:
            return self._idle.pop()
        self._next += 1
        return self._next - 1

    def made(self, stripe: int) -> None:
        """That row is there now."""
        self.rows.setdefault(stripe, Content(0, 0, OffsetSet()))

    def give_stripe(self, stripe: int, *, cut: bool = False) -> None:
        """Give one back whose transaction has ended, in a known way.

        Args:
            stripe: which one.
            cut: its connection broke, so that the server may hold the row for a while: others are used before.
        """
        self.unsure.pop(stripe, None)
        if stripe and stripe in self.rows:
            self._idle.insert(0 if cut else len(self._idle), stripe)

    def unsure_of(self, offsets: Iterable[int]) -> list[int]:
        """The stripes in which one of these may be done."""
        return [stripe for stripe, each in self.unsure.items() if not each.isdisjoint(offsets)] if self.unsure else []

    def _add(self, offsets: Sequence[range], watermark: int) -> None:
        watermark = max(self.watermark, watermark)
        self.done.add_all(offsets, at_least=watermark)
        self.watermark = self.done.first_missing(watermark)
        self.done.remove_below(self.watermark)

    def _gaps(self, run: range) -> list[range]:
        first = max(run.start, self.watermark)
        return self.done.gaps(range(first, run.stop)) if first < run.stop else []

    def _change(self, stripe: int, offsets: Sequence[range], watermark: int) -> Change:
        before, watermark = self.rows[stripe], max(self.watermark, watermark)
        done = OffsetSet(before.done)
        done.add_all(offsets, at_least=watermark)
        done.remove_below(watermark)
        others = [(each, content.version) for each, content in self.rows.items() if each != stripe]
        return Change(stripe, before.version, watermark, done, offsets, others)


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
