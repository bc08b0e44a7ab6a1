"""Call: the records that go to one worker together, as other threads see them meanwhile; and how many they are.

A slow record in a chunk of quick ones: what waits behind it is taken back after 5 ms without an end (20 ms in all) and
given to others (`Call.take_back`), while its worker goes on.

The start of a handler is noted only in `Call.current`. It is None again before the end is reported: otherwise a record
that has come back, and is settled, could be given up once more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.runtime import Thread

#: A chunk in which no record has ended for so long has met a slow one, which the others need not wait for; nor need
#: they for a chunk that takes longer than that in all.
_LATE_S = 0.005
_LONG_S = 0.02
#: Nothing else of the event loop runs for as long as the coroutines of one task do.
_TASK_S = 0.002
_TASK_AT_MOST = 256


class Call:
    """Records that a worker takes one after the other, from the left, while the loop may take back from the right; or a
    batch; or a dead letter (then it has no entries)."""

    __slots__ = (
        "around", "batch", "began", "cancel_seen", "current", "entries", "handler", "home", "inline", "kind", "over",
        "records", "run", "seen", "struck", "task", "thread", "times", "waits",
    )  # fmt: skip

    def __init__(self, entries: Sequence[Entry] = (), around: Around | None = None) -> None:
        self.entries = deque(entries)
        #: How many it began with.
        self.records = sum(entry.count for entry in entries)
        #: The middlewares, where there are any.
        self.around = around
        self.handler = entries[0].handler.name if entries else ""
        #: None: a dead letter.
        self.kind = entries[0].handler.kind if entries else None
        #: Its handler is called once, with all of them.
        self.batch = bool(entries) and entries[0].handler.batch is not None
        #: How often the handler was called. Written by the worker, at the end.
        self.times = 0
        #: Whether it runs in the polling thread, where Ctrl-C may strike; and the Ctrl-C that did, until it is raised
        #: again.
        self.inline = False
        self.struck: KeyboardInterrupt | None = None
        #: The worker's job; none for coroutines. It has no reference to the call: its records would be kept in a cycle
        #: until Python's collector finds it.
        self.run: Callable[[Call], None]
        #: Written by the worker: when it began, and what its handler has been called with just now. None again before
        #: the end of that is told: what the loop has seen come back may not be taken for what runs.
        self.began: float | None = None
        self.current: Entry | Sequence[Entry] | None = None
        #: (current, ended, since): progress at the last check.
        self.seen: tuple[object, int, float] = (None, 0, 0.0)
        #: Whether it has ended or was given up. Under the workers' lock.
        self.over = False
        #: The thread or the task that runs it.
        self.thread: Thread | None = None
        self.task: asyncio.Task[None] | None = None
        #: The application's event loop, if the coroutine runs in that.
        self.home: Home | None = None
        #: The event loop has come to cancelling it: it is not blocked.
        self.cancel_seen = False
        #: The coroutine let others run before it had ended.
        self.waits = False

    def cancel(self) -> None:
        """In the event loop's thread."""
        self.cancel_seen = True
        if self.task is not None:
            self.task.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether no more of a coroutine's records may start: its task was cancelled, or Ctrl-C has struck."""
        return self.struck is not None or (self.task is not None and self.task.cancelling() > 0)

    @property
    def is_async(self) -> bool:
        """Whether a coroutine runs it, and no thread."""
        return self.kind is not None and self.kind.is_async

    def uprooted(self, error: BaseException) -> bool:
        """Whether the application, and not holdfast, has cancelled this coroutine: its event loop is about to end.

        An error of another kind says so only where the app's own task is cancelled too, as at the end of `asyncio.run`:
        a task counts as cancelled also after a time-out of async_timeout before 4.0.3, which the handler has seen.
        """
        if self.home is None or self.cancel_seen or self.task is None or not self.task.cancelling():
            return False
        app = self.home.task
        return isinstance(error, asyncio.CancelledError) or (app is not None and app.cancelling() > 0)

    # ---- a slow record before others: the loop's thread
    def is_late(self, current: object, now: float) -> bool:
        """Whether the records queued behind `current` should move to other workers. A waiting coroutine is late at
        once."""
        if self.began is None:
            return False
        if self.waits:
            return True
        ended = current.ended if isinstance(current, Entry) else 0
        if self.seen[:2] != (current, ended):
            self.seen = (current, ended, now)
        return now - max(self.seen[2], self.began) >= _LATE_S or now - self.began >= _LONG_S

    def take_back(self, current: object) -> list[tuple[Entry, int, int]]:
        """Take the records that its worker has not begun. Args: current: the entry that it is busy with.

        Returns: entries, and of each how many of its records have ended, and how many a worker has begun.
        """
        waiting = []
        with suppress(IndexError):
            while True:
                waiting.append((self.entries.pop(), 0, 0))
        waiting.reverse()
        # Not of a run that its worker has only looked at: with all of its records gone it would report that all of
        # them have ended, while others have them.
        if isinstance(current, Entry) and current.count > 1 and current.started:
            waiting.insert(0, _rest_of(current))
        return waiting


def _rest_of(run: Entry) -> tuple[Entry, int, int]:
    left = 0
    with suppress(IndexError):
        while True:
            run.todo.pop()
            left += 1
    # In this order: its worker can begin no more of them, but it may end the one that it is busy with.
    begun = run.count - left
    return run, run.ended - run.base, begun


class Together:
    """How many records of an `async def` handler go as one task, by handlers' names. `ended` is called in the event
    loop's thread, `records` in the engine's.

    A task costs more than a trivial coroutine. A coroutine that waits needs a task of its own, or others would wait
    behind it. So as many go together as lately ended without waiting: twice as many after each time that this went
    well, half as many after each time that it did not.
    """

    def __init__(self) -> None:
        self._records: dict[str, int] = {}

    def records(self, handler: str) -> int:
        """How many to give to one task; 1 where they wait, and at first."""
        return self._records.get(handler, 1)

    def ended(self, handler: str, records: int, took_s: float, *, waited: bool) -> None:
        """A task of so many records has ended; or it waits: it has let others run before it has ended."""
        now = self.records(handler)
        if records * 2 <= now:
            return  # it says nothing of as many as go together now
        well = not waited and took_s <= _TASK_S
        self._records[handler] = min(_TASK_AT_MOST, now * 2) if well else max(1, now // 2)
