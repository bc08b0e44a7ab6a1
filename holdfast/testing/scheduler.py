"""Scheduler: one thread plays all threads of all processes under virtual time, and a seed decides who goes next.

Each thread of the world is a greenlet, and the hub, which is whoever calls `run`, resumes one after the other. Only
where a task waits, looks at a clock or takes a lock may another one go on: so a world is the same each time, anywhere.
"""

from __future__ import annotations

from asyncio import _get_running_loop  # public for authors of event loops, says asyncio
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent

from holdfast.testing.process import Process
from holdfast.testing.tasks import NobodyWaits, Task, Waiter, switch_aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.tasks import Crash, Owner

#: Not 0, which would hide what takes 0 for "never".
_BEGINS_AT = 1000.0
#: What a look at a clock costs: time has to pass for who waits by looking.
_LOOK_S = 1e-6
#: After so long without a wait the system takes the processor away, as `sys.getswitchinterval` has it.
_SLICE_S = 0.005
#: How late a task goes on after it was woken: mostly at once, now and then not.
_SOON_S, _LATE_S, _LATE_ODDS = 1e-4, 3e-3, 0.03
#: How long, at most, a task stands aside that others overtake.
_ASIDE_S = 1e-3


class Scheduler:
    """One world's time and who goes next. Belongs to the thread that made it; ends with `end`.

    Args:
        seed: decides all that is not said.
        jitter: False = who is woken goes on at once, in the order of waking, and nobody is overtaken: for a smaller
            story of what also fails without.
        yield_odds: how likely a task is overtaken where it looks at a clock or takes a lock.

    Raises:
        RuntimeError: made inside of an event loop that runs.
    """

    def __init__(self, seed: int, *, jitter: bool = True, yield_odds: float = 0.01) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._draw = self.random.random  # thousands a world
        #: What tasks raised and nobody caught.
        self.errors: list[Crash] = []
        #: Given to `sys.setprofile` in each task: for counting calls.
        self.profile: Callable[[Any, str, Any], object] | None = None
        #: How often a task was resumed.
        self.switches = 0
        #: Of who went when: the same for the same world, in any process.
        self.digest = 0
        #: The world is over: nobody waits any more.
        self.over = False
        self._jitter = jitter
        self._odds = yield_odds if jitter else 0.0
        #: Virtual seconds. Who reads it here is not overtaken.
        self.now = _BEGINS_AT
        self._slice_ends = 0.0
        #: When, a seeded tie-break, a number (nothing after it is compared), the wait that it ends, and whose.
        self._heap: list[tuple[float, float, int, int, Task | Callable[[], None]]] = []
        self._numbers = count(1)
        if _get_running_loop() is not None:
            raise RuntimeError("a world has event loops of its own: do not play it in one that runs")
        #: Who runs it.
        self.hub = getcurrent()
        #: Who runs; None = the hub.
        self.current: Task | None = None
        self._tasks: dict[int, Task] = {}
        self._at_end: list[tuple[Callable[[], None], Callable[[], None]]] = []

    # ---- anywhere
    def number(self) -> int:
        """One that nobody else has: for what is made in the world, so that it gets the same name each time."""
        return next(self._numbers)

    def process(
        self, name: str, *, clock_offset_s: float = 0.0, clock_rate: float = 1.0, preempted: bool = True
    ) -> Process:
        """A process that has just started.

        Args:
            name: for stories; another start of it may have the same.
            clock_offset_s: how far its clocks are ahead.
            clock_rate: how many of its seconds pass in one of the world.
            preempted: False = nobody is overtaken where its clock and its locks are asked: for a server's state, whose
                calls are one step.
        """
        return Process(self, name, clock_offset_s=clock_offset_s, clock_rate=clock_rate, preempted=preempted)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Have the hub call that then. It must not wait: what has to, is spawned in a process."""
        heappush(self._heap, (when, 0.0, self.number(), 0, call))

    def spawn(self, process: Owner, target: Callable[[], None], name: str) -> Task:
        """Start a thread of a process."""
        task = Task(self, process, target, name)
        if not self.over:
            self._tasks[task.number] = task
            self._wake(task)
        return task

    def at_end(self, first: Callable[[], None], last: Callable[[], None]) -> None:
        """Have `end` call `first` before the tasks leave, and `last` when none is left."""
        self._at_end.append((first, last))

    # ---- a task
    def look(self) -> float:
        """The time, as it is when the answer arrives: a look costs time, and others may overtake meanwhile."""
        if self.current is None or self.over:
            return self.now
        self.now = now = self.now + _LOOK_S
        # As `stand_aside`: it is asked for the time more often than for all else together.
        if now > self._slice_ends or (self._odds and self._draw() < self._odds):
            self.wait(self._draw() * _ASIDE_S)
        return self.now

    def stand_aside(self) -> None:
        """Perhaps others go first."""
        if self.current is None or self.over:
            return
        if self.now > self._slice_ends or (self._odds and self._draw() < self._odds):
            self.wait(self._draw() * _ASIDE_S)

    def wait(self, seconds: float | None) -> None:
        """The current task goes on when so many seconds have passed, or when it is woken.

        Raises:
            RuntimeError: called in the hub.
        """
        if self.over:
            raise GreenletExit
        task = self.current
        if task is None:
            raise NobodyWaits
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
        """Wait until told by `tell`. Returns: whether it was told, or else the time has passed."""
        if self.current is None:
            raise GreenletExit if self.over else NobodyWaits
        waiter = Waiter(self.current)
        waiters.append(waiter)
        try:
            self.wait(seconds)
        finally:
            if not waiter.told:
                waiters.remove(waiter)
        return waiter.told

    def tell(self, waiters: list[Waiter]) -> None:
        """Wake all of them."""
        for waiter in waiters:
            waiter.told = True
            if waiter.ticket == waiter.task.ticket:
                self._wake(waiter.task)
        waiters.clear()

    def hasten(self, task: Task) -> None:
        """Let it go on, whatever it waits for."""
        self._wake(task)

    # ---- the hub
    def run(self, over: Callable[[], bool], until: float) -> bool:
        """Let the world go on.

        Args:
            over: asked after each step.
            until: a time of `now`.

        Returns:
            False: the time is up, or nothing is left to do.
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
        """The world is over: every task leaves what it is in, now and not when garbage is collected. Idempotent."""
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
        """Called by the task itself, as the last thing that it does."""
        self._tasks.pop(task.number, None)
        task.ticket = -1
        if not self.over:
            self.tell(waiters)

    def _resume(self, task: Task) -> None:
        self.current = task
        self._slice_ends = self.now + _SLICE_S
        self.switches += 1
        self.digest = hash((self.digest, task.number, self.now))  # of numbers: no seed of Python's in it
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
