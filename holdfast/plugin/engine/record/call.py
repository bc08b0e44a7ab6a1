"""Call: the work of one worker on its entries, and what other threads may read of it meanwhile.

The start of a handler is noted only in `Call.current`. It is None again before the end is reported: otherwise a record
that has come back, and is settled, could be given up once more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.runtime import Thread


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
        #: It runs in the thread that polls, where Ctrl-C may strike; and the one that has, until that is raised again.
        self.inline = False
        self.struck: KeyboardInterrupt | None = None
        #: What the worker has to do with this call; not for coroutines. It holds no reference to the call: its records
        #: would be kept in a cycle until Python's collector finds it.
        self.run: Callable[[Call], None]
        #: Written by the worker: when it began, and what its handler has been called with just now. None again before
        #: the end of that is told: what the loop has seen come back may not be taken for what runs.
        self.began: float | None = None
        self.current: Entry | Sequence[Entry] | None = None
        #: (current, ended, since): progress at the last check.
        self.seen: tuple[object, int, float] = (None, 0, 0.0)
        #: It has ended, or was given up, whichever was first. Under the workers' lock.
        self.over = False
        #: Who runs it.
        self.thread: Thread | None = None
        self.task: asyncio.Task[None] | None = None
        #: Of a coroutine in the application's event loop.
        self.home: Home | None = None
        #: The event loop has come to cancelling it: it is not blocked.
        self.cancel_seen = False
        #: Of coroutines: it let others run before it had ended.
        self.waits = False

    def cancel(self) -> None:
        """In the event loop's thread."""
        self.cancel_seen = True
        if self.task is not None:
            self.task.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether no more of a coroutine's records may start: somebody has cancelled its task, or Ctrl-C has struck."""
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
