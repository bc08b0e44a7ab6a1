"""Hung handlers: cancels a call that runs too long, then gives it up: a dead letter, or the app stops. And reports a
coroutine that blocks the event loop.

The start of a handler is not noted anywhere: the loop looks at the running calls now and then, in its turn.

A call that was given up is STUCK: in hand, not waited for. Only a record whose handler may still run is dead-lettered
after its partition went: its new owner waits for it, and released it would run twice at once. (`Ownership.still_ours`.)
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HandlerError, HandlerHung
from holdfast.plugin.engine.record import attempts
from holdfast.plugin.engine.record.attempts import Ended, Outcome
from holdfast.plugin.engine.record.entry import Entry, EntryState
from holdfast.plugin.events import EventLoopBlocked, HandlerGivenUp, HandlerOverdue, LateResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from holdfast.plugin.engine.record.call import Call
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.engine.record.outcomes import Outcomes
    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.events import Event
    from holdfast.plugin.settings import Settings
    from holdfast.timing import Clock

#: How often running calls are looked at; a timeout is noticed that much late.
_LOOK_S = 0.02
#: How often the event loop is asked; without an answer for so long it is blocked.
_ASK_S = 0.1
_BLOCKED_S = 1.0
#: Where frames are whose lines say little: the package, the standard library, and what is installed.
_OURS = str(Path(__file__).parents[3])
_LIBRARIES = (_OURS, *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
#: The outcomes that a worker reports for a record that it has run.
_RAN = frozenset({Outcome.OK, Outcome.FAILED})


def _was_cancelled(error: Exception | None) -> bool:
    return isinstance(error, HandlerError) and isinstance(error.__cause__, asyncio.CancelledError)


class _Watched:
    """One call, as it was seen last."""

    __slots__ = ("call", "given_up", "overdue_at", "seen", "since")

    def __init__(self, call: Call, now: float) -> None:
        self.call = call
        #: The entries of its current call, and when they were seen first.
        self.seen = call.current
        self.since = now
        self.overdue_at: float | None = None
        self.given_up = False

    @property
    def entries(self) -> Sequence[Entry]:
        seen = self.seen
        return () if seen is None else (seen,) if isinstance(seen, Entry) else seen


class Hung:
    """Watches the calls of handlers that have a timeout. One thread."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        workers: Workers,
        outcomes: Outcomes,
        lanes: Lanes,
        storeless: bool,
        tell: Callable[[Event], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._settings, self._clock, self._workers = settings, clock, workers
        self._outcomes, self._lanes, self._storeless = outcomes, lanes, storeless
        self._tell, self._fail = tell, fail
        self._watched: list[_Watched] = []
        self._look_at = 0.0
        #: Entries whose call is overdue or was given up, and that have not come back.
        self.known: dict[Entry, _Watched] = {}
        #: Calls that were given up, since the start.
        self.given_up = 0

    @property
    def overdue(self) -> int:
        """Calls that run for longer than they may, and were not given up yet."""
        return sum(each.overdue_at is not None for each in self._watched)

    @property
    def stuck(self) -> int:
        """Entries whose handlers were given up, and that are not settled: other members have to wait for our lease."""
        return sum(entry.state is EntryState.STUCK for entry in self._outcomes.stuck)

    @property
    def owes_letters(self) -> bool:
        """Whether a dead letter was not acknowledged and will be sent again: others wait for it."""
        return any(entry.state is EntryState.STUCK and entry.letter is not None for entry in self._outcomes.stuck)

    def step(self) -> None:
        """Look at what runs: tell, cancel, give up."""
        workers, now = self._workers, self._clock.now()
        if now < self._look_at or not (workers.timed or self._watched):
            return
        self._look_at = now + _LOOK_S
        new, workers.timed = workers.timed, []
        self._watched = [each for each in self._watched if not each.call.over]
        self._watched += [_Watched(call, now) for call in new if not call.over]
        for each in self._watched:
            current, entries = each.call.current, each.entries
            if current is not each.seen:
                each.seen, each.since, each.overdue_at = current, now, None
            elif not entries or entries[0].count > 1:
                each.since = now  # it waits for a worker; or it is a run, of which only the slow record will be left
            elif each.overdue_at is None and self._waits_for_database(entries):
                each.since = now
            elif each.overdue_at is None:
                if now - each.since >= (entries[0].handler.timeout_s or 0.0):
                    each.overdue_at = now
                    self._cancel(each, entries, now)
            elif now - each.overdue_at >= self._settings.handler_grace_s:
                self._give_up(each, entries, now)

    def came_back(self, ended: Ended) -> Ended | None:
        """Judge the end of a call that was overdue; None = nothing: it was given up before."""
        entry, outcome, error, _ = ended
        watched = self.known.get(entry)
        ran = outcome in _RAN or (outcome is Outcome.NOT_STARTED and error is not None)
        if watched is None or not ran:
            return ended
        del self.known[entry]
        if not watched.given_up:
            entry.owner.late.discard(entry.record.offset)
            # Only our cancellation counts as a hang. Any other result is the handler's.
            if watched.call.cancel_seen and _was_cancelled(error):
                return Ended(entry, outcome, self._error(entry, "was cancelled: it did not end"))
            return ended
        if entry.state is EntryState.STUCK and entry.letter is None:  # none was made: the app stops
            self._outcomes.ended_after_all(entry, well=outcome is Outcome.OK)
            return None
        # Its letter was sent or will be: one that was not acknowledged may have been written all the same.
        self._tell(
            LateResult(
                partition=entry.record.partition,
                offset=entry.record.offset,
                handler=entry.handler.name,
                running_s=self._clock.now() - watched.since,
                outcome=outcome.value if error is None else f"{outcome.value}: {type(error).__name__}",
            )
        )
        return None

    # ---- inside
    def _cancel(self, watched: _Watched, entries: Sequence[Entry], now: float) -> None:
        for entry in entries:
            entry.owner.late.add(entry.record.offset)
            self.known[entry] = watched
        self._workers.cancel(watched.call)
        first = entries[0]
        self._tell(
            HandlerOverdue(
                partition=first.record.partition,
                offset=first.record.offset,
                handler=first.handler.name,
                running_s=now - watched.since,
                records=len(entries),
            )
        )

    def _give_up(self, watched: _Watched, entries: Sequence[Entry], now: float) -> None:
        if not (self._undone(entries) and self._workers.give_up(watched.call, watched.seen)):
            return  # it has just ended
        watched.given_up = True
        self.given_up += 1
        first = entries[0]
        hung = self._error(first, "did not end")
        # A blocked event loop hangs all coroutines: they cannot be moved to another one.
        blocked = first.handler.is_async and not watched.call.cancel_seen
        too_many = self._workers.all_stuck(first.handler.kind)
        letter = self._outcomes.dead_letter_of(first, hung) is not None and not blocked
        self._tell(
            HandlerGivenUp(
                partition=first.record.partition,
                offset=first.record.offset,
                handler=first.handler.name,
                running_s=now - watched.since,
                then="dead_letter" if letter and not too_many else "stop",
                stuck=self._workers.stuck,
                records=len(entries),
            )
        )
        if blocked:
            self._fail(self._error(first, "(or another coroutine) blocks the event loop, which all of them share,"))
        elif too_many:
            self._fail(self._error(first, f"is one of {self._workers.stuck} calls that hang, as many as workers,"))
        elif not letter:
            self._fail(hung)
        for entry in entries:
            if entry.owner.is_gone and self._storeless:
                # Without a store no other member waits for us: the record runs there already.
                self._outcomes.stuck.add(entry)
                self._lanes.back(entry, EntryState.GONE)
                self._outcomes.leave_to_others(entry)
            else:
                self._outcomes.gave_up(entry, hung, letter=letter)

    def _waits_for_database(self, entries: Sequence[Entry]) -> bool:
        """Whether their handler is not called yet, or has returned: its transaction is begun or committed."""
        store, owner = entries[0].handler.transaction, entries[0].owner
        return store is not None and not store.runs(owner.name, _offsets(entries))

    def _undone(self, entries: Sequence[Entry]) -> bool:
        """Let their transaction, where they have one, commit no more: its effects, and a dead letter, would both be.
        False = it is being committed."""
        handler, owner = entries[0].handler, entries[0].owner
        store = handler.transaction or handler.marks
        return store is None or store.abandon(owner.name, owner.store_epoch, _offsets(entries))

    def _error(self, entry: Entry, what: str) -> HandlerHung:
        settings, record = self._settings, entry.record
        return HandlerHung(
            f"{entry.handler.name} {what} on {record.partition}@{record.offset} within its timeout of "
            f"{entry.handler.timeout_s} s and {settings.handler_grace_s} s of grace; it is not tried again, since that "
            f"run may still have its effect: give what it waits for a timeout of its own, let it look at "
            f"record.cancelled, or raise the timeout"
        )


def _offsets(entries: Sequence[Entry]) -> list[int]:
    return [offset for entry in entries for offset in entry.offsets]


class BlockedLoop:
    """Tells once of each handler that blocks the event loop: an `async def` that computes for a second, or calls a
    client that blocks, holds up all others. One thread, the one that runs the app.

    The loop is asked to answer while coroutines run in it. Where it does not, the stack of its thread says in which
    handler it is, and at which line.
    """

    def __init__(self, workers: Workers, clock: Clock, tell: Callable[[Event], None]) -> None:
        self._workers, self._coroutines, self._clock, self._tell = workers, workers.coroutines, clock, tell
        self._look_at = 0.0
        #: When the loop was asked, as the number of the question; and the last one that it has answered.
        self._asked_at, self._asked, self._answered = 0.0, 0, 0
        self._told: set[str] = set()

    def step(self) -> None:
        """Look whether the loop goes on."""
        now = self._clock.now()
        if now < self._look_at or not self._workers.has_coroutines:
            return
        self._look_at = now + _ASK_S
        if self._answered == self._asked:
            self._asked_at, self._asked = now, self._asked + 1
            self._coroutines.call(partial(self._hear, self._asked))
        elif now - self._asked_at >= _BLOCKED_S:
            self._look(now - self._asked_at)

    def _hear(self, number: int) -> None:
        """In the event loop's thread."""
        self._answered = number

    def _look(self, for_s: float) -> None:
        """Find the handler: its call is a local variable of the attempt that the loop is in, if it is in one."""
        innermost = frame = sys._current_frames().get(self._coroutines.thread_id)  # noqa: SLF001 - it has no other name
        own: FrameType | None = None
        while frame is not None and not (_is_attempt(frame) and "call" in frame.f_locals):
            own = own or (None if frame.f_code.co_filename.startswith(_LIBRARIES) else frame)
            frame = frame.f_back
        stands = own or innermost
        if frame is None or stands is None:
            return
        handler: str = frame.f_locals["call"].handler
        if handler not in self._told:
            self._told.add(handler)
            where = f"{stands.f_code.co_filename}:{stands.f_lineno}"
            self._tell(EventLoopBlocked(handler=handler, where=where, for_s=for_s))


def _is_attempt(frame: FrameType) -> bool:
    return frame.f_code.co_filename == attempts.__file__
