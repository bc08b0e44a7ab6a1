"""SimulatedRuntime: clock, threads, locks and chance of one process in a simulated world. It takes no real time."""

from __future__ import annotations

from collections import deque
from queue import Empty
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.testing.event_loop import SimulatedEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.runtime import Thread
    from holdfast.testing.tasks import Owner, Scheduling, Waiter

T = TypeVar("T")

#: The wall time at which a process' clock shows 0: November 2023, in milliseconds since 1970.
_WALL_MS = 1_700_000_000_000


class _Hub:
    """Stands for the hub where code that it calls asks for the current thread."""

    def is_alive(self) -> bool:
        """Implements `Thread.is_alive`."""
        return True

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002 - as of `Thread`
        """Raise RuntimeError: the hub ends after all tasks, so waiting for it would never end."""
        raise RuntimeError("the hub is no task")


class SimulatedRuntime:
    """Implements `holdfast.runtime.Runtime`. Tasks of the process call it; the hub may call what does not wait.

    Other tasks may run where a task reads the clock, takes a lock, sets an event or starts a task. A system preempts
    threads anywhere, but these are the points at which the order of threads decides what they do to each other.
    """

    def __init__(self, scheduler: Scheduling, process: Owner) -> None:
        self._scheduler = scheduler
        self._process = process
        self._look = scheduler.look
        #: Whether other tasks may run where a clock is read or a lock is taken.
        self.preempted = process.preempted
        #: The current thread where no task runs.
        self.hub = _Hub()
        #: For jitter. Each start of a process has its own, so that other processes do not change what it draws.
        self.random = Random(f"{scheduler.seed} {process.number} {process.name}")
        self._tokens = Random(f"{scheduler.seed} {process.number} {process.name} tokens")

    def now(self) -> float:
        """Implements `Clock.now`, by the process' own clock."""
        process = self._process
        time = self._look() if self.preempted else self._scheduler.now
        return time * process.clock_rate + process.clock_offset_s

    def sleep(self, seconds: float) -> None:
        """Implements `Clock.sleep`."""
        self._scheduler.wait(self._process.real_s(seconds))

    def wall_ms(self) -> int:
        """Implements `Runtime.wall_ms`."""
        return _WALL_MS + int(self.now() * 1000)

    def token(self, octets: int) -> str:
        """Implements `Runtime.token`."""
        return self._tokens.randbytes(octets).hex()

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        """Implements `Runtime.spawn`."""
        task = self._process.spawn(target, name)
        self.stand_aside()
        return task

    def current(self) -> Thread:
        """Implements `Runtime.current`."""
        return self._scheduler.current or self.hub

    def lock(self) -> Lock:
        """Implements `Runtime.lock`."""
        return Lock(self._scheduler, self)

    def rlock(self) -> RLock:
        """Implements `Runtime.rlock`."""
        return RLock(self._scheduler, self)

    def event(self) -> Event:
        """Implements `Runtime.event`."""
        return Event(self._scheduler, self)

    def condition(self) -> Condition:
        """Implements `Runtime.condition`."""
        return Condition(self._scheduler, self)

    def queue(self) -> Queue[T]:
        """Implements `Runtime.queue`."""
        return Queue(self._scheduler, self)

    def event_loop(self) -> SimulatedEventLoop:
        """Implements `Runtime.event_loop`."""
        loop = SimulatedEventLoop(self)
        self._scheduler.at_end(loop.leave, loop.abandon)
        return loop

    # ---- for the rest of this package
    @property
    def over(self) -> bool:
        """Whether the world is over."""
        return self._scheduler.over

    def stand_aside(self) -> None:
        """Let other tasks run first, by chance."""
        if self.preempted:
            self._scheduler.stand_aside()

    def real_s(self, seconds: float | None) -> float | None:
        """Seconds of the process' clock as seconds of the world."""
        return self._process.real_s(seconds)


class _Awaited:
    """Base of what tasks wait for."""

    __slots__ = ("_runtime", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        self._scheduler = scheduler
        self._runtime = runtime
        self._waiters: list[Waiter] = []


class Event(_Awaited):
    """An event like `threading.Event`."""

    __slots__ = ("_set",)

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        super().__init__(scheduler, runtime)
        self._set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it and wake all waiters."""
        self._set = True
        if self._waiters:  # without waiters a switch here changes nothing
            self._scheduler.tell(self._waiters)
            self._runtime.stand_aside()

    def clear(self) -> None:
        """Reset it: from now on `wait` waits."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set. Returns: whether it is set, or was set meanwhile."""
        return self._set or self._scheduler.wait_among(self._waiters, self._runtime.real_s(timeout))


class Lock(_Awaited):
    """A lock like `threading.Lock`. A woken task may find that another task has taken it first, and waits again."""

    __slots__ = ("_held",)

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        super().__init__(scheduler, runtime)
        self._held = False

    def __enter__(self) -> bool:
        self._runtime.stand_aside()
        while self._held:
            self._scheduler.wait_among(self._waiters, None)
        self._held = True
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None, /
    ) -> None:
        self._held = False
        if self._waiters:
            self._scheduler.tell(self._waiters)


class RLock(_Awaited):
    """A lock like `threading.RLock`."""

    __slots__ = ("_holder", "_times")

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        super().__init__(scheduler, runtime)
        self._holder: Thread | None = None
        self._times = 0

    def __enter__(self) -> bool:
        # `_take`, inlined: this is the most frequent call of a world.
        scheduler, runtime = self._scheduler, self._runtime
        if runtime.preempted:
            scheduler.stand_aside()
        me = scheduler.current or runtime.hub
        if self._holder is None or self._holder is me:
            self._holder = me
            self._times += 1
        else:
            self._take(1)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None, /
    ) -> None:
        self._times -= 1
        if not self._times:
            self._holder = None
            if self._waiters:
                self._scheduler.tell(self._waiters)

    def _take(self, times: int) -> None:
        me = self._runtime.current()
        while self._holder is not me and self._holder is not None:
            self._scheduler.wait_among(self._waiters, None)
        self._holder = me
        self._times += times

    def _give_back(self) -> None:
        self._holder, self._times = None, 0
        if self._waiters:
            self._scheduler.tell(self._waiters)


class Condition(RLock):
    """A condition like `threading.Condition`."""

    __slots__ = ("_waiting",)

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        super().__init__(scheduler, runtime)
        self._waiting: list[Waiter] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, and take the lock again. Returns: whether a notification came."""
        self._check_held()
        times = self._times
        self._give_back()
        try:
            return self._scheduler.wait_among(self._waiting, self._runtime.real_s(timeout))
        finally:
            if not self._runtime.over:
                self._take(times)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate is true. Returns: whether it is."""
        until = None if timeout is None else self._runtime.now() + timeout
        while not predicate():
            left_s = None if until is None else until - self._runtime.now()
            if left_s is not None and left_s <= 0:
                return False
            self.wait(left_s)
        return True

    def notify_all(self) -> None:
        """Wake all waiters."""
        self._check_held()
        if self._waiting:
            self._scheduler.tell(self._waiting)

    def _check_held(self) -> None:
        if self._holder is not self._runtime.current() and not self._runtime.over:
            raise RuntimeError("the condition's lock is not held")


class Queue(_Awaited, Generic[T]):
    """A queue like `queue.SimpleQueue`."""

    __slots__ = ("_items",)

    def __init__(self, scheduler: Scheduling, runtime: SimulatedRuntime) -> None:
        super().__init__(scheduler, runtime)
        self._items: deque[T] = deque()

    def put(self, item: T) -> None:
        """Add an item at the end."""
        self._items.append(item)
        if self._waiters:
            self._scheduler.tell(self._waiters)
        self._runtime.stand_aside()

    def get(self) -> T:
        """Wait for the first item and take it."""
        while not self._items:
            self._scheduler.wait_among(self._waiters, None)
        return self._items.popleft()

    def get_nowait(self) -> T:
        """Take the first item.

        Raises:
            queue.Empty: there is no item.
        """
        if not self._items:
            raise Empty
        return self._items.popleft()
