"""Scheduler: one thread plays all threads of all processes under virtual time, and a seed decides who goes next.

Each thread of the world is a greenlet, and the hub, which is whoever calls `run`, resumes one after the other. Only
where a task waits, looks at a clock or takes a lock may another one go on: so a world is the same each time, anywhere.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from holdfast.testing.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
#: How often a task is told to end that catches everything.
_TOLD_TO_END = 50

#: From Python 3.12 on; from 3.14 on the current task is one of the thread's, and not of the loop's.
_swap_current_task = getattr(asyncio.tasks, "_swap_current_task", None)


@dataclass(frozen=True, slots=True)
class Crash:
    """What a task raised and nobody caught."""

    process: str
    task: str
    at: float
    error: BaseException
    trace: str

    def __str__(self) -> str:
        return f"{self.process}, {self.task}: {self.error!r}"


class Waiter:
    """One wait of one task."""

    __slots__ = ("task", "ticket", "told")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.ticket = task.ticket + 1
        #: Somebody has woken it; else its time has passed.
        self.told = False


class Task:
    """One thread of one process. Made by `Process.spawn`; two are the same if they are the same object."""

    __slots__ = (
        "_ended",
        "_greenlet",
        "_interrupt",
        "_raised",
        "_scheduler",
        "_target",
        "name",
        "number",
        "process",
        "ticket",
    )

    def __init__(self, scheduler: Scheduler, process: Process, target: Callable[[], None], name: str) -> None:
        self.process = process
        self.name = name
        self.number = scheduler.number()
        #: Of its current wait: what would wake it from an earlier one comes too late.
        self.ticket = 0
        self._scheduler = scheduler
        self._target = target
        self._greenlet = greenlet(self._run, scheduler.hub)  # there it goes when it ends
        self._interrupt: BaseException | None = None
        self._raised: BaseException | None = None
        #: Who waits for its end; None = it has ended.
        self._ended: list[Waiter] | None = []

    def is_alive(self) -> bool:
        """Whether it has not ended, and neither has its process."""
        return self._ended is not None and self.process.alive

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, no longer than that many seconds of its process' clock."""
        if self._ended is not None:
            self._scheduler.wait_among(self._ended, self.process.real_s(timeout))

    def interrupt(self, error: BaseException) -> None:
        """Raise that where it waits, or at its next wait: as Python does with a signal in a process' first thread."""
        self._interrupt = error
        self._scheduler.hasten(self)

    def raise_interrupt(self) -> None:
        """What was given to `interrupt`, once. After each wait."""
        if self._interrupt is not None:
            self._raised, self._interrupt = self._interrupt, None
            raise self._raised

    def resume(self) -> None:
        """Run until it waits. In the hub."""
        self._greenlet.switch()

    def end(self) -> None:
        """Let it leave all that it is in. In the hub."""
        for _ in range(_TOLD_TO_END):
            if self._greenlet.dead:
                return
            with suppress(BaseException):  # whatever it raises on its way out: the world is over
                self._greenlet.throw(GreenletExit)

    def _run(self) -> None:
        if self._scheduler.profile is not None:
            sys.setprofile(self._scheduler.profile)
        try:
            self._target()
        except Exception as error:  # noqa: BLE001 - for who judges `errors`
            self._failed(error)
        except BaseException as error:
            if error is not self._raised:
                raise  # the end of the world, or Ctrl-C of the person who runs it
            self._failed(error)
        finally:
            waiters, self._ended = self._ended or [], None
            self._scheduler.has_ended(self, waiters)

    def _failed(self, error: BaseException) -> None:
        if self._scheduler.over:
            return  # on its way out
        crash = Crash(self.process.name, self.name, self._scheduler.now, error, traceback.format_exc())
        self._scheduler.errors.append(crash)

    def __repr__(self) -> str:
        return f"Task({self.process.name}, {self.name})"


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
        self._now = _BEGINS_AT
        self._slice_ends = 0.0
        #: When, a seeded tie-break, a number (nothing after it is compared), the wait that it ends, and whose.
        self._heap: list[tuple[float, float, int, int, Task | Callable[[], None]]] = []
        self._numbers = count(1)
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - public for authors of event loops, says asyncio
            raise RuntimeError("a world has event loops of its own: do not play it in one that runs")
        #: Who runs it.
        self.hub = getcurrent()
        self._task: Task | None = None
        self._tasks: dict[int, Task] = {}
        self._at_end: list[tuple[Callable[[], None], Callable[[], None]]] = []

    # ---- anywhere
    @property
    def now(self) -> float:
        """Virtual seconds. Who reads it here is not overtaken."""
        return self._now

    @property
    def current(self) -> Task | None:
        """Who runs; None = the hub."""
        return self._task

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

    def spawn(self, process: Process, target: Callable[[], None], name: str) -> Task:
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
        if self._task is not None and not self.over:
            self._now += _LOOK_S
            self.stand_aside()
        return self._now

    def stand_aside(self) -> None:
        """Perhaps others go first."""
        if self._task is None or self.over:
            return
        if self._now > self._slice_ends or (self._odds and self.random.random() < self._odds):
            self.wait(self.random.random() * _ASIDE_S)

    def wait(self, seconds: float | None) -> None:
        """The current task goes on when so many seconds have passed, or when it is woken.

        Raises:
            RuntimeError: called in the hub.
        """
        if self.over:
            raise GreenletExit
        task = self._task
        if task is None:
            raise RuntimeError("nothing may wait in the hub: spawn a task in a process")
        task.ticket += 1
        if seconds is not None:
            self._push(self._now + seconds, task)
        loop = asyncio._get_running_loop()  # noqa: SLF001 - as in `__init__`
        if loop is None:
            self.hub.switch()
        else:
            with _put_aside(loop):
                self.hub.switch()
        if self.over:
            raise GreenletExit
        task.raise_interrupt()

    def wait_among(self, waiters: list[Waiter], seconds: float | None) -> bool:
        """Wait until told by `tell`. Returns: whether it was told, or else the time has passed."""
        if self._task is None:
            raise GreenletExit if self.over else RuntimeError("nothing may wait in the hub: spawn a task in a process")
        waiter = Waiter(self._task)
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
            if due > self._now:  # noqa: PLR1730 - thousands a second
                self._now = due
            if not isinstance(what, Task):
                what()
            elif ticket == what.ticket and what.process.alive:
                if what.process.stalled_until > self._now:
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
            self._task = task
            task.end()
        self._task = None
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
        self._task = task
        self._slice_ends = self._now + _SLICE_S
        self.switches += 1
        self.digest = hash((self.digest, task.number, self._now))  # of numbers: no seed of Python's in it
        try:
            task.resume()
        finally:
            self._task = None

    def _wake(self, task: Task) -> None:
        late_s = 0.0
        if self._jitter:
            drawn = self.random.random()
            late_s = drawn * (_SOON_S if drawn < 1 - _LATE_ODDS else _LATE_S)
        self._push(self._now + late_s, task)

    def _push(self, due: float, task: Task) -> None:
        tie = self.random.random() if self._jitter else 0.0
        heappush(self._heap, (due, tie, next(self._numbers), task.ticket, task))

    def _check_hub(self) -> None:
        if getcurrent() is not self.hub:
            raise RuntimeError("only the thread that made the scheduler runs and ends it, outside of all tasks")


@contextmanager
def _put_aside(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """What asyncio and Python keep for each thread of the system: other tasks of the world have event loops too."""
    hooks = sys.get_asyncgen_hooks()
    running = None if _swap_current_task is None else asyncio.current_task(loop)
    if running is not None and _swap_current_task is not None:
        _swap_current_task(loop, None)
    asyncio._set_running_loop(None)  # noqa: SLF001 - as `_get_running_loop` above
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001
        if running is not None and _swap_current_task is not None:
            _swap_current_task(loop, running)
        sys.set_asyncgen_hooks(*hooks)
