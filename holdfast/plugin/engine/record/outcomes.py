"""Outcomes: decide what follows an attempt: settle, retry, dead letter, stop, or leave it to the new owner.

- A handler that outlived the drain and then fails is released, not retried: only the new owner decides, or two would.
- Attempts are counted by one owner; a hand-over between two attempts starts the count anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Token
from holdfast.errors import FormerOwner, HandlerFailed, HandlerHung, LetterTooLarge, StoreUnavailable
from holdfast.plugin.audit.schema import Outcome as AuditOutcome
from holdfast.plugin.engine.record.attempts import Ended, Outcome
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.engine.record.letter_brakes import Brakes
from holdfast.plugin.events import DeadLettered, RecordFailed, SentBack
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.plugin.retrying.failures import Failures, summary_of
from holdfast.plugin.retrying.retry import BACKOFF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.flow.intake import Intake
    from holdfast.plugin.engine.record.claiming import Claiming
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.engine.record.recorder import Recorder
    from holdfast.plugin.engine.record.settling import Settling
    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.engine.store.owed import Owed
    from holdfast.plugin.engine.timers import Timers
    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.retry_topics import RetryTopics
    from holdfast.runtime import Runtime

#: How long one dead letter may take before it counts as failed and is sent again after a wait.
_LETTER_S = 10.0


class _Alike:
    """Records of one batch that failed by one error: they wait together, come back as a batch, and are told of once."""

    def __init__(self, entry: Entry, error: Exception, chance: Random) -> None:
        self.first, self.error, self.attempt, self.records = entry, error, entry.attempt, 1
        self.wait_s = entry.handler.retry.wait_s(entry.attempt, error, chance)

    def takes(self, entry: Entry, error: Exception) -> bool:
        """Whether the entry is one of them; then it is counted."""
        same = error is self.error and entry.handler is self.first.handler and entry.attempt == self.attempt
        if same and entry.handler.batch is not None:
            self.records += 1
            return True
        return False


def _left_to_others(ended: Ended) -> bool:
    """Whether only the new owner of an entry that did not end well tries again or gives up."""
    entry, outcome, error, _ = ended
    if not entry.owner.is_owned or (outcome is Outcome.NOT_STARTED and isinstance(error, FormerOwner)):
        return True
    # Also before the loop has seen that the session is lost: a zombie's handler may fail because its sink has refused
    # it, and that is no failure of the record.
    return outcome is Outcome.FAILED and entry.owner.cancelled


class Outcomes:
    """Decides, for each entry that comes back from the workers. One thread."""

    #: Set before the first turn: it is made of the engine's parts, and this is one of them.
    family: Family

    def __init__(
        self,
        *,
        runtime: Runtime,
        lanes: Lanes,
        timers: Timers,
        workers: Workers,
        claiming: Claiming,
        settling: Settling,
        owed: Owed,
        recorder: Recorder,
        intake: Intake,
        retry_topics: RetryTopics,
        letters: DeadLetters | None,
        hung_stop: bool,
        group: str,
        tell: Callable[[Event], None],
        letter_sent: Callable[[Letter], None],
        unanswered: Callable[[StoreUnavailable], None],
        stop: Callable[[Exception], None],
    ) -> None:
        self._unanswered = unanswered
        self._lanes, self._timers, self._workers = lanes, timers, workers
        self._claiming, self._settling, self._owed, self._intake = claiming, settling, owed, intake
        self._letters, self._group, self._tell, self._stop = letters, group, tell, stop
        self._hung_stop, self._retry_topics = hung_stop, retry_topics
        self._recorder, self._letter_sent = recorder, letter_sent
        self._failures = Failures()
        self._chance = runtime.random
        self.brakes = Brakes(runtime, timers, again=self._retry, tell=tell, stop=stop)
        #: Entries whose call was given up, until their letter is acknowledged; without one, until the call has ended.
        self.stuck: set[Entry] = set()
        self._alike: _Alike | None = None
        #: Records since the start: whose handlers ended well, that were tried again, that were not started here, and
        #: that were left to their new owner.
        self.handled = self.retried = self.handed_back = self.released = 0

    def came_back(self, ended: Ended) -> None:
        """One entry is back."""
        entry, outcome, error, each = ended
        if entry.count > 1 and each:
            now = each[entry.base :]
            for piece, result in zip(self._claiming.apart(entry), now, strict=True):
                self.came_back(Ended(piece, *result))
        elif outcome is Outcome.OK or outcome is Outcome.LETTER_SENT:
            if outcome is Outcome.LETTER_SENT:
                self.stuck.discard(entry)
                self._sent(entry)
                # Settled is the record, not its key: it was not handled, and its replay or the producer's next copy is
                # to be.
                self._claiming.give_back(entry)
            else:
                self.handled += entry.count
                self._recorder.ended(entry, AuditOutcome.HANDLED)
                self.brakes.handled(entry)
            self._lanes.back(entry, EntryState.ENDED)
            self._settling.ended(entry)
        elif outcome is Outcome.LETTER_FAILED and entry in self.stuck:
            self._again_later(entry, error)  # also after a hand-over: its new owner waits for us
        elif _left_to_others(ended):
            self._left(entry, outcome)
        elif outcome is Outcome.NOT_STARTED:
            self._not_started(entry, error)
        elif outcome is Outcome.LETTER_FAILED:
            self._again_later(entry, error)
        else:
            self._failed(entry, error or RuntimeError("no error"))

    def taken_back(self, overdue: Sequence[tuple[Entry, int, int]]) -> None:
        """Slow records are before others in their chunks (`Workers.overdue`): what a worker has not begun is free
        again, and what has ended is settled. Of a run the slow one is what remains."""
        if overdue:
            with self._lanes.first():
                for entry, ended, begun in overdue:
                    self._taken_back(entry, ended, begun)

    def _taken_back(self, entry: Entry, ended: int, begun: int) -> None:
        following: Sequence[Entry] = [entry]
        if begun:
            head, following = self._lanes.shrink(entry, ended if ended < begun else 0, begun)
            if head is not None:
                self.came_back(Ended(head, Outcome.OK))
        for each in following:
            self.came_back(Ended(each, Outcome.NOT_STARTED))

    def hand_back(self, entry: Entry) -> None:
        """An entry that was not started, or whose attempt failed, will not run here."""
        self.handed_back += entry.count
        self.stuck.discard(entry)  # its letter was not even begun: the session had ended
        self._claiming.give_back(entry)
        self._lanes.drop(entry)
        self._forget(entry)

    def no_more_attempts(self, entry: Entry) -> bool:
        """Whether an entry that waits for its next attempt has failed for good now, with its last error: given back, it
        would not be handled again."""
        if entry.state is not EntryState.RETRY or entry.letter is not None or entry.failure is None:
            return False
        self._for_good(entry, entry.failure, later=False)
        return True

    def leave_to_others(self, entry: Entry) -> None:
        """Leave an entry that did not end well, and whose partition goes or is gone: only the new owner tries again or
        gives up."""
        self.released += entry.count
        self.stuck.discard(entry)
        self._claiming.give_back(entry)
        owner = entry.owner
        for offset in owner.handed_over.intersection(entry.offsets):
            self._owed.release(owner.session_, Token(owner.name, offset, owner.store_epoch))
        self._forget(entry)

    def taken_over(self, entry: Entry) -> None:
        """The store refused to finish its key: another session runs, or has run, a record with that key."""
        if entry.owner.is_owned:
            entry.state = EntryState.CLAIM
            self._lanes.put_back(entry)
            self._claiming.want(entry)
        else:
            self.leave_to_others(entry)

    def gave_up(self, entry: Entry, error: HandlerHung, *, letter: bool) -> None:
        """Give up an entry whose handler may still run: it is waited for no more. Without a letter it stays in hand."""
        entry.attempt += 1
        self._recorder.ended(entry, AuditOutcome.FAILED)
        self.stuck.add(entry)
        self._tell_failed(entry, summary_of(error), None)
        self._lanes.back(entry, EntryState.STUCK)
        if letter:
            self._for_good(entry, error)

    def ended_after_all(self, entry: Entry, *, well: bool) -> None:
        """Settle an entry that was given up without a letter, and has ended before the process has."""
        self.stuck.discard(entry)
        if well:
            self.handled += 1
            self._recorder.ended(entry, AuditOutcome.HANDLED)
            self._settling.ended(entry)
        elif entry.owner.is_owned:
            entry.state = EntryState.RETRY  # nobody runs it: the app stops, and hands it back
        else:
            self._lanes.drop(entry)
            self.leave_to_others(entry)

    def dead_letter_of(self, entry: Entry, error: Exception) -> str | None:
        """Where the record goes that failed for good with that error; None = the app stops."""
        stops = self._letters is None or (self._hung_stop and isinstance(error, HandlerHung))
        return None if stops else entry.handler.dead_letter

    def tell_failures(self) -> None:
        """Tell of those that failed together, once all of them are back."""
        alike, self._alike = self._alike, None
        if alike is not None:
            self._tell_failed(alike.first, summary_of(alike.error), alike.wait_s, alike.records)

    # ---- inside
    def _left(self, entry: Entry, outcome: Outcome) -> None:
        if outcome is Outcome.FAILED:
            self._recorder.ended(entry, AuditOutcome.FAILED)
        self._lanes.back(entry, EntryState.GONE)
        self.leave_to_others(entry)
        if entry.owner.is_owned and outcome is Outcome.NOT_STARTED:  # its transaction was refused
            self.family.fenced(entry.owner)

    def _not_started(self, entry: Entry, error: Exception | None) -> None:
        if isinstance(error, StoreUnavailable):
            self._unanswered(error)  # nothing starts until the store answers: this one would start at once
        self._lanes.back(entry, EntryState.READY)

    def _forget(self, entry: Entry) -> None:
        """An entry leaves without being settled."""
        entry.owner.entries.pop(entry.record.offset, None)
        self._intake.left(entry)
        self.family.given_up(entry)

    def _before(self, entry: Entry) -> int:
        """How often a record that comes of a retry topic was tried before."""
        return self._retry_topics.attempts_before(entry.record.topic)

    def _retry_topic_of(self, entry: Entry) -> str | None:
        """Where a record that has failed here goes to come again: a retry topic, or back to the broker; None: it is
        not."""
        topic = self._retry_topics.following.get(entry.record.topic)
        return topic or self.family.retry_topic_of(entry.record, has_letters=entry.handler.dead_letter is not None)

    def _failed(self, entry: Entry, error: Exception) -> None:
        entry.attempt += 1
        entry.failure = error
        entry.started = 0
        self._recorder.ended(entry, AuditOutcome.FAILED)
        record = entry.record
        self._failures.saw(entry.handler.name, record.partition, record.offset, error)
        alike = self._alike
        if alike is None or not alike.takes(entry, error):
            self.tell_failures()
            alike = self._alike = _Alike(entry, error, self._chance)
        wait_s = alike.wait_s
        self._lanes.back(entry, EntryState.RETRY)
        if wait_s is not None:
            self._timers.after(wait_s, lambda: self._retry(entry))
        else:
            self._for_good(entry, error)

    def _retry(self, entry: Entry) -> None:
        if entry.state is EntryState.RETRY:
            entry.state = EntryState.READY
            self.retried += 1
            self._lanes.wake(entry.lane)
            self._claiming.comes_again(entry)

    def _for_good(self, entry: Entry, error: Exception, *, later: bool = True) -> None:
        """No attempt is left. The entry stays the first of its lane until its letter is acknowledged.

        Args: later: a retry topic may take it.
        """
        handler, record = entry.handler, entry.record
        again = later and handler.retry.may_cure(error) and self._letters is not None
        topic = (self._retry_topic_of(entry) if again else None) or self.dead_letter_of(entry, error)
        if topic is None and isinstance(error, HandlerHung):
            self._stop(error)
            return
        if topic is None:
            attempts = self._before(entry) + entry.attempt
            failure = HandlerFailed(
                f"{handler.name} failed for good on {record.partition}@{record.offset} after "
                f"{attempts} attempt{'s' * (attempts != 1)} and has no dead letter: mend the handler or the "
                f"record, or give it dead_letter=... "
                f"({summary_of(error)})"
            )
            failure.__cause__ = error
            self._stop(failure)
            return
        refused = self.family.refusal(record) is not None  # says nothing of the handler, and cannot wait
        if topic == handler.dead_letter and not refused and self.brakes.hold(entry, error):
            return
        letter = Letter(
            record=record,
            topic=topic,
            handler=handler.name,
            reason=error,
            attempts=self._before(entry) + entry.attempt,
            group=self._group,
            born_in=self.family.born_in(record),
        )
        self._send(entry, letter)

    def _send(self, entry: Entry, letter: Letter) -> None:
        if entry.state in (EntryState.RETRY, EntryState.STUCK) and self._letters is not None:
            runs = entry.state is EntryState.STUCK
            self._lanes.take_again(entry)
            entry.started = int(runs)  # as before: then it is in hand
            entry.letter = letter
            self._workers.submit_letter(entry, letter, self._letters, _LETTER_S)

    def _again_later(self, entry: Entry, error: Exception | None) -> None:
        """The letter was not acknowledged: the record is not settled, so it is sent again."""
        letter, reason = entry.letter, error or RuntimeError("no error")
        entry.letters += 1
        entry.started = int(entry in self.stuck)
        if letter is not None and isinstance(reason, LetterTooLarge) and self._sent_otherwise(entry, letter, reason):
            return
        wait_s = BACKOFF.wait_s(entry.letters, reason, self._chance) or 0.0
        what = "retry" if letter is not None and letter.topic != entry.handler.dead_letter else "dead letter"
        self._tell_failed(entry, f"{what} not acknowledged: {reason}", wait_s)
        self._lanes.back(entry, EntryState.STUCK if entry.started else EntryState.RETRY)
        if letter is None or not getattr(reason, "retriable", True):
            entry.letter = None  # nobody sends it again
            self._stop(reason)
        else:
            self._timers.after(wait_s, lambda: self._send(entry, letter))

    def _sent_otherwise(self, entry: Entry, letter: Letter, reason: LetterTooLarge) -> bool:
        """Whether there is another way for a letter that is too large for its topic: past a retry topic to the dead
        letters, and there without the value, where the handler says so."""
        later = letter.topic != entry.handler.dead_letter
        if later and self.dead_letter_of(entry, letter.reason) is None:
            return False
        if not later and (letter.without_value or entry.handler.letter_too_large == "stop"):
            return False
        said = "not tried later, and a dead letter" if later else "a dead letter without its value"
        self._tell_failed(entry, f"{said}: {reason}", 0.0)
        self._lanes.back(entry, EntryState.STUCK if entry.started else EntryState.RETRY)
        if later:
            entry.letter = None
            self._for_good(entry, letter.reason, later=False)
        else:
            self._send(entry, replace(letter, without_value=True))
        return True

    def _tell_failed(self, entry: Entry, error: str, wait_s: float | None, records: int = 1) -> None:
        self._tell(
            RecordFailed(
                partition=entry.record.partition,
                offset=entry.record.offset,
                handler=entry.handler.name,
                attempt=self._before(entry) + entry.attempt,
                error=error,
                retry_in_s=wait_s,
                records=records,
            )
        )

    def _sent(self, entry: Entry) -> None:
        letter = entry.letter
        topic = letter.topic if letter else ""
        away = topic == entry.handler.dead_letter
        self._recorder.ended(entry, AuditOutcome.DEAD_LETTERED if away else AuditOutcome.SENT_BACK)
        self._tell(
            (DeadLettered if away else SentBack)(
                partition=entry.record.partition,
                offset=entry.record.offset,
                handler=entry.handler.name,
                topic=topic,
                attempts=self._before(entry) + entry.attempt,
            )
        )
        if away and letter is not None:
            self._letter_sent(letter)
