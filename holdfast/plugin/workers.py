"""Workers: threads for plain functions, one event loop for `async def`; what ends is put where the loop finds it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from holdfast.plugin.pipeline import run_batch, run_batch_async, run_each, run_each_async, send_letter
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.dead_letter import Letter
    from holdfast.plugin.lanes import Entry
    from holdfast.plugin.pipeline import Ended
    from holdfast.plugin.ports import DeadLetters

#: Quick handlers are given to a worker several at a time, as many as take about so long: each hand-over between two
#: threads costs tens of microseconds. A chunk is never so long that others would wait for it to notice.
_CHUNK_S = 0.002
_CHUNK_AT_MOST = 64
#: A chunk that takes longer has met a slow record: the others need not wait for it.
_CHUNK_LATE_S = 0.005


class _Chunk:
    """Records that one worker takes one after the other, from the left; the loop takes back from the right."""

    __slots__ = ("began", "entries")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = deque(entries)
        self.began: float | None = None


class Workers:
    """At most `count` handlers at a time. `submit` and `ended` belong to the thread that runs the app."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ended: deque[Ended] = deque()
        #: Set when something has ended.
        self.wake = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # innermost; guards the count alone
        self._outstanding = 0
        self._record_s = _CHUNK_S
        #: Chunks that may hold records which have not started.
        self._chunks: list[_Chunk] = []

    # ---- the thread that runs the app
    @property
    def outstanding(self) -> int:
        """Jobs given and not finished, running ones included."""
        return self._outstanding

    @property
    def busy(self) -> bool:
        """Whether a job runs, or has ended and nobody has looked."""
        return self._outstanding > 0 or bool(self._ended)

    @property
    def room(self) -> int:
        """Jobs to give now: one running and one waiting for each worker, so that none idles between two turns."""
        return 2 * self._count - self.outstanding

    @property
    def async_room(self) -> int:
        """The same for coroutines, which all run at once."""
        return self._count - self.outstanding

    @property
    def chunk(self) -> int:
        """How many records to put into one job, by how long handlers took so far."""
        return max(1, min(_CHUNK_AT_MOST, int(_CHUNK_S / self._record_s)))

    def ended(self) -> deque[Ended]:
        """What has ended since the last call, in the order of ending."""
        self.wake.clear()
        ended: deque[Ended] = deque()
        while self._ended:
            ended.append(self._ended.popleft())
        return ended

    def put_back(self, ended: deque[Ended]) -> None:
        """These were not looked at."""
        self._ended.extendleft(reversed(ended))

    def submit(self, entries: Sequence[Entry]) -> None:
        """Run the entries' handler: one after the other, or as one batch."""
        handler = entries[0].handler
        self._count_one(1)
        if handler.is_async:
            self._submit_async(entries)
            return

        if handler.batch:
            self._start(lambda: run_batch(entries, self._ended.append))
            return
        chunk = _Chunk(entries)
        if len(entries) > 1:
            self._chunks.append(chunk)

        def job() -> None:
            chunk.began = SYSTEM_CLOCK.now()
            run_each(chunk.entries, self._ended.append)
            each = (SYSTEM_CLOCK.now() - chunk.began) / len(entries)
            # Up at once, down slowly: one slow record must not be followed by a long chunk of slow ones.
            self._record_s = max(each, self._record_s * 0.9, 1e-6)

        self._start(job)

    def overdue(self) -> list[Entry]:
        """What waits behind a slow record in its chunk, for other workers to take: it has not started."""
        if not self._chunks:
            return []
        late, back = SYSTEM_CLOCK.now() - _CHUNK_LATE_S, []
        for chunk in self._chunks:
            while chunk.began is not None and chunk.began < late:
                try:
                    back.append(chunk.entries.pop())
                except IndexError:
                    break
        self._chunks = [chunk for chunk in self._chunks if chunk.entries]
        back.reverse()
        return back

    def submit_letter(self, entry: Entry, letter: Letter, letters: DeadLetters, timeout_s: float) -> None:
        """Send a dead letter from a worker, since it waits for the broker."""
        self._count_one(1)
        self._start(lambda: send_letter(entry, letter, letters, timeout_s, self._ended.append))

    def stop(self) -> None:
        """Let idle workers end. Those that run a handler are daemons: they do not keep the process."""
        for _ in self._threads:
            self._jobs.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    # ---- workers
    def _start(self, job: Callable[[], None]) -> None:
        if len(self._threads) < self._count and self.outstanding > len(self._threads):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                self._finish()

    def _count_one(self, step: int) -> None:
        with self._lock:
            self._outstanding += step

    def _finish(self) -> None:
        self._count_one(-1)
        self.wake.set()

    def _submit_async(self, entries: Sequence[Entry]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run_loop, args=(self._loop,), name=f"{self._name}-async", daemon=True).start()

        async def job() -> None:
            try:
                if entries[0].handler.batch:
                    await run_batch_async(entries, self._ended.append)
                else:
                    await run_each_async(entries, self._ended.append)
            finally:
                self._finish()

        asyncio.run_coroutine_threadsafe(job(), self._loop)

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
