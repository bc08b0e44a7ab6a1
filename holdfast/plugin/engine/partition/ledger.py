"""Ledger: tracks the offsets in flight of one partition under one ownership; computes the watermark. Pure.

The end of a partition (`enable.partition.eof`) tells the ledger about transaction markers at the log's end.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from holdfast.dedup.offset_set import OffsetSet
from holdfast.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Ledger:
    """Which offsets are done, and below which all are.

    Offsets come in ascending order (`polled`), end in any order (`settle`). An offset that the log leaves out
    (compaction, transaction markers) counts as done as soon as a later one has come.

    What is open is kept as ranges without gaps, so that a thousand records that come and end together cost one step.

    A signal handler may raise between any two lines (see `driven.py`), and the ledger is asked afterwards what to mark
    and commit: so each change is one statement, and never says that something is done which is not.
    """

    __slots__ = ("_done", "_next", "_starts", "_stops", "first")

    def __init__(self, start: int, done: Collection[int] = ()) -> None:
        """Args: start: the first offset to come; done: offsets from `start` on that are done. The ledger takes an
        OffsetSet over and changes it."""
        #: The first offset to come.
        self.first = self._next = start
        #: Known from the store, not polled yet.
        self._done = done if isinstance(done, OffsetSet) else OffsetSet(done)
        # Polled and not settled: range number i goes from _starts[i] up to, without, _stops[i]. Ascending.
        self._starts: list[int] = []
        self._stops: list[int] = []

    @property
    def next(self) -> int:
        """The offset expected next from the source."""
        return self._next

    @property
    def watermark(self) -> int:
        """All offsets below are done."""
        return self._starts[0] if self._starts else self._next

    def polled(self, offset: int) -> bool:
        """Note a record that came. True = it is open now, False = it is done already: skip it.

        Raises StateError for an offset below `next`: the caller has to look at that first.
        """
        if offset in self._done and offset >= self._next:
            self._next = offset + 1
            self._done.remove_below(offset + 1)
            return False
        self.polled_all(range(offset, offset + 1))
        return True

    def polled_all(self, offsets: range) -> bool:
        """Note records that came together. False = some of them are done: nothing is noted, ask `polled` one by one.

        Raises StateError as `polled` does.
        """
        if offsets.start < self._next:
            raise StateError(f"offset {offsets.start} came after {self._next - 1}")
        if self._done and self._done.has_any(offsets):
            return False
        starts, stops = self._starts, self._stops
        if stops and stops[-1] == offsets.start:
            stops[-1] = self._next = offsets.stop
        else:
            at = len(starts)
            starts[at:], stops[at:], self._next = (offsets.start,), (offsets.stop,), offsets.stop
        return True

    def unknown(self, at: int, until: int) -> list[range]:
        """List offsets of a gap that are not known as done; ascending."""
        return self._done.gaps(range(at, until))

    def reached(self, offset: int) -> None:
        """The source has read up to `offset`: what it did not deliver below is no record."""
        self._next = max(self._next, offset)
        self._done.remove_below(self._next)

    def read_on(self, offset: int) -> Ledger:
        """The ledger of a reader that goes on from there, not below the watermark: what is open below stays open, also
        what lies between where it stood and where it goes. Nothing is known from there on."""
        other = Ledger(self.watermark)
        for each in self.open_below(offset):
            other.polled_all(each)
        other.reached(offset)
        return other

    def open_below(self, offset: int) -> list[range]:
        """List what is not done below that offset, whether or not it has come; ascending."""
        came = [range(at, min(stop, offset)) for at, stop in zip(self._starts, self._stops, strict=True) if at < offset]
        return [*came, *self.unknown(self._next, offset)]

    def knows_any_from(self, offset: int) -> bool:
        """Whether anything at or above that offset is done."""
        came = [range(max(at, offset), stop) for at, stop in zip(self._starts, self._stops, strict=True)]
        return sum(map(len, came)) < self._next - offset or self._done.end > offset

    def knows(self, offset: int) -> None:
        """An offset that may not have come yet is done (another's handler has ended)."""
        if offset >= self._next:
            self._done.add(offset)
        else:
            self.settle(offset)

    def settle(self, offset: int) -> None:
        """An open offset is done. Idempotent."""
        self.settle_all(range(offset, offset + 1))

    def settle_all(self, offsets: range) -> None:
        """All open offsets of that range are done. Idempotent."""
        starts, stops = self._starts, self._stops
        first = max(bisect_right(starts, offsets.start) - 1, 0)
        last = first
        left: list[tuple[int, int]] = []
        while last < len(starts) and starts[last] < offsets.stop:
            start, stop = starts[last], stops[last]
            below, above = (start, min(stop, offsets.start)), (max(start, offsets.stop), stop)
            left += [part for part in (below, above) if part[0] < part[1]]
            last += 1
        left_starts, left_stops = [part[0] for part in left], [part[1] for part in left]
        starts[first:last], stops[first:last] = left_starts, left_stops

    def watermark_with(self, ranges: Sequence[range]) -> int:
        """The watermark as it would be with these settled as well; ascending, as `joined` gives them."""
        number = 0
        for start, stop in zip(self._starts, self._stops, strict=True):
            at = start
            while at < stop:
                while number < len(ranges) and ranges[number].stop <= at:
                    number += 1
                if number == len(ranges) or ranges[number].start > at:
                    return at
                at = ranges[number].stop
        return self._next
