"""Steps: the work of every loop in a turn, with our workers (`loop.py`) or a user's loop (`own_loop/driven.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Verdict
from holdfast.errors import SourceError, StoreError
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.engine.record.settling import by_owner
from holdfast.plugin.events import SourceTrouble
from holdfast.plugin.ports import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Claim, ClaimSession, Exchanged
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.settling import Done
    from holdfast.plugin.ports import Batch

#: How late a mark may be: a loop waits no longer while something is in the process, and of round trips that only tell
#: what has ended there is one in that time, where there is room. One costs as much as the rest of a record's way, where
#: records come one by one.
LATE_S = 0.005


class StoreExchange:
    """One round trip to the store: keys of what has ended, positions of what has its key finished, keys to ask for."""

    def __init__(
        self,
        session: ClaimSession,
        finishing: Sequence[Entry],
        settling: Sequence[Entry],
        done: Sequence[Done],
        *,
        whole: bool,
    ) -> None:
        self.session = session
        self.finishing, self.settling = finishing, settling
        #: The entries of `settling`, by partition.
        self.done = done
        #: Nothing remains queued.
        self.whole = whole
        #: None: there was no answer.
        self.replies: Exchanged | None = None

    def ask(self, claims: Sequence[Claim]) -> Sequence[Verdict]:
        """Make it, and ask for these keys too. Raises StoreUnavailable: no answer, or none for the keys."""
        marks = [each.owner.mark(each.ranges) for each in self.done]
        self.replies = replies = self.session.exchange(_claims(self.finishing), marks, claims)
        if isinstance(replies.claimed, StoreError):
            raise replies.claimed
        return replies.claimed


class Steps:
    """One thread, the one that runs the app."""

    def __init__(self, parts: Parts, family: Family) -> None:
        #: The last exchange has finished what the next one marks.
        self.more_to_say = False
        #: How long the last round trip of an exchange took.
        self.trip_s = 0.0
        #: When the last exchange was, and since when ended records wait for the next; below 0: none do.
        self._last_at, self._since = -LATE_S, -1.0
        self._parts, self._family = parts, family
        self._admission = Admission(
            family=family,
            routes=parts.routes,
            settings=parts.settings,
            group=parts.group,
            clock=parts.runtime,
            lanes=parts.lanes,
            intake=parts.intake,
            claiming=parts.claiming,
            workers=parts.workers,
            unacked=parts.unacked,
        )

    def ask(self, at_most: int, wait_s: float) -> Batch:
        """One look at the source; trouble that passes is told, and brings nothing."""
        self._parts.intake.asked = at_most
        try:
            return self._family.poll(at_most, wait_s)
        except SourceError as error:
            if not error.retriable:
                raise
            self._parts.tell(SourceTrouble(error=str(error)))
            return NOTHING

    def take_in(self, batch: Batch) -> None:
        """Take in what a poll brought: records first, then how far partitions were read with them."""
        parts, admission = self._parts, self._admission
        parts.meter.polled += len(batch.records)
        admission.note(batch)
        parts.intake.look_behind(parts.lanes)
        batch = parts.intake.sift(batch, stopped=parts.sessions.stalled)
        admission.admit(batch.records)
        self._family.reached(batch.ends)

    def vouch(self) -> None:
        """The loop comes round: its session may be renewed for as long as the broker waits for a member."""
        if (session := self._parts.sessions.session) is not None:
            session.vouch(self._family.patience_s)

    def settle(self) -> None:
        """Finish and mark what has ended, as far as the store (and a leased source) answers."""
        parts = self._parts
        if parts.settling.waiting and parts.outage.may_ask:
            with parts.outage.asking():
                answers = parts.meter.store_calls.answers
                try:
                    self._settle_all(parts.settings.mark_batch)
                    if parts.meter.store_calls.answers > answers:  # a leased source alone says nothing of the store
                        parts.outage.answered()
                except SourceError as error:
                    parts.tell(SourceTrouble(error=str(error)))

    def exchange(self) -> None:
        """Finish and mark what has ended, and ask for the keys of what came: in one round trip, where it all goes the
        same way and is no more than can be in hand. What is finished now is marked by the next."""
        self.more_to_say = False
        if self._may_wait():
            return
        while (trip := self._gather()) is not None:
            self._make(trip)
            if trip.whole:
                return
        self.settle()
        self.claim()

    @property
    def left_s(self) -> float:
        """How long the next exchange may be away, in seconds, for no mark to be later than it may be."""
        return LATE_S if self._since < 0 else max(0.0, self._since + LATE_S - self._parts.runtime.now())

    def _may_wait(self) -> bool:
        """Whether what has ended may wait for more to end: nothing else is asked for, nothing has to start or to come
        in its place, and the last round trip was just now."""
        parts, now = self._parts, self._parts.runtime.now()
        if not parts.settling.waiting:
            self._since = -1.0  # a hand-over has told it
            return False
        if now < self._last_at + LATE_S and not parts.claiming.wanted and parts.unacked.roomy and parts.intake.roomy:
            self._since = now if self._since < 0 else self._since
            return True
        self._last_at, self._since = now, -1.0
        return False

    def _gather(self) -> StoreExchange | None:
        """Gather what goes to the store. None: nothing, or not all of it is this session's, or the source is told of it
        without the store."""
        parts, settling, session = self._parts, self._parts.settling, self._parts.sessions.session
        if session is None or not settling.waiting or not parts.outage.may_ask or not self._family.by_position:
            return None
        finishing, settled = settling.to_finish(parts.unacked.at_most), settling.to_settle(parts.unacked.at_most)
        done = by_owner(settled)
        if any(each.owner.session_ is not session for each in done):
            return None
        if any(entry.owner.session_ is not session for entry in finishing):
            return None
        whole = len(finishing) + len(settled) == settling.entries
        return StoreExchange(session, finishing, settled, done, whole=whole)

    def _make(self, trip: StoreExchange) -> None:
        """Make that round trip. It asks for keys where it is the last of them: what has ended goes first."""
        parts, claiming = self._parts, self._parts.claiming
        began = parts.runtime.now()
        with parts.outage.asking():
            live, asked = True, False
            try:
                if trip.whole and claiming.wanted:
                    live = self._ask_for_keys(trip.ask)
                    asked = claiming.asked
                if not asked:
                    trip.ask(())
            finally:
                if trip.replies is not None:  # else all of it is asked again
                    self._answered(trip, trip.replies)
            parts.outage.answered()
            self.more_to_say = bool(parts.settling.waiting)
            self.trip_s = parts.runtime.now() - began
            if not live:
                parts.sessions.lost()

    def _answered(self, trip: StoreExchange, replies: Exchanged) -> None:
        """Go by the answers about what had ended. Raises StoreUnavailable: one of them is missing."""
        if not isinstance(replies.fenced, StoreError):
            for done, fenced in zip(trip.done, replies.fenced, strict=True):
                self._family.marked(*done, fenced)
            self._parts.settling.settled(trip.settling)
        if not isinstance(replies.finished, StoreError):
            self._finished(trip.finishing, replies.finished)
        for reply in (replies.finished, replies.fenced):
            if isinstance(reply, StoreError):
                raise reply

    def _settle_all(self, at_most: int) -> None:
        """Finish, then mark, until nothing waits. Raises StoreUnavailable: the rest is asked again in a later step."""
        settling = self._parts.settling
        while settling.entries:
            if finishing := settling.to_finish(at_most):
                session = finishing[0].owner.session_
                batch = [entry for entry in finishing if entry.owner.session_ is session]
                self._finished(batch, session.finish(_claims(batch)))
            if settled := settling.to_settle(at_most):
                self._family.settle(settled)
                settling.settled(settled)

    def _finished(self, batch: Sequence[Entry], verdicts: Sequence[Verdict]) -> None:
        """The store has answered for their keys."""
        parts = self._parts
        done = parts.settling.finished(batch)
        for entry, verdict in parts.claiming.each(batch, verdicts, Verdict.DONE):
            entry.held = False
            parts.claiming.free(entry)
            parts.unacked.leave(entry)
            if verdict is Verdict.FENCED:
                parts.settling.leaves(entry)
                parts.outcomes.taken_over(entry)
            else:
                done.append(entry)  # one by one: a signal handler may raise in between

    def claim(self) -> None:
        """Ask the store for the keys of what came."""
        parts = self._parts
        session = parts.sessions.session
        if parts.claiming.wanted and parts.outage.may_ask and session is not None:
            with parts.outage.asking():
                live = self._ask_for_keys(session.claim)
                if parts.claiming.asked:
                    parts.outage.answered()
                if not live:
                    parts.sessions.lost()

    def _ask_for_keys(self, ask: Callable[[Sequence[Claim]], Sequence[Verdict]]) -> bool:
        """False = the session is fenced."""
        self._parts.owed.pay()  # a claim that is being given back may not be asked for
        return self._parts.claiming.step(ask, self._parts.settings.poll_batch)


def _claims(entries: Sequence[Entry]) -> list[Claim]:
    return [claim for entry in entries for claim in entry.asked_for]
