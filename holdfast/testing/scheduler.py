"""Scheduler: one thread plays all threads of all processes under virtual time, and a seed decides which runs next.

Each thread of the world is a greenlet (a task). The hub, the greenlet that calls `run`, resumes one task after the
other. Tasks switch only where one waits, reads a clock or takes a lock, so a world is the same in each run, on any
machine.
"""

from __future__ import annotations

from asyncio import _get_running_loop  # public for authors of event loops, says asyncio
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent

from holdfast.testing.process import Process
from holdfast.testing.tasks import Task, Waiter, WaitInHub, switch_aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.tasks import Crash, Owner

#: Not 0: a world that begins at 0 would hide code that reads a time of 0 as "never".
_BEGINS_AT = 1000.0
#: Reading a clock takes this long, so that time passes for a task that waits by polling a clock.
_LOOK_S = 1e-6
#: A task that has not waited for this long is preempted (the default of `sys.getswitchinterval`).
_SLICE_S = 0.005
#: A woken task goes on within `_SOON_S`, or, with these odds, within `_LATE_S`.
_SOON_S, _LATE_S, _LATE_ODDS = 1e-4, 3e-3, 0.03
#: The longest time that a preempted task stands aside.
_ASIDE_S = 1e-3


class Scheduler:
    """The time of one world, and the order of its tasks. Belongs to the thread that made it; call `end` when done.

    Args:
        seed: of every random choice.
        jitter: False = woken tasks go on at once, in the order of waking, and no task is preempted. The story of a
            failure that does not need jitter is shorter so.
        yield_odds: probability (0 to 1) that a task is preempted where it reads a clock or takes a lock.

    Raises:
        RuntimeError: made inside a running event loop.
    """

    def __init__(self, seed: int, *, jitter: bool = True, yield_odds: float = 0.01) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._draw = self.random.random  # thousands a world
        #: Errors that tasks raised and did not catch.
        self.errors: list[Crash] = []
        #: Passed to `sys.setprofile` in each task, to count calls.
        self.profile: Callable[[Any, str, Any], object] | None = None
        #: How often a task was resumed.
        self.switches = 0
        #: A hash over (task, time) of each switch: equal for equal worlds, in any process.
        self.digest = 0
        #: The world has ended: a wait raises GreenletExit.
        self.over = False
        self._jitter = jitter
        self._odds = yield_odds if jitter else 0.0
        #: Virtual seconds. Reading this attribute never switches tasks; `look` may.
        self.now = _BEGINS_AT
        self._slice_ends = 0.0
        #: (due, seeded tie-break, unique number, ticket of the wait that it ends, task or call). Comparison ends at the
        #: number.
        self._heap: list[tuple[float, float, int, int, Task | Callable[[], None]]] = []
        self._numbers = count(1)
        if _get_running_loop() is not None:
            raise RuntimeError("a world has event loops of its own: do not play it in one that runs")
        #: The greenlet that calls `run`.
        self.hub = getcurrent()
        #: The running task; None = the hub.
        self.current: Task | None = None
        self._tasks: dict[int, Task] = {}
        self._at_end: list[tuple[Callable[[], None], Callable[[], None]]] = []

    # ---- anywhere
    def number(self) -> int:
        """The next number of this world. Objects of the world are named by it, equally in each run."""
        return next(self._numbers)

    def process(
        self, name: str, *, clock_offset_s: float = 0.0, clock_rate: float = 1.0, preempted: bool = True
    ) -> Process:
        """A process that has just started.

        Args:
            name: for stories; a restarted process may have the same name.
            clock_offset_s: how far its clock is ahead of the world's.
            clock_rate: seconds of its clock in one second of the world.
            preempted: False = its clock and its locks never switch tasks: for the state of a server, where each call
                is atomic.
        """
        return Process(self, name, clock_offset_s=clock_offset_s, clock_rate=clock_rate, preempted=preempted)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Have the hub call this at a time of `now`. The call must not wait; spawn a task in a process for that."""
        heappush(self._heap, (when, 0.0, self.number(), 0, call))

    def spawn(self, process: Owner, target: Callable[[], None], name: str) -> Task:
        """Start a thread of a process."""
        task = Task(self, process, target, name)
        if not self.over:
            self._tasks[task.number] = task
            self._wake(task)
        return task

    def at_end(self, first: Callable[[], None], last: Callable[[], None]) -> None:
        """Have `end` call `first` before it ends the tasks, and `last` after."""
        self._at_end.append((first, last))

    # ---- a task
    def look(self) -> float:
        """The time when the answer arrives: reading a clock takes time, and other tasks may run meanwhile."""
        if self.current is None or self.over:
            return self.now
        self.now = now = self.now + _LOOK_S
        # `stand_aside`, inlined: this is the most frequent call.
        if now > self._slice_ends or (self._odds and self._draw() < self._odds):
            self.wait(self._draw() * _ASIDE_S)
        return self.now

    def stand_aside(self) -> None:
        """Let other tasks run first, by chance or at the end of the time slice."""
        if self.current is None or self.over:
            return
        if self.now > self._slice_ends or (self._odds and self._draw() < self._odds):
            self.wait(self._draw() * _ASIDE_S)

    def wait(self, seconds: float | None) -> None:
        """Suspend the current task for so many seconds of the world (None = for ever), or until it is woken.

        Raises:
            RuntimeError: called in the hub.
        """
        if self.over:
            raise GreenletExit
        task = self.current
        if task is None:
            raise WaitInHub
        task.ticket += 1
        if seconds is not None:
            self._push(self.now + seconds, task)
        loop = _get_running_loop()
        if loop is None:
            self.hub.switch()
        else:
            switch_aside(self.hub, loop)
        if self.over:
            raise GreenletExit
        task.raise_interrupt()

    def wait_among(self, waiters: list[Waiter], seconds: float | None) -> bool:
        """Wait for `tell`. Returns: True if `tell` came, False if the time passed."""
        if self.current is None:
            raise GreenletExit if self.over else WaitInHub
        waiter = Waiter(self.current)
        waiters.append(waiter)
        try:
            self.wait(seconds)
        finally:
            if not waiter.told:
                waiters.remove(waiter)
        return waiter.told

    def tell(self, waiters: list[Waiter]) -> None:
        """Wake all these waiters."""
        for waiter in waiters:
            waiter.told = True
            if waiter.ticket == waiter.task.ticket:
                self._wake(waiter.task)
        waiters.clear()

    def hasten(self, task: Task) -> None:
        """Wake a task from any wait."""
        self._wake(task)

    # ---- the hub
    def run(self, over: Callable[[], bool], until: float) -> bool:
        """Run tasks and calls in the order of time until `over()` is true.

        Args:
            over: asked before each step.
            until: the last time of `now` that is played.

        Returns:
            True if `over()` is true; False if the time is up or nothing is left to do.
        """
        self._check_hub()
        heap = self._heap
        while not over():
            if not heap or heap[0][0] > until:
                return False
            due, _, _, ticket, what = heappop(heap)
            if due > self.now:  # noqa: PLR1730 - thousands a second
                self.now = due
            if not isinstance(what, Task):
                what()
            elif ticket == what.ticket and what.process.alive:
                if what.process.stalled_until > self.now:
                    self._push(what.process.stalled_until, what)
                else:
                    self._resume(what)
        return True

    def end(self) -> None:
        """End the world: each task unwinds now, and not when garbage is collected. Idempotent."""
        self._check_hub()
        self.over = True
        for first, _ in self._at_end:
            first()
        for task in list(self._tasks.values()):
            self.current = task
            task.end()
        self.current = None
        self._tasks.clear()
        self._heap.clear()
        for _, last in self._at_end:
            last()
        self._at_end.clear()

    def has_ended(self, task: Task, waiters: list[Waiter]) -> None:
        """Called by the task itself, as its last step."""
        self._tasks.pop(task.number, None)
        task.ticket = -1
        if not self.over:
            self.tell(waiters)

    def _resume(self, task: Task) -> None:
        self.current = task
        self._slice_ends = self.now + _SLICE_S
        self.switches += 1
        self.digest = hash((self.digest, task.number, self.now))  # numbers alone: PYTHONHASHSEED has no effect
        try:
            task.resume()
        finally:
            self.current = None

    def _wake(self, task: Task) -> None:
        late_s = 0.0
        if self._jitter:
            drawn = self._draw()
            late_s = drawn * (_SOON_S if drawn < 1 - _LATE_ODDS else _LATE_S)
        self._push(self.now + late_s, task)

    def _push(self, due: float, task: Task) -> None:
        tie = self._draw() if self._jitter else 0.0
        heappush(self._heap, (due, tie, next(self._numbers), task.ticket, task))

    def _check_hub(self) -> None:
        if getcurrent() is not self.hub:
            raise RuntimeError("only the thread that made the scheduler runs and ends it, outside of all tasks")
