"""SimulatedEventLoop: asyncio's own loop, but that it waits in the scheduler and not in the system."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.runtime import Event, Thread


class Machine(Protocol):
    """The runtime that it is of: `SimulatedRuntime`."""

    @property
    def over(self) -> bool:
        """Whether the world is over."""
        ...

    def now(self) -> float:
        """By the clock of its process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def event(self) -> Event:
        """One that tasks wait for."""
        ...

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        """Start a thread."""
        ...

    def stand_aside(self) -> None:
        """Perhaps others go first."""
        ...


class SimulatedEventLoop(asyncio.BaseEventLoop):
    """Timers, futures, tasks, `call_soon_threadsafe` and `to_thread`. There is no network in it.

    `BaseEventLoop` asks three things of who makes a loop of it, and they are this class' own: a selector, what is to be
    done with what that has found, and how another thread wakes it.
    """

    _ready: Collection[asyncio.Handle]  #: BaseEventLoop's: whose turn it is

    def __init__(self, runtime: Machine) -> None:
        super().__init__()
        self._runtime = runtime
        self._called = runtime.event()
        self._selector = self
        self._clock_resolution = 1e-9  # the machine's may be another one elsewhere

    def time(self) -> float:
        """By the clock of its process."""
        return self._runtime.now()

    def select(self, timeout: float | None) -> list[object]:
        """Wait for that long, or until another thread calls. In the place of a selector: it finds no files."""
        if self._runtime.over:
            self._runtime.sleep(0.0)  # raises, also where coroutines have always something to do
        if timeout is None or timeout > 0:
            self._called.wait(timeout)
        else:
            self._runtime.stand_aside()
        self._called.clear()
        return []

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """A thread for each call.

        Raises:
            RuntimeError: an executor was given: its threads are the system's.
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
            except Exception as raised:  # noqa: BLE001 - its caller's
                error = raised
            if not self.is_closed():
                self.call_soon_threadsafe(end, result, error)

        self._runtime.spawn(run, f"executor of {func!r}")
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Call the handler as asyncio does. A task that is unfinished when the world is over is nobody's mistake."""
        if not self._runtime.over:
            super().call_exception_handler(context)

    def leave(self) -> None:
        """The world is over: what waits for its turn does not get it."""
        for handle in self._ready:
            handle.cancel()

    def abandon(self) -> None:
        """All threads have left: now the coroutines, also those that have not begun."""
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            if coroutine is not None:
                with suppress(BaseException):
                    coroutine.close()
        if not self.is_running():
            self.close()

    def _process_events(self, found: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        self._called.set()

    def __del__(self, _warn: object = None) -> None:
        """A loop of a process that has crashed was closed by nobody."""
