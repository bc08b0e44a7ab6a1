"""Brakes: pause a handler that sends too many records to the dead letters, or stop the app (`DeadLetterLimit`).

`Count` is the counting (pure: a time is passed in), `Brakes` what follows from it.

At the limit of dead letters a record stays in EntryState.RETRY, so a hand-over gives it to the next owner, like each
record that waits for an attempt. A success ends the pause only if it is the record that was tried for that: where half
of the records fail, the other half would end it at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import HandlerFailed
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.events import DeadLetterLimitReached, DeadLettersResumed
from holdfast.plugin.retrying.failures import summary_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.timers import Timers
    from holdfast.plugin.events import Event
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.retrying.letter_limit import DeadLetterLimit
    from holdfast.timing import Clock

_UNDER_WAY = frozenset({EntryState.CLAIM, EntryState.BUSY, EntryState.READY, EntryState.TAKEN})
#: The window of a share moves on in so many steps.
_STEPS = 12


class Count:
    """The outcomes of one handler's records."""

    def __init__(self, limit: DeadLetterLimit) -> None:
        self._limit = limit
        self._in_a_row = 0
        #: Handled and sent away, by the step in which that was.
        self._steps: deque[list[int]] = deque()

    def handled(self, records: int, now: float) -> None:
        """Count records that ended well."""
        self._in_a_row = 0
        self._step(now)[1] += records

    def failed(self, now: float) -> tuple[int, int] | None:
        """One is about to be sent away. None: it may; else it is too many: so many, of so many."""
        limit, step = self._limit, self._step(now)
        letters = sum(each[2] for each in self._steps) + 1
        ended = sum(each[1] for each in self._steps) + letters
        if self._in_a_row >= limit.in_a_row:
            return self._in_a_row + 1, self._in_a_row + 1
        if ended >= limit.at_least and letters > limit.share * ended:
            return letters, ended
        self._in_a_row += 1
        step[2] += 1
        return None

    def _step(self, now: float) -> list[int]:
        number = int(now * _STEPS / self._limit.over_s)
        while self._steps and self._steps[0][0] <= number - _STEPS:
            self._steps.popleft()
        if not self._steps or self._steps[-1][0] != number:
            self._steps.append([number, 0, 0])
        return self._steps[-1]


class _Brake:
    """One handler's."""

    def __init__(self, limit: DeadLetterLimit) -> None:
        self.limit, self.count = limit, Count(limit)
        #: Since when it is on.
        self.since: float | None = None
        #: Entries that have failed for good and were not sent away; and the one of them that is tried again.
        self.held: deque[Entry] = deque()
        self.tried: Entry | None = None


class Brakes:
    """The brakes of all handlers that have a limit. One thread.

    Args:
        again: has the handler try an entry again that waits in `EntryState.RETRY`.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        *,
        again: Callable[[Entry], None],
        tell: Callable[[Event], None],
        stop: Callable[[Exception], None],
    ) -> None:
        self._clock, self._timers, self._again, self._tell, self._stop = clock, timers, again, tell, stop
        self._by_handler: dict[str, _Brake] = {}
        #: Handlers that are paused, by name.
        self.paused: frozenset[str] = frozenset()

    def handled(self, entry: Entry) -> None:
        """Count an entry whose records ended well."""
        handler = entry.handler
        if handler.limit is None:
            return
        brake = self._of(handler.name, handler.limit)
        if brake.since is None:
            brake.count.handled(entry.count, self._clock.now())
        elif entry is brake.tried:
            self._release(handler, brake)

    def hold(self, entry: Entry, error: Exception) -> bool:
        """Whether a record that has failed for good waits here instead of going to the dead letters."""
        handler = entry.handler
        if handler.limit is None:
            return False
        brake = self._of(handler.name, handler.limit)
        if brake.since is None:
            found = brake.count.failed(self._clock.now())
            if found is None:
                return False
            self._reached(entry, brake, error, *found)
        if entry.state is not EntryState.RETRY:
            return False  # its handler was given up and may still run: it is never tried again
        brake.held.append(entry)
        return True

    # ---- inside
    def _of(self, handler: str, limit: DeadLetterLimit) -> _Brake:
        brake = self._by_handler.get(handler)
        if brake is None:
            brake = self._by_handler[handler] = _Brake(limit)
        return brake

    def _reached(self, entry: Entry, brake: _Brake, error: Exception, letters: int, ended: int) -> None:
        handler, limit = entry.handler.name, brake.limit
        self._tell(
            DeadLetterLimitReached(
                handler=handler,
                failed=letters,
                ended=ended,
                partition=entry.record.partition,
                offset=entry.record.offset,
                error=summary_of(error),
                then=limit.then,
                pause_s=limit.pause_s if limit.then == "pause" else None,
            )
        )
        brake.since = self._clock.now()
        if limit.then == "stop":
            failure = HandlerFailed(
                f"{handler} failed for good on {letters} of {ended} records, and its dead_letter_limit takes that for "
                "a fault of the handler's: mend it, or raise the limit (None: without one), if they are to be given up "
                f"({summary_of(error)})"
            )
            failure.__cause__ = error
            self._stop(failure)
            return
        self.paused |= {handler}
        self._timers.after(limit.pause_s, lambda: self._try_one(entry.handler, brake))

    def _try_one(self, handler: Handler, brake: _Brake) -> None:
        """One of those that wait is tried again, each in its turn: of those that stand first in their lanes, as the
        others could not start."""
        if brake.since is None:
            return
        self._timers.after(brake.limit.pause_s, lambda: self._try_one(handler, brake))
        if brake.tried is not None and brake.tried.state in _UNDER_WAY:
            return
        for _ in range(len(brake.held)):
            entry = brake.held.popleft()
            if entry.state is not EntryState.RETRY:  # its partition has gone
                continue
            if entry.lane.head() is not entry:  # of a batch, each record waits for itself
                brake.held.append(entry)
                continue
            brake.tried = entry
            self._again(entry)
            return
        if not brake.held:
            self._release(handler, brake)  # nothing waits here any more: what comes next will tell

    def _release(self, handler: Handler, brake: _Brake) -> None:
        held = [entry for entry in brake.held if entry.state is EntryState.RETRY]
        paused_s = self._clock.now() - (brake.since or 0.0)
        self._by_handler[handler.name] = _Brake(brake.limit)
        brake.since = None
        self.paused -= {handler.name}
        waiting = sum(entry.count for entry in held)
        self._tell(DeadLettersResumed(handler=handler.name, paused_s=paused_s, waiting=waiting))
        for entry in held:
            self._again(entry)
