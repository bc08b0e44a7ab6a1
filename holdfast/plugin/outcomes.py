"""Outcomes: what follows the end of an attempt: settle, try again, dead letter, stop, or leave it to the new owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Token
from holdfast.errors import HandlerFailed
from holdfast.plugin.dead_letter import Letter
from holdfast.plugin.events import DeadLettered, RecordFailed
from holdfast.plugin.lanes import Gate
from holdfast.plugin.ownership import Phase
from holdfast.plugin.pipeline import Outcome
from holdfast.plugin.retry import BACKOFF

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.claiming import Claiming
    from holdfast.plugin.debts import Debts
    from holdfast.plugin.events import Event
    from holdfast.plugin.lanes import Entry, Lanes
    from holdfast.plugin.pipeline import Ended
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.settling import Settling
    from holdfast.plugin.timers import Timers
    from holdfast.plugin.workers import Workers

#: How long one dead letter may take before it counts as failed and is sent again after a wait.
_LETTER_S = 10.0


class Outcomes:
    """Decides, for each entry that comes back from the workers. One thread."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        timers: Timers,
        workers: Workers,
        claiming: Claiming,
        settling: Settling,
        debts: Debts,
        forget: Callable[[Entry], None],
        letters: DeadLetters | None,
        group: str,
        tell: Callable[[Event], None],
        stop: Callable[[Exception], None],
    ) -> None:
        self._lanes, self._timers, self._workers = lanes, timers, workers
        self._claiming, self._settling, self._debts, self._forget = claiming, settling, debts, forget
        self._letters, self._group, self._tell, self._stop = letters, group, tell, stop

    def came_back(self, ended: Ended) -> None:
        """One entry is back."""
        entry, outcome, error = ended
        if outcome is Outcome.OK or outcome is Outcome.LETTER_SENT:
            if outcome is Outcome.LETTER_SENT:
                self._sent(entry)
                # Settled is the record, not its key: it was not handled, and its replay or the producer's next copy is
                # to be.
                self._claiming.give_back(entry)
            self._lanes.back(entry, Gate.ENDED)
            self._settling.ended(entry)
        elif entry.owner.phase is not Phase.OWNED:
            self._lanes.back(entry, Gate.GONE)
            self.leave_to_others(entry)
        elif outcome is Outcome.NOT_STARTED:
            self._lanes.back(entry, Gate.READY)
        elif outcome is Outcome.LETTER_FAILED:
            self._again_later(entry, error)
        else:
            self._failed(entry, error or RuntimeError("no error"))

    def hand_back(self, entry: Entry) -> None:
        """An entry that was not started, or whose attempt failed, will not run here."""
        self._claiming.give_back(entry)
        self._lanes.drop(entry)
        self._forget(entry)

    def leave_to_others(self, entry: Entry) -> None:
        """It did not end well, and the partition goes or is gone: only the new owner tries again or gives up."""
        self._claiming.give_back(entry)
        if entry.record.offset in entry.owner.hands:
            token = Token(entry.owner.name, entry.record.offset, entry.owner.epoch)
            self._debts.release(entry.owner.session_, token)
        self._forget(entry)

    # ---- inside
    def _failed(self, entry: Entry, error: Exception) -> None:
        entry.attempt += 1
        entry.started = False
        wait_s = entry.handler.retry.wait_s(entry.attempt, error)
        self._tell_failed(entry, f"{type(error).__name__}: {error}", wait_s)
        self._lanes.back(entry, Gate.RETRY)
        if wait_s is not None:
            self._timers.after(wait_s, lambda: self._retry(entry))
        else:
            self._for_good(entry, error)

    def _retry(self, entry: Entry) -> None:
        if entry.gate is Gate.RETRY:
            entry.gate = Gate.READY
            self._lanes.wake(entry.lane)

    def _for_good(self, entry: Entry, error: Exception) -> None:
        """No attempt is left. The entry stays the first of its lane until its letter is acknowledged."""
        handler, record = entry.handler, entry.record
        if handler.dead_letter is None or self._letters is None:
            failure = HandlerFailed(
                f"{handler.name} failed for good on {record.partition}@{record.offset} after {entry.attempt} attempts "
                f"and has no dead letter: mend the handler or the record, or give it dead_letter=... "
                f"({type(error).__name__}: {error})"
            )
            failure.__cause__ = error
            self._stop(failure)
            return
        letter = Letter(
            record=record,
            topic=handler.dead_letter,
            handler=handler.name,
            reason=error,
            attempts=entry.attempt,
            group=self._group,
        )
        self._send(entry, letter)

    def _send(self, entry: Entry, letter: Letter) -> None:
        if entry.gate is Gate.RETRY and self._letters is not None:
            self._lanes.take_again(entry)
            entry.letter = letter
            self._workers.submit_letter(entry, letter, self._letters, _LETTER_S)

    def _again_later(self, entry: Entry, error: Exception | None) -> None:
        """The letter was not acknowledged: the record is not settled, so it is sent again."""
        letter, reason = entry.letter, error or RuntimeError("no error")
        entry.letters += 1
        entry.started = False
        wait_s = BACKOFF.wait_s(entry.letters, reason) or 0.0
        self._tell_failed(entry, f"dead letter not acknowledged: {reason}", wait_s)
        self._lanes.back(entry, Gate.RETRY)
        if letter is None or not getattr(reason, "retriable", True):
            self._stop(reason)
        else:
            self._timers.after(wait_s, lambda: self._send(entry, letter))

    def _tell_failed(self, entry: Entry, error: str, wait_s: float | None) -> None:
        self._tell(
            RecordFailed(
                partition=entry.record.partition,
                offset=entry.record.offset,
                handler=entry.handler.name,
                attempt=entry.attempt,
                error=error,
                retry_in_s=wait_s,
            )
        )

    def _sent(self, entry: Entry) -> None:
        self._tell(
            DeadLettered(
                partition=entry.record.partition,
                offset=entry.record.offset,
                handler=entry.handler.name,
                topic=entry.handler.dead_letter or "",
                attempts=entry.attempt,
            )
        )
