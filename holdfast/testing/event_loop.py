"""SimulatedEventLoop: asyncio's own event loop, which waits in the scheduler instead of the system."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.runtime import Event, Thread


class Machine(Protocol):
    """The runtime of the loop (`SimulatedRuntime`), as the loop sees it."""

    @property
    def over(self) -> bool:
        """Whether the world is over."""
        ...

    def now(self) -> float:
        """The time by the clock of its process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of the process' clock."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        """Start a thread."""
        ...

    def stand_aside(self) -> None:
        """Let other tasks run first, by chance."""
        ...


class SimulatedEventLoop(asyncio.BaseEventLoop):
    """Timers, futures, tasks, `call_soon_threadsafe` and `to_thread`; no sockets.

    `BaseEventLoop` leaves three things to its subclasses: a selector, the handling of the selector's events, and how
    another thread wakes the loop. This class provides them.
    """

    _ready: Collection[asyncio.Handle]  #: BaseEventLoop's queue of callbacks that are due

    def __init__(self, runtime: Machine) -> None:
        super().__init__()
        self._runtime = runtime
        self._called = runtime.event()
        self._selector = self
        self._clock_resolution = 1e-9  # fixed, since the resolution of the real clock depends on the machine

    def time(self) -> float:
        """The time by the clock of its process."""
        return self._runtime.now()

    def select(self, timeout: float | None) -> list[object]:
        """The selector's method: wait for so many seconds, or until another thread calls. Returns no events."""
        if self._runtime.over:
            self._runtime.sleep(0.0)  # raises: it ends a loop whose coroutines never wait
        if timeout is None or timeout > 0:
            self._called.wait(timeout)
        else:
            self._runtime.stand_aside()
        self._called.clear()
        return []

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Run each call in a thread of its own.

        Raises:
            RuntimeError: an executor was given; its threads would be threads of the system.
        """
        if executor is not None:
            raise RuntimeError("an executor's threads are not of this world: give None")
        future: asyncio.Future[Any] = self.create_future()

        def end(result: object, error: BaseException | None) -> None:
            if future.done():
                return  # cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except Exception as raised:  # noqa: BLE001 - raised at the caller
                error = raised
            if not self.is_closed():
                self.call_soon_threadsafe(end, result, error)

        self._runtime.spawn(run, f"executor of {func!r}")
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Call the handler as asyncio does, but ignore unfinished tasks at the end of the world."""
        if not self._runtime.over:
            super().call_exception_handler(context)

    def leave(self) -> None:
        """Cancel callbacks that are due: the world is over."""
        for handle in self._ready:
            handle.cancel()

    def abandon(self) -> None:
        """Close all coroutines, also those that have not begun. Called when all tasks have ended."""
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            if coroutine is not None:
                with suppress(BaseException):
                    coroutine.close()
        if not self.is_running():
            self.close()

    def _process_events(self, found: list[object]) -> None:
        """Do nothing: `select` returns no events."""

    def _write_to_self(self) -> None:
        self._called.set()

    def __del__(self, _warn: object = None) -> None:
        """Do not warn: the loop of a crashed process was never closed."""
