"""Settling: finishes a handled record at the store (its key), then settles it with its source (mark, or ack)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Verdict
from holdfast.plugin.engine.record.entry import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.plugin.engine.record.claiming import Claiming
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.unacked import Unacked


class Settling:
    """Entries between the end of their handler and the store's acknowledgement. One thread.

    `finish` first, then `mark`: the other way round, a crash between the two would leave a record that is done by its
    position and not by its key, and the producer's next copy of it would run.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[Entry]], None],
        claiming: Claiming,
        unacked: Unacked,
        again: Callable[[Entry], None],
    ) -> None:
        """Args: settle: the source's way, raises StoreUnavailable; again: what to do with one that was taken over."""
        self._settle, self._claiming, self._unacked, self._again = settle, claiming, unacked, again
        self._finishing: list[Entry] = []
        self._settling: list[Entry] = []
        #: Duplicates by their key, since the start.
        self.skipped = 0
        #: Records that have ended and are not acknowledged.
        self.waiting = 0

    def ended(self, entry: Entry) -> None:
        """A handler ended well, or its dead letter is acknowledged."""
        entry.gate = Gate.ENDED
        self.waiting += entry.count
        (self._finishing if entry.held else self._settling).append(entry)

    def skip(self, entry: Entry) -> None:
        """A duplicate: nothing ran, but its position is to be settled."""
        self.skipped += 1
        entry.gate = Gate.ENDED
        self.waiting += 1
        self._settling.append(entry)

    def recount(self) -> Sequence[Entry]:
        """The entries that wait here; counted anew, since a call that was torn may have counted wrong."""
        waiting = [*self._finishing, *self._settling]
        self.waiting = sum(entry.count for entry in waiting)
        return waiting

    def step(self, at_most: int) -> None:
        """Finish and settle. Raises StoreUnavailable: what is not acknowledged is asked again in a later step."""
        while self._finishing or self._settling:
            if self._finishing:
                self._finish(_first(self._finishing, at_most))
            batch = _first(self._settling, at_most)
            if batch:
                self._settle(batch)
                del self._settling[: len(batch)]
                for entry in batch:
                    self.waiting -= entry.count
                    self._unacked.leave(entry)

    def _finish(self, entries: Sequence[Entry]) -> None:
        session: ClaimSession = entries[0].owner.session_
        batch = [entry for entry in entries if entry.owner.session_ is session]
        verdicts = session.finish([claim for entry in batch for claim in entry.asked_for])
        done = set(map(id, batch))
        self._finishing = [entry for entry in self._finishing if id(entry) not in done]
        for entry, verdict in self._claiming.each(batch, verdicts, Verdict.DONE):
            entry.held = False
            self._claiming.free(entry)
            if verdict is Verdict.FENCED:
                self.waiting -= 1
                self._unacked.leave(entry)
                self._again(entry)  # somebody took the key over: our result does not count
            else:
                self._settling.append(entry)


def _first(entries: Sequence[Entry], at_most: int) -> Sequence[Entry]:
    """The first of them with so many records together, at least one."""
    count = 0
    for number, entry in enumerate(entries):
        count += entry.count
        if number and count > at_most:
            return entries[:number]
    return list(entries)
