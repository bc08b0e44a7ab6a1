"""The ledger of one partition under one ownership: offsets in flight -> watermark. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

from holdfast.errors import StateError


class Ledger:
    """Which offsets are done, and below which all are.

    Offsets come in ascending order (`polled`), end in any order (`settle`). An offset that the log leaves out
    (compaction, transaction markers) counts as done as soon as a later one has come.
    """

    __slots__ = ("_done", "_next", "_open", "_settled")

    def __init__(self, start: int, done: Iterable[int] = ()) -> None:
        """Args: start: the first offset to come; done: offsets from `start` on that are done."""
        self._next = start
        self._done = set(done)  # known from the store, not polled yet
        self._open: deque[int] = deque()  # polled; the first one is not settled
        self._settled: set[int] = set()  # polled and settled, behind an open one

    @property
    def next(self) -> int:
        """The offset expected next from the source."""
        return self._next

    @property
    def watermark(self) -> int:
        """All offsets below are done."""
        return self._open[0] if self._open else self._next

    def polled(self, offset: int) -> bool:
        """Note a record that came. True = it is open now, False = it is done already: skip it.

        Raises StateError for an offset below `next`: the caller has to look at that first.
        """
        if offset < self._next:
            raise StateError(f"offset {offset} came after {self._next - 1}")
        self._next = offset + 1
        if offset in self._done:
            self._done.discard(offset)
            return False
        self._open.append(offset)
        return True

    def reached(self, offset: int) -> None:
        """The source has read up to `offset`: what it did not deliver below is no record."""
        self._next = max(self._next, offset)

    def knows(self, offset: int) -> None:
        """An offset that may not have come yet is done (another's handler has ended)."""
        if offset >= self._next:
            self._done.add(offset)
        else:
            self.settle(offset)

    def settle(self, offset: int) -> None:
        """An open offset is done. Idempotent."""
        if not self._open or offset < self._open[0]:
            return
        self._settled.add(offset)
        while self._open and self._open[0] in self._settled:
            self._settled.discard(self._open.popleft())

    def watermark_with(self, offsets: Collection[int]) -> int:
        """The watermark as it would be with these settled as well."""
        for offset in self._open:
            if offset not in self._settled and offset not in offsets:
                return offset
        return self._next
