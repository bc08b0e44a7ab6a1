"""Ways to run an app beside the calling thread: in a thread of its own, waited for by a thread or by an event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol

from holdfast.plugin.engine.record.coroutines import Home
from holdfast.plugin.retrying.failures import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from holdfast.runtime import Runtime, Thread


_log = logging.getLogger("holdfast")


class Background:
    """A call in a thread of its own, and how it ended.

    Args:
        call: what the thread does.
        runtime: makes the thread.
        name: of the thread.
        ended: called in that thread, as the last thing that it does.
    """

    def __init__(
        self, call: Callable[[], None], runtime: Runtime, name: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._call, self._ended = call, ended
        self._error: BaseException | None = None
        self._thread: Thread = runtime.spawn(self._run, name)

    def join(self) -> None:
        """Wait for its end. Raises what it raised. Any other thread."""
        self._thread.join()
        self.check()

    def tell_if_left(self, what: str) -> None:
        """Warn at the process' end if it runs on then: its thread does not keep the process, and is cut off."""
        weakref.finalize(self, _tell_if_left, self._thread, what)

    def check(self) -> None:
        """Raise what it raised."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self._error = error
        finally:
            self._ended()


def _tell_if_left(thread: Thread, what: str) -> None:
    if thread.is_alive():
        _log.warning(
            "the process ends and %s still runs: for its group this is a crash, and other members wait for its lease; "
            "call app.stop(wait=True) before",
            what,
        )


class Stop(Protocol):
    """Asks an app to end."""

    def __call__(self, *, again: bool) -> None:
        """Stop. Where it was asked already: `again` hurries it, else nothing happens. Any thread."""
        ...


async def run_in_loop(call: Callable[[Home], None], stop: Stop, runtime: Runtime, name: str) -> None:
    """Run `call` in a thread of its own, and wait for its end in the running event loop.

    A cancellation calls `stop`, and is raised again when the call has ended; each further one hurries it. The scopes of
    anyio cancel in each turn of the event loop, and mean one wish.

    Args:
        call: gets the event loop that runs here, for coroutines.
        stop: asks the call to end.
        runtime: makes the thread.
        name: of the thread.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the application has closed its loop: nobody waits there any more
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
        if not ended.is_set():  # the loop ends without a word: this coroutine is destroyed
            stop(again=False)
    background.check()
    if cancellation is not None:
        raise cancellation


@contextmanager
def _cancelled_once() -> Iterator[None]:
    """Wait inside, in a task whose cancellation has been heard. A scope of anyio that is cancelled cancels its tasks in
    each turn of the event loop until they have left it, unless they are in a shielded one."""
    anyio = sys.modules.get("anyio")
    if anyio is None:
        yield
        return
    with anyio.CancelScope(shield=True):
        yield


class Beside:
    """An app that runs while a body of `async with` does.

    Args:
        run: what the app's task does.
        stop: asks it to end.
    """

    def __init__(self, run: Callable[[], Coroutine[None, None, None]], stop: Stop) -> None:
        self._stop = stop
        self._body = asyncio.current_task()
        self._failed = self._leaving = False
        self._task = asyncio.create_task(run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """If the app fails, its body is cancelled: it may wait for what will never come."""
        if not self._leaving and self._body is not None and not task.cancelled() and task.exception() is not None:
            self._failed = True
            self._body.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """The body has ended, with this error: stop, and wait. Raises what the app failed with, in the place of the
        cancellation that it has caused; an error of the body's own goes on."""
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
