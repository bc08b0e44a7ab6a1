"""Settling: finishes a handled record at the store (its key), then settles it with its source (mark, or ack)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Verdict
from holdfast.errors import StoreError
from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Claim, ClaimSession, Turned
    from holdfast.plugin.engine.record.claiming import Claiming
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.host import Marking
    from holdfast.plugin.engine.record.unacked import Unacked


class Settling:
    """Entries between the end of their handler and the store's acknowledgement. One thread.

    `finish` first, then `mark`: the other way round, a crash between the two would leave a record that is done by its
    position and not by its key, and the producer's next copy of it would run. So what a turn marks was finished by an
    earlier one.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[Entry]], None],
        marking: Callable[[Sequence[Entry]], Sequence[Marking] | None],
        claiming: Claiming,
        unacked: Unacked,
        again: Callable[[Entry], None],
    ) -> None:
        """Args:
        settle: the source's way, raises StoreUnavailable.
        marking: what `settle` says to the store; None: the source has another way.
        again: what to do with one that was taken over.
        """
        self._settle, self._marking = settle, marking
        self._claiming, self._unacked, self._again = claiming, unacked, again
        self._finishing: list[Entry] = []
        self._settling: list[Entry] = []
        #: Duplicates by their key, since the start.
        self.skipped = 0
        #: Records that have ended and are not acknowledged.
        self.waiting = 0

    def ended(self, entry: Entry) -> None:
        """A handler ended well, or its dead letter is acknowledged."""
        waiting = self._finishing if entry.held else self._settling
        if not waiting or waiting[-1] is not entry:  # else the call was torn right here, and is made again
            waiting.append(entry)
        self.waiting += entry.count
        entry.state = EntryState.ENDED  # last: who sees it so knows that it waits here

    def skip(self, entry: Entry) -> None:
        """A duplicate: nothing ran, but its position is to be settled."""
        self.skipped += 1
        entry.state = EntryState.ENDED
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
                batch = self._of_one_session(_first(self._finishing, at_most))
                self.finished(batch, batch[0].owner.session_.finish(_claims(batch)))
            if batch := _first(self._settling, at_most):
                self._settle(batch)
                self.settled(batch)

    def turn(self, session: ClaimSession, at_most: int) -> StoreExchange | None:
        """Gather what goes to the store in one round trip: keys of what has ended, positions of what has its key
        finished. None: not all of it is that session's, or the source is told of it without the store."""
        finishing, settling = _first(self._finishing, at_most), _first(self._settling, at_most)
        marking = self._marking(settling)
        if marking is None or any(each.session is not session for each in marking):
            return None
        if any(entry.owner.session_ is not session for entry in finishing):
            return None
        whole = len(finishing) == len(self._finishing) and len(settling) == len(self._settling)
        return StoreExchange(self, session, finishing, settling, marking, whole=whole)

    def finished(self, batch: Sequence[Entry], verdicts: Sequence[Verdict]) -> None:
        """The store has answered for their keys. Who is done by its key is not repeated by a crash any more."""
        done = set(map(id, batch))
        self._finishing = [entry for entry in self._finishing if id(entry) not in done]
        for entry, verdict in self._claiming.each(batch, verdicts, Verdict.DONE):
            entry.held = False
            self._claiming.free(entry)
            self._unacked.leave(entry)
            if verdict is Verdict.FENCED:
                self.waiting -= 1
                self._again(entry)  # somebody took the key over: our result does not count
            else:
                self._settling.append(entry)

    def settled(self, batch: Sequence[Entry]) -> None:
        """Count these out, the first that waited: their source has taken note of them."""
        del self._settling[: len(batch)]
        for entry in batch:
            self.waiting -= entry.count
            self._unacked.leave(entry)

    def _of_one_session(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        session = entries[0].owner.session_
        return [entry for entry in entries if entry.owner.session_ is session]


class StoreExchange:
    """One round trip to the store: what has ended, and what is asked for. One thread, one after the other."""

    def __init__(
        self,
        settling: Settling,
        session: ClaimSession,
        finishing: Sequence[Entry],
        settled: Sequence[Entry],
        marking: Sequence[Marking],
        *,
        whole: bool,
    ) -> None:
        #: True if nothing remains queued.
        self.whole = whole
        self._settling, self._session = settling, session
        self._finishing, self._settled, self._marking = finishing, settled, marking
        self._replies: Turned | None = None

    def ask(self, claims: Sequence[Claim]) -> Sequence[Verdict]:
        """Ask for keys, and say the rest. Raises StoreUnavailable: no answer, or none for the keys."""
        marks = [mark for each in self._marking for mark in each.marks]
        self._replies = replies = self._session.turn(_claims(self._finishing), marks, claims)
        if isinstance(replies.claimed, StoreError):
            raise replies.claimed
        return replies.claimed

    def end(self) -> None:
        """Go by the other answers; without any, all of it is asked again. Raises StoreUnavailable, as `ask`."""
        if self._replies is None:
            return
        finished, fenced, _ = self._replies
        if not isinstance(fenced, StoreError):
            for each in self._marking:  # one at most: all are of one session
                each.on_marked(fenced)
            self._settling.settled(self._settled)
        if not isinstance(finished, StoreError):
            self._settling.finished(self._finishing, finished)
        for reply in (finished, fenced):
            if isinstance(reply, StoreError):
                raise reply


def _claims(entries: Sequence[Entry]) -> list[Claim]:
    return [claim for entry in entries for claim in entry.asked_for]


def _first(entries: Sequence[Entry], at_most: int) -> Sequence[Entry]:
    """The first of them with so many records together, at least one."""
    count = 0
    for number, entry in enumerate(entries):
        count += entry.count
        if number and count > at_most:
            return entries[:number]
    return list(entries)
