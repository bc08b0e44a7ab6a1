"""Ways to run an app: in the calling thread, which gets signals, or in a thread of its own, for which a thread or an
event loop waits."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.plugin.engine.record.coroutines import Home
from holdfast.plugin.retrying.failures import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.runtime import Runtime, Thread


_log = logging.getLogger("holdfast")

#: The exit code for a command that SIGINT has ended.
_INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: The callbacks of the apps that run in the main thread or in its event loop. A signal calls all of them.
_callbacks: list[Callable[[int], None]] = []
_before: dict[int, Any] = {}


@contextmanager
def signals_handled(stop: Callable[..., None], *, install: bool) -> Iterator[Sequence[int]]:
    """Handle SIGTERM and SIGINT meanwhile: the first one stops the app with a drain, the next one cuts the drain short.
    Yields the list of received ones. Several apps of an event loop get each signal. The
    last to leave restores the former handlers."""
    if not install or threading.current_thread() is not threading.main_thread():
        yield ()
        return
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        stop(why=signal.Signals(number).name)

    _callbacks.append(on_signal)
    if len(_callbacks) == 1:
        _before.update({number: signal.signal(number, _call_all) for number in _SIGNALS})
    try:
        yield received
    finally:
        _callbacks.remove(on_signal)
        if not _callbacks:
            for number, handler in _before.items():
                # None: the former handler was not installed from Python, and cannot be restored.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _call_all(number: int, _: object) -> None:
    for call in _callbacks:
        call(number)


def run_engine(engine: Engine, received: Sequence[int]) -> None:
    """Run the engine. Raises SystemExit for Ctrl-C during the start, while it waits for the store or the broker."""
    try:
        engine.run()
    except HoldfastError:
        if engine.snapshots.ran or signal.SIGINT not in received:
            raise
    if not engine.snapshots.ran and signal.SIGINT in received:
        raise SystemExit(_INTERRUPTED)


class Background:
    """A call in a thread of its own, and its result.

    Args:
        call: the function that the thread runs.
        runtime: makes the thread.
        name: the thread's name.
        ended: called in that thread at its end.
    """

    def __init__(
        self, call: Callable[[], None], runtime: Runtime, name: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._call, self._ended = call, ended
        self._error: BaseException | None = None
        self._thread: Thread = runtime.spawn(self._run, name)

    def join(self) -> None:
        """Wait for the end of the call. Raises its error. Any other thread."""
        self._thread.join()
        self.check()

    def warn_if_left(self, what: str) -> None:
        """Log a warning at the end of the process if the call still runs: its thread is a daemon, and is cut off."""
        weakref.finalize(self, _warn_if_left, self._thread, what)

    def check(self) -> None:
        """Raise the error of the call, if there is one."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - raised again by `join` and `check`
            self._error = error
        finally:
            self._ended()


def _warn_if_left(thread: Thread, what: str) -> None:
    if thread.is_alive():
        _log.warning(
            "the process ends and %s still runs: for its group this is a crash, and other members wait for its lease; "
            "call app.stop(wait=True) before",
            what,
        )


class Stop(Protocol):
    """A function that stops an app."""

    def __call__(self, *, again: bool) -> None:
        """Stop. If the app is stopping already, `again` cuts the drain short; else nothing happens. Any thread."""
        ...


async def run_in_loop(call: Callable[[Home], None], stop: Stop, runtime: Runtime, name: str) -> None:
    """Run `call` in a thread of its own, and wait for its end in the running event loop.

    A cancellation calls `stop`, and is raised again when the call has ended; each further one cuts the drain short. A
    scope of anyio cancels in each turn of the event loop; that counts as one cancellation.

    Args:
        call: gets this event loop, for coroutines.
        stop: stops the call.
        runtime: makes the thread.
        name: the thread's name.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the application has closed its loop, and no coroutine waits there any more
            loop.call_soon_threadsafe(ended.set)

    home = Home(loop, copy_context(), lambda: stop(again=False), asyncio.current_task())
    background = Background(lambda: call(home), runtime, name, wake)
    cancellation: asyncio.CancelledError | None = None
    try:
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            cancellation = error
            stop(again=False)
            with _cancelled_once():
                while not ended.is_set():
                    try:
                        await ended.wait()
                    except asyncio.CancelledError as again:
                        cancellation = again
                        stop(again=True)
    finally:
        if not ended.is_set():  # the loop has ended without a cancellation, and this coroutine is destroyed
            stop(again=False)
    background.check()
    if cancellation is not None:
        raise cancellation


@contextmanager
def _cancelled_once() -> Iterator[None]:
    """A scope in which a task can wait after it was cancelled. A cancelled scope of anyio cancels its tasks in each
    turn of the event loop until they leave it, except inside a shielded scope."""
    anyio = sys.modules.get("anyio")
    if anyio is None:
        yield
        return
    with anyio.CancelScope(shield=True):
        yield


class AppTask:
    """An app that runs beside the body of an `async with`.

    Args:
        run: the coroutine of the app's task.
        stop: stops the app.
    """

    def __init__(self, run: Callable[[], Coroutine[None, None, None]], stop: Stop) -> None:
        self._stop = stop
        self._body = asyncio.current_task()
        self._failed = self._leaving = False
        self._task = asyncio.create_task(run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Cancel the body if the app has failed: it may wait for records that will never come."""
        if not self._leaving and self._body is not None and not task.cancelled() and task.exception() is not None:
            self._failed = True
            self._body.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """Stop the app and wait, when the body has ended with this error. Raises the app's error in place of the
        cancellation that it has caused. An error of the body itself is kept."""
        self._leaving = True
        self._stop(again=False)
        if self._failed and self._body is not None:
            self._body.uncancel()
        own = error is not None and not (self._failed and isinstance(error, asyncio.CancelledError))
        try:
            with _cancelled_once():
                await self._task
        except Exception as failure:
            if error is None or not own or isinstance(error, asyncio.CancelledError):
                raise
            error.add_note(f"the app had failed too: {words_of(failure, repr)}")
