"""Workers: run functions in threads and `async def` as tasks, and put results where the loop finds them.

- Quick handlers are given several records at a time. What waits behind a slow one is taken back (`Call.take_back`).
- Coroutines that end without waiting go several as one task (`Together`). It counts as one: only one of them runs.
- A handler that blocks the event loop for longer than its timeout stops the app: coroutines hold connections of their
  loop, so they cannot go on in another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import count as count_up
from queue import Empty
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.attempts import (
    Ended,
    Outcome,
    report_not_started,
    run_batch,
    run_batch_async,
    run_each,
    run_each_async,
    send_letter,
)
from holdfast.plugin.engine.record.call import Call, Together
from holdfast.plugin.engine.record.coroutines import Coroutines
from holdfast.plugin.engine.record.job_threads import JobThreads
from holdfast.plugin.handlers import Kind
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.plugin.engine.record.calling import Around
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.runtime import Queue, Runtime, Thread

_log = logging.getLogger("holdfast")

#: Quick handlers are given to a worker several at a time, as many as take about so long: each hand-over between two
#: threads costs tens of microseconds. No chunk is so long that others would notice.
_CHUNK_S = 0.002
_CHUNK_AT_MOST = 256
#: Dead letters that are sent at a time: each waits for its broker, and handlers would wait with them.
_LETTERS_AT_ONCE = 4
#: Fewer than take so long are not worth another worker.
_CHUNK_WORTH_S = 0.0002
#: Where calls take so long, no job waits in a worker's hand: it would gain the few milliseconds of a turn, and a record
#: whose turn comes would wait for it.
_LONG_S = 0.1


class Workers:
    """At most `count` plain handlers at a time, each in a thread; with 0, each in `submit` itself, in the caller's.
    `async_count` coroutines of each kind. `submit` and `ended` belong to the thread that runs the app."""

    def __init__(
        self,
        count: int,
        name: str,
        runtime: Runtime = MACHINE,
        *,
        async_count: int | None = None,
        home: Home | None = None,
        around: Around | None = None,
    ) -> None:
        self._runtime, self._around = runtime, around
        #: Handlers run in `submit`.
        self.inline = count == 0
        #: How many plain handlers run at a time, at most.
        self.count = max(1, count)
        self._async_count = self.count if async_count is None else async_count
        self._name = name
        self._jobs: Queue[Call | None] = runtime.queue()
        self._threads: list[Thread] = []
        self._senders = JobThreads(f"{name}-letters", _LETTERS_AT_ONCE, runtime)
        #: Whether the log says that fewer threads run than are wanted.
        self._fewer_logged = False
        self._numbers = count_up()
        self._ended: deque[Ended] = deque()
        #: Set when something has ended.
        self.wake = runtime.event()
        #: When something was given last, to a worker or to a loop of the user's.
        self.given_at = 0.0
        #: The tasks in the event loop.
        self.coroutines, self._home = Coroutines(name, runtime, home), home
        #: Calls of coroutines, until `begin_coroutines`.
        self._to_begin: list[Call] = []
        #: Why the event loop has made no task for one of them.
        self._refusal: Exception | None = None
        self._lock = runtime.lock()  # innermost; guards the counts, and which calls are over
        #: Jobs given and not finished, by the kind of their handler. None: dead letters.
        self._outstanding: dict[Kind | None, int] = dict.fromkeys((*Kind, None), 0)
        #: Calls that were given up and have not ended: of threads, and coroutines.
        self._stuck = {False: 0, True: 0}
        #: Calls of handlers that have a timeout, until `Hung` takes them.
        self.timed: list[Call] = []
        self._record_s = _CHUNK_S
        #: How long a call in a thread takes: up at once, and down slowly. Long, until one has ended.
        self._call_s = _LONG_S
        self._together = Together()
        #: Chunks that may hold records which have not started.
        self._chunks: list[Call] = []
        self._timings: deque[tuple[str, int, float]] = deque()

    # ---- the thread that runs the app
    @property
    def outstanding(self) -> int:
        """Jobs given and not finished, running ones included; not those that were given up."""
        return sum(self._outstanding.values())

    @property
    def busy(self) -> bool:
        """Whether a job runs, or has ended and `ended` has not returned it."""
        return self.outstanding > 0 or bool(self._ended)

    @property
    def has_coroutines(self) -> bool:
        """Whether a coroutine runs, as far as known without asking the event loop."""
        return any(jobs and kind is not None and kind.is_async for kind, jobs in self._outstanding.items())

    def room(self, kind: Kind) -> int:
        """Jobs of that kind to give now, whatever the others have: one running for each worker, and one waiting unless
        calls are long, so that none idles between two turns. Coroutines all run at once."""
        if kind.is_async:
            return 0 if self.home_ends else self._async_count - self._outstanding[kind]
        if self.inline:
            return 1
        return self.count * (1 if self._call_s >= _LONG_S else 2) - self._outstanding[kind]

    @property
    def home_ends(self) -> bool:
        """Whether the application's event loop is about to end."""
        return self._home is not None and self._home.ends

    @property
    def stuck(self) -> int:
        """Calls that were given up and have not ended."""
        return sum(self._stuck.values())

    def all_stuck(self, kind: Kind) -> bool:
        """Whether so many calls hang as may run at the same time, of threads or of coroutines."""
        return self._stuck[kind.is_async] >= (self._async_count if kind.is_async else self.count)

    @property
    def running(self) -> int:
        """Calls that run, as far as known without asking the workers."""
        return self.outstanding - self._of_threads + min(self._of_threads, self.count)

    @property
    def _of_threads(self) -> int:
        return sum(jobs for kind, jobs in self._outstanding.items() if kind is not None and not kind.is_async)

    def timings(self) -> Iterator[tuple[str, int, float]]:
        """Take the ended calls of handlers: handler, how many, seconds together."""
        while self._timings:
            yield self._timings.popleft()

    @property
    def chunk(self) -> int:
        """How many records to put into one job, by how long handlers took so far."""
        return max(1, min(_CHUNK_AT_MOST, int(_CHUNK_S / self._record_s)))

    def together(self, handler: Handler) -> int:
        """How many records to give to one task of that `async def`."""
        return self._together.records(handler.name)

    def share(self, records: int) -> int:
        """How many records to put into one job, of so many that came together: all workers get some, if it pays."""
        worth = int(_CHUNK_WORTH_S / self._record_s)
        return max(1, min(self.chunk, max(worth, -(-records // self.count))))

    def ended(self) -> deque[Ended]:
        """Take what has ended since the last call, in the order of ending."""
        self.wake.clear()
        ended: deque[Ended] = deque()
        while self._ended:
            ended.append(self._ended.popleft())
        return ended

    def put_back(self, ended: deque[Ended]) -> None:
        """Put back what was not looked at."""
        self._ended.extendleft(reversed(ended))

    def submit(self, entries: Sequence[Entry]) -> None:
        """Run the entries' handler: one after the other, or as one batch. Coroutines wait for `begin_coroutines`.

        Raises:
            RuntimeError: no thread can be started, and there is none: nothing of it has started.
        """
        handler, call = entries[0].handler, Call(entries, self._around)
        call.inline = self.inline
        self._charge(call)
        if handler.timeout_s is not None:
            self.timed.append(call)
        if handler.is_async:
            if call.records > 1 and not call.batch:
                self._chunks.append(call)
            self._to_begin.append(call)
            return

        if call.batch:
            call.run = partial(run_batch, report=self._ended.append)
        else:
            call.run = self._run_each
            if call.records > 1 and not self.inline:
                self._chunks.append(call)
        (self._run if self.inline else self._start)(call)

    def begin_coroutines(self) -> None:
        """Begin those that were submitted.

        Raises:
            RuntimeError: the application has closed its event loop.
            Exception: what its task factory has raised for an earlier one.
        """
        if self._to_begin:
            calls, self._to_begin = self._to_begin, []
            try:
                self.coroutines.begin_calls(calls, self._run_async, self._stepped, self._refused)
            except RuntimeError:
                for call in calls:
                    self._not_started(call)
                raise
        self.coroutines.begin()
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal

    def overdue(self) -> list[tuple[Entry, int, int]]:
        """The records that wait behind a slow one in its chunk, for other workers to take; and the jobs that wait while
        all workers are in long calls, for a record whose turn it is to be the next.

        Returns: entries, and of each how many of its records have ended, and how many a worker has begun; it begins no
        more of them. The slow record is the one that has begun and not ended.
        """
        if self.inline and not self._chunks:
            return []
        now = self._runtime.now()
        back = self._behind_long_calls(now)
        self._chunks = [chunk for chunk in self._chunks if not chunk.over]
        for chunk in self._chunks:
            current = chunk.current  # once: its worker goes on meanwhile
            if chunk.is_late(current, now):
                back += chunk.take_back(current)
        return back

    def recall(self) -> list[Entry]:
        """Take back the jobs that no worker has begun; not dead letters."""
        jobs: list[Call] = []
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                jobs.append(job)
            self._jobs.put(None)  # for the worker that it is to end
        for job in jobs:
            self._finish(job)
        return [entry for job in jobs for entry in job.entries]

    def _behind_long_calls(self, now: float) -> list[tuple[Entry, int, int]]:
        """Take back the jobs that were given while calls were short. Returns as `overdue`."""
        if self.inline or now - self.given_at < _LONG_S or self._of_threads <= self.count:
            return []
        with self._lock:
            self._call_s = max(self._call_s, _LONG_S)
        return [(entry, 0, 0) for entry in self.recall()]

    def submit_letter(self, entry: Entry, letter: Letter, letters: DeadLetters, timeout_s: float) -> None:
        """Send a dead letter from a thread, since it waits for the broker.

        Raises:
            RuntimeError: no thread can be started, and there is none.
        """
        call = Call()
        self._charge(call)
        call.run = lambda _: send_letter(entry, letter, letters, Deadline(timeout_s, self._runtime), self._ended.append)
        try:
            self._senders.put(partial(self._run, call), self._outstanding[None])
        except RuntimeError:
            self._ended.append(Ended(entry, Outcome.NOT_STARTED))
            self._finish(call)
            raise

    # ---- calls that run for too long
    def cancel(self, call: Call) -> None:
        """Ask a coroutine to end. A thread cannot be asked: its handler looks at `record.cancelled`, or does not."""
        if call.task is not None:
            self.coroutines.call(call.cancel)

    def give_up(self, call: Call, current: object) -> bool:
        """Wait for it no more, and put another thread in its thread's place. False = `current` has just ended."""
        with self._lock:
            if call.over or call.current is not current:
                return False
            call.over = True
            self._outstanding[call.kind] -= 1
            self._stuck[call.is_async] += 1
        if call.thread in self._threads:
            self._threads.remove(call.thread)
            self._add_thread()  # jobs may be waiting for it already
        return True

    def stop(self) -> None:
        """Let idle workers end. Those that run a handler are daemons: they do not keep the process."""
        for _ in self._threads:
            self._jobs.put(None)
        self._senders.stop()
        self.coroutines.stop()

    # ---- workers
    def _start(self, call: Call) -> None:
        """Raises RuntimeError: no thread runs, and none can be started; the call's records have not started."""
        try:
            self._add_thread()
        except RuntimeError:
            self._not_started(call)
            raise
        self._jobs.put(call)

    def _add_thread(self) -> None:
        if len(self._threads) < self.count and self._of_threads > len(self._threads):
            try:
                self._threads.append(self._runtime.spawn(self._work, f"{self._name}-{next(self._numbers)}"))
            except RuntimeError as error:  # the machine's limit, or the end of the process: those that run go on
                if not self._threads:
                    raise
                if not self._fewer_logged:
                    self._fewer_logged = True
                    _log.warning("going on with %d of %d threads: %s", len(self._threads), self.count, error)

    def _work(self) -> None:
        while (call := self._jobs.get()) is not None:
            if self._run(call):
                return

    def _run(self, call: Call) -> bool:
        """Whether this thread has been replaced meanwhile."""
        call.thread, call.began = self._runtime.current(), self._runtime.now()
        try:
            call.run(call)
        finally:
            replaced = self._finish(call)
        return replaced

    def _run_each(self, call: Call) -> None:
        began = self._runtime.now()
        run_each(call, self._ended.append)
        each = (self._runtime.now() - began) / call.records
        if not self.inline:
            # Twice as long at most: a worker may have waited for the interpreter, a hundred times as long as a quick
            # chunk takes, and chunks that are cut for that bring more of such waits. What waits behind records that are
            # slow indeed is taken back meanwhile (`overdue`).
            each = min(each, self._record_s * 2)
        # Up, in the polling thread at once, and down slowly: one slow record is not to be followed by many.
        self._record_s = max(each, self._record_s * 0.9, 1e-6)

    def _charge(self, call: Call) -> None:
        with self._lock:
            self._outstanding[call.kind] += 1

    def _finish(self, call: Call) -> bool:
        """Whether it had been given up, and another thread runs in the place of this one."""
        took = 0.0 if call.began is None else self._runtime.now() - call.began
        if call.times:
            self._timings.append((call.handler, call.times, took))
        with self._lock:
            given_up, call.over = call.over, True
            if given_up:
                self._stuck[call.is_async] -= 1
            else:
                self._outstanding[call.kind] -= 1
                if call.began is not None and call.kind is not None and not call.is_async:
                    self._call_s = max(took, self._call_s * 0.9)
        if not self.wake.is_set():  # setting it costs more, and whoever takes what has ended clears it before
            self.wake.set()
        return given_up

    async def _run_async(self, call: Call) -> None:
        call.task, call.home, call.began = asyncio.current_task(), self._home, self._runtime.now()
        try:
            await (run_batch_async if call.batch else run_each_async)(call, self._ended.append)
        finally:
            if not (call.batch or call.waits):
                self._together.ended(call.handler, call.records, self._runtime.now() - call.began, waited=False)
            self.coroutines.left(call)
            self._finish(call)

    def _stepped(self, calls: Sequence[Call]) -> None:
        """After the first steps of their tasks: a call that is not over waits for something, and one that has not begun
        was cancelled."""
        waiting = [call for call in calls if not (call.over or call.batch or call.began is None)]
        for call in waiting:
            call.waits = True
            self._together.ended(call.handler, call.records, 0.0, waited=True)
        if any(call.records > 1 for call in waiting):
            self.wake.set()  # for what stands behind one that waits
        for call in calls:
            if call.began is None:
                if self._home is not None:
                    self._home.cancelled()
                self.coroutines.left(call)
                self._not_started(call)

    def _refused(self, calls: Sequence[Call], error: Exception) -> None:
        self._refusal = error
        for call in calls:
            if not call.over:  # an eager task has ended with the closing of its coroutine
                self._not_started(call)

    def _not_started(self, call: Call) -> None:
        report_not_started(call, self._ended.append)
        self._finish(call)
