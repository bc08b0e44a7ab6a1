"""Coroutines: run `async def` handlers as tasks of one event loop, the engine's own or the application's.

A coroutine that shares its task with others sees no context variable that they have set (`in_own_context`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
    from contextvars import Context

    from holdfast.runtime import Runtime

    Coro = Coroutine[None, None, None]
    Begin = Callable[[], Coro]
    #: Gets what the event loop's task factory has raised, if it has made no task.
    Over = Callable[[Exception | None], None]


_log = logging.getLogger("holdfast")


class Running(Protocol):
    """A call that has a task of its own."""

    task: asyncio.Task[None] | None


R = TypeVar("R", bound=Running)


@dataclass(slots=True)
class Home:
    """The application's event loop, which runs already and goes on when the app has left."""

    loop: asyncio.AbstractEventLoop
    #: The context variables that handlers see; each task has a copy.
    context: Context
    #: Asks the app to leave.
    stop: Callable[[], None]
    #: The application's task that waits for the app.
    task: asyncio.Task[object] | None = None
    #: No more coroutines may begin.
    ends: bool = False

    def cancelled(self) -> None:
        """The application has cancelled a handler's task: its loop is about to end. In the loop's thread, before the
        end of that task is told: who takes it back must not begin it again."""
        self.ends = True
        self.stop()


class Coroutines:
    """Begins tasks in an event loop, from the thread that runs the app.

    Args:
        name: what a thread for a loop of its own is called.
        runtime: makes that loop and that thread, when the first coroutine begins.
        home: the application's loop instead.
    """

    def __init__(self, name: str, runtime: Runtime, home: Home | None = None) -> None:
        self._name, self._runtime, self._home = name, runtime, home
        self._loop = None if home is None else home.loop
        #: The event loop's thread, by `threading.get_ident`; 0 = nothing has begun in it yet.
        self.thread_id = 0
        self._waiting: list[tuple[Begin, Over]] = []
        #: An event loop alone does not keep its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, begin: Begin, over: Over) -> None:
        """Add one for the next `begin`. In the event loop's thread `over` is called when its task has ended, also if
        that was cancelled before its first step, or not made.
        """
        self._waiting.append((begin, over))

    def begin(self) -> None:
        """Begin what was added: together, as each time that the event loop is woken two threads change places.

        Raises:
            RuntimeError: the application has closed its loop; or no thread can be started for ours: then they are over.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            self._have_loop()
        except RuntimeError:
            for _, over in waiting:
                over(None)
            raise
        self.call(partial(self._make_tasks, waiting))

    def begin_calls(
        self,
        calls: Sequence[R],
        run: Callable[[R], Coro],
        stepped: Callable[[Sequence[R]], None],
        refused: Callable[[Sequence[R], Exception], None],
    ) -> None:
        """Begin a task for each of these calls, with less for each of them than `begin` costs.

        `run` sets `call.task`, and says `left` before it ends. `stepped` is called with all of them after their first
        steps: who has not begun then was cancelled before, and who has not ended waits. `refused` is called with those
        for which the event loop's task factory has made no task, and what it has raised.

        Raises:
            RuntimeError: as `begin`.
        """
        self._have_loop()
        self.call(partial(self._make_calls, calls, run, stepped, refused))

    def left(self, call: Running) -> None:
        """A call of `begin_calls` is about to end, or has never begun. In the event loop's thread."""
        if call.task is not None:
            self._tasks.discard(call.task)

    def _have_loop(self) -> None:
        if self._loop is not None:
            return
        loop = self._runtime.event_loop()
        try:
            self._runtime.spawn(partial(_run, loop), f"{self._name}-async")
        except RuntimeError:
            loop.close()
            raise
        self._loop = loop

    def stop(self) -> None:
        """End without waiting for what runs: it is cancelled, and a loop of its own stops."""
        if self._loop is None or self._loop.is_closed():
            return
        self.call(self._loop.stop if self._home is None else self._cancel_all)

    def call(self, what: Callable[[], object]) -> None:
        """Call that in the event loop's thread. Nothing happens before the first coroutine has begun."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(what, context=None if self._home is None else self._home.context)

    # ---- in the event loop's thread
    def _make_tasks(self, waiting: Sequence[tuple[Begin, Over]]) -> None:
        for begin, over in waiting:
            try:
                task = _make_task(begin())
            except Exception as error:  # noqa: BLE001 - `over` tells of it; asyncio would only log it
                over(error)
                continue
            self._tasks.add(task)
            task.add_done_callback(partial(self._over, over))

    def _make_calls(
        self,
        calls: Sequence[R],
        run: Callable[[R], Coro],
        stepped: Callable[[Sequence[R]], None],
        refused: Callable[[Sequence[R], Exception], None],
    ) -> None:
        self.thread_id = threading.get_ident()
        for number, call in enumerate(calls):
            try:
                task = _make_task(run(call))
            except Exception as error:  # noqa: BLE001 - as above
                refused(calls[number:], error)
                calls = calls[:number]
                break
            if not task.done():  # the application's loop may make eager ones
                call.task = task
                self._tasks.add(task)
        # The event loop calls in turn: this after the first steps of all of them.
        asyncio.get_running_loop().call_soon(stepped, calls)

    def _over(self, over: Over, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        over(None)

    def _cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()


def _make_task(coroutine: Coro) -> asyncio.Task[None]:
    """Raises what the task factory raises: it is the application's."""
    try:
        return asyncio.get_running_loop().create_task(coroutine)
    except Exception as error:
        coroutine.close()
        error.add_note("raised by the task factory of the event loop in which `async def` handlers run")
        raise


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        _run_until_stopped(loop)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.stop)  # each is told; none is waited for
        _run_until_stopped(loop)
    finally:
        loop.close()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """A SystemExit in a task that a handler has begun must not end all others in silence."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            _log.exception("a task in the event loop of the handlers has raised this; the loop goes on")
        else:
            return


async def in_own_context(coroutine: Coroutine[Any, Any, object]) -> object:
    """Await it, and return what it returns."""
    rest, returned = first_step(coroutine)
    return returned if rest is None else await rest


def first_step(coroutine: Coroutine[Any, Any, object]) -> tuple[Awaitable[object] | None, object]:
    """Run it, in a copy of the context that the task has now, until it waits.

    Returns: None and what it has returned, if it has ended. Else what is to be awaited at once, and None: its other
    steps run in that copy too.
    """
    run = copy_context().run
    try:
        waits_for = run(coroutine.send, None)
    except StopIteration as stop:
        return None, stop.value
    return _steps(coroutine, run, waits_for), None


@types.coroutine
def _steps(
    coroutine: Coroutine[Any, Any, object], run: Callable[..., object], waits_for: object
) -> Generator[object, Any, object]:
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            run(coroutine.close)
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine's to handle: it is cancelled, say
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, None)
        try:
            waits_for = run(step)
        except StopIteration as stop:
            return stop.value
