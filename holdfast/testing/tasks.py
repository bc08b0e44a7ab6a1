"""Task: one thread of a simulated process, as a greenlet."""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import GreenletExit, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.timing import Clock


#: How often GreenletExit is thrown into a task that catches everything.
_TOLD_TO_END = 50

#: Exists from Python 3.12 on. From 3.14 on the current task belongs to the thread, and not to the loop.
_swap_current_task = getattr(asyncio.tasks, "_swap_current_task", None)


class WaitInHub(RuntimeError):
    """A call waits in the hub, where no time passes."""

    def __init__(self) -> None:
        super().__init__("nothing may wait in the hub: spawn a task in a process")


@dataclass(frozen=True, slots=True)
class Crash:
    """An error that a task raised and did not catch."""

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
        #: True if `Scheduler.tell` woke it; False if its time passed.
        self.told = False


class Owner(Protocol):
    """The process of a task (`Process`), as the task sees it."""

    name: str
    number: int
    alive: bool
    preempted: bool
    stalled_until: float
    clock_rate: float
    clock_offset_s: float

    @property
    def runtime(self) -> Clock:
        """The clock of the process."""
        ...

    def real_s(self, seconds: float | None) -> float | None:
        """Seconds of the process as seconds of the world."""
        ...

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        """Start a thread of the process."""
        ...


class Scheduling(Protocol):
    """The scheduler, as a task and its runtime see it. `Scheduler` documents each member."""

    seed: int
    now: float
    over: bool
    hub: greenlet
    current: Task | None
    errors: list[Crash]
    profile: Callable[[Any, str, Any], object] | None

    def number(self) -> int: ...  # noqa: D102 - see `Scheduler`, also below
    def spawn(self, process: Owner, target: Callable[[], None], name: str) -> Task: ...  # noqa: D102
    def at_end(self, first: Callable[[], None], last: Callable[[], None]) -> None: ...  # noqa: D102
    def look(self) -> float: ...  # noqa: D102
    def stand_aside(self) -> None: ...  # noqa: D102
    def wait(self, seconds: float | None) -> None: ...  # noqa: D102
    def wait_among(self, waiters: list[Waiter], seconds: float | None) -> bool: ...  # noqa: D102
    def tell(self, waiters: list[Waiter]) -> None: ...  # noqa: D102
    def hasten(self, task: Task) -> None: ...  # noqa: D102
    def has_ended(self, task: Task, waiters: list[Waiter]) -> None: ...  # noqa: D102


class Task:
    """One thread of one process. Made by `Process.spawn`; compared by identity."""

    __slots__ = (
        "_ended",
        "_greenlet",
        "_interrupt",
        "_passed",
        "_raised",
        "_scheduler",
        "_target",
        "name",
        "number",
        "process",
        "resume",
        "ticket",
    )

    def __init__(self, scheduler: Scheduling, process: Owner, target: Callable[[], None], name: str) -> None:
        self.process = process
        self.name = name
        self.number = scheduler.number()
        #: The number of its current wait. A wake-up with another ticket is for an earlier wait, and ignored.
        self.ticket = 0
        self._scheduler = scheduler
        self._target = target
        self._greenlet = greenlet(self._run, scheduler.hub)  # the hub goes on when the task ends
        #: Run the task until it waits. Called in the hub.
        self.resume = self._greenlet.switch
        self._interrupt: BaseException | None = None
        #: `_interrupt` is raised after so many more waits.
        self._passed = 0
        self._raised: BaseException | None = None
        #: Waiters for its end; None = it has ended.
        self._ended: list[Waiter] | None = []

    def is_alive(self) -> bool:
        """Whether neither the task nor its process has ended."""
        return self._ended is not None and self.process.alive

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, for at most `timeout` seconds of its process' clock."""
        if self._ended is not None:
            self._scheduler.wait_among(self._ended, self.process.real_s(timeout))

    def interrupt(self, error: BaseException, after: int = 0) -> None:
        """Raise `error` where the task waits now, as a signal handler does in a process' first thread; or `after` waits
        later."""
        self._interrupt, self._passed = error, after
        if not after:
            self._scheduler.hasten(self)

    @property
    def is_to_be_interrupted(self) -> bool:
        """Whether the error given to `interrupt` is still to be raised."""
        return self._interrupt is not None

    def raise_interrupt(self) -> None:
        """Raise the error given to `interrupt`, once. Called after each wait."""
        if self._interrupt is not None:
            if self._passed:
                self._passed -= 1
                return
            self._raised, self._interrupt = self._interrupt, None
            raise self._raised

    def end(self) -> None:
        """Unwind the task. Called in the hub."""
        for _ in range(_TOLD_TO_END):
            if self._greenlet.dead:
                return
            with suppress(BaseException):  # the world is over: errors while it unwinds do not matter
                self._greenlet.throw(GreenletExit)

    def _run(self) -> None:
        if self._scheduler.profile is not None:
            sys.setprofile(self._scheduler.profile)
        try:
            self._target()
        except Exception as error:  # noqa: BLE001 - kept in `Scheduler.errors`
            self._failed(error)
        except BaseException as error:
            if error is not self._raised:
                raise  # the world ends, or a person pressed Ctrl-C
            self._failed(error)
        finally:
            waiters, self._ended = self._ended or [], None
            self._scheduler.has_ended(self, waiters)

    def _failed(self, error: BaseException) -> None:
        if self._scheduler.over:
            return  # it unwinds
        crash = Crash(self.process.name, self.name, self._scheduler.now, error, traceback.format_exc())
        self._scheduler.errors.append(crash)

    def __repr__(self) -> str:
        return f"Task({self.process.name}, {self.name})"


def switch_aside(hub: greenlet, loop: asyncio.AbstractEventLoop) -> None:
    """Go to the hub from inside an event loop. State that asyncio and Python keep for each system thread (running loop,
    current task, hooks) is put aside meanwhile, since other tasks of this thread have event loops too."""
    hooks = sys.get_asyncgen_hooks()
    running = None if _swap_current_task is None else asyncio.current_task(loop)
    if running is not None and _swap_current_task is not None:
        _swap_current_task(loop, None)
    asyncio._set_running_loop(None)  # noqa: SLF001 - public for authors of event loops, says asyncio
    sys.set_asyncgen_hooks(None, None)
    try:
        hub.switch()
    finally:
        asyncio._set_running_loop(loop)  # noqa: SLF001 - as above
        if running is not None and _swap_current_task is not None:
            _swap_current_task(loop, running)
        sys.set_asyncgen_hooks(*hooks)
