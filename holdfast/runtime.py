"""Runtime: what a member asks of its machine beside the clock: threads, waiting, chance, names, the time of day.

The engine and the stores ask nothing else of the machine. So a whole member also runs in `holdfast.testing`, where one
thread plays many processes under virtual time.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.errors import SettingError
from holdfast.timing import SYSTEM_CLOCK, Clock, wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

_NO_THREAD = (
    "call app.stop(wait=True) before the main thread ends; or, if it runs, raise the limit of threads of this process"
)


class Thread(Protocol):
    """One that was spawned, or the one that asks. Two of them are the same if they are equal."""

    def is_alive(self) -> bool:
        """Whether it has begun and not ended."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, no longer than that many seconds."""
        ...


class Lock(Protocol):
    """A lock like `threading.Lock`, for `with` only."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None, /
    ) -> None: ...


class Event(Protocol):
    """An event like `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def set(self) -> None:
        """Wake all who wait."""
        ...

    def clear(self) -> None:
        """From now on `wait` waits."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, no longer than that many seconds. Returns: whether it is set."""
        ...


class Condition(Lock, Protocol):
    """A condition like `threading.Condition`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification, without the lock. Returns: whether one came."""
        ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until that holds, without the lock. Returns: whether it does."""
        ...

    def notify_all(self) -> None:
        """Wake all who wait."""
        ...


class Queue(Protocol[T]):
    """A queue like `queue.SimpleQueue`."""

    def put(self, item: T) -> None:
        """Add one at the end."""
        ...

    def get(self) -> T:
        """Wait for the first one and take it."""
        ...

    def get_nowait(self) -> T:
        """Take the first one. Raises queue.Empty."""
        ...


class Runtime(Clock, Protocol):
    """A machine, as one process sees it. Any thread of that process may call.

    `now` never goes backwards; `wall_ms` may, and nothing is decided by it but when a record of a retry topic is due.
    """

    #: For jitter. Never for secrets.
    random: random.Random

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people and for headers."""
        ...

    def token(self, octets: int) -> str:
        """A name that nobody else has: so many random octets, in hexadecimal digits."""
        ...

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        """Start a thread that does not keep the process alive. Raises RuntimeError: none can be started."""
        ...

    def current(self) -> Thread:
        """The thread that asks."""
        ...

    def lock(self) -> Lock:
        """A lock that is held by one thread, once."""
        ...

    def rlock(self) -> Lock:
        """A lock that its holder may take again."""
        ...

    def event(self) -> Event:
        """An event that is not set."""
        ...

    def condition(self) -> Condition:
        """A condition with a lock of its own."""
        ...

    def queue(self) -> Queue[T]:
        """An empty queue without a bound."""
        ...

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop that nobody runs yet."""
        ...


class Machine:
    """The machine that this process runs on.

    Args:
        clock: another clock than the machine's, for a test that sets the time itself.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        # The module's functions themselves: `now` is asked and locks are taken for each record.
        self.now, self.sleep, self.wall_ms = clock.now, clock.sleep, wall_ms
        self.lock, self.rlock = threading.Lock, threading.RLock
        self.event, self.condition = threading.Event, threading.Condition
        self.current, self.token = threading.current_thread, secrets.token_hex
        self.event_loop = asyncio.new_event_loop
        #: Its own: the module's is the application's to seed.
        self.random = random.Random()

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        """Start a thread, as `Runtime.spawn` does. From Python 3.12 on none starts after the main thread has ended."""
        thread = threading.Thread(target=target, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {_NO_THREAD}") from error
        return thread

    def queue(self) -> Queue[T]:
        """Make a queue, as `Runtime.queue` does."""
        return SimpleQueue()


MACHINE: Runtime = Machine()


def check_threads() -> None:
    """Refuse a process in which gevent or eventlet has replaced threads by coroutines of one thread: a client in C that
    waits for its broker would stop all of them, including the thread that renews the session.

    Raises:
        SettingError: gevent or eventlet has patched them.
    """
    for name, said in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        patched = getattr(sys.modules.get(name), said, None)
        # Even if only the queue is patched, real threads stand still: gevent's queue has an event loop for each thread.
        if patched is not None and any(map(patched, ("threading", "thread", "queue"))):
            raise SettingError(
                "monkey patch",
                name.partition(".")[0],
                "holdfast and the brokers' clients need real threads, or one that waits stops them all: run consumers, "
                "and functions that are @idempotent, in a process of their own, without it",
            )
