"""Steps: the work of every loop in a turn, with our workers (`loop.py`) or a user's loop (`own_loop/driven.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.events import SourceTrouble
from holdfast.plugin.ports import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Claim, Verdict
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.settling import StoreExchange
    from holdfast.plugin.ports import Batch

#: How late a mark may be: a loop waits no longer while something is in the process, and of round trips that only tell
#: what has ended there is one in that time, where there is room. One costs as much as the rest of a record's way, where
#: records come one by one.
LATE_S = 0.005


class Steps:
    """One thread, the one that runs the app."""

    def __init__(self, parts: Parts, family: Family) -> None:
        #: The last exchange has finished what the next one marks.
        self.more_to_say = False
        #: How long the last round trip of an exchange took.
        self.trip_s = 0.0
        #: When it was last told what has ended, and since when something waits for that; below 0: nothing does.
        self._said, self._since = -LATE_S, -1.0
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
                    parts.settling.step(parts.settings.mark_batch)
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
        while (turn := self._gather()) is not None:
            self._say(turn)
            if turn.whole:
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
        if now < self._said + LATE_S and not parts.claiming.wanted and parts.unacked.roomy and parts.intake.roomy:
            self._since = now if self._since < 0 else self._since
            return True
        self._said, self._since = now, -1.0
        return False

    def _gather(self) -> StoreExchange | None:
        parts = self._parts
        session = parts.sessions.session
        if session is None or not parts.settling.waiting or not parts.outage.may_ask:
            return None
        return parts.settling.turn(session, parts.unacked.at_most)

    def _say(self, turn: StoreExchange) -> None:
        """Make that round trip. It asks for keys where it is the last of them: what has ended goes first."""
        parts, claiming = self._parts, self._parts.claiming
        began = parts.runtime.now()
        with parts.outage.asking():
            live, asked = True, False
            try:
                if turn.whole and claiming.wanted:
                    live = self._ask_for_keys(turn.ask)
                    asked = claiming.asked
                if not asked:
                    turn.ask(())
            finally:
                turn.end()
            parts.outage.answered()
            self.more_to_say = bool(parts.settling.waiting)
            self.trip_s = parts.runtime.now() - began
            if not live:
                parts.sessions.lost()

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
