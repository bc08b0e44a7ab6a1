"""Resources: what an app opens before it joins its group, and closes when it has left: pools, clients, caches.

Each is a generator function of the user's, plain or `async`. What it yields is the resource. A plain one is opened and
closed by the thread that runs the app; an `async` one by one task of the event loop in which `async def` handlers run,
so that it may hold what belongs to a task, such as a cancel scope.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from holdfast.plugin.engine.record.coroutines import Coroutines
    from holdfast.plugin.engine.stopping import Stopping
    from holdfast.runtime import Runtime

_log = logging.getLogger("holdfast")

#: How often it is looked whether somebody asks the app to stop, or to hurry.
_LOOK_S = 0.1
#: Who asks to hurry waits for so many looks until what closes is cancelled; then as long for its `finally`.
_LOOKS_IN_A_HURRY = 10
#: An event loop that does not come to a call for so long is blocked: what it is to close would never end.
_LOOKS_AT_A_BLOCKED_LOOP = 50


class Resource(NamedTuple):
    """How a resource is made."""

    name: str
    #: A generator function, plain or async.
    make: Callable[[], Iterator[Any]] | Callable[[], AsyncIterator[Any]]
    is_async: bool


class _Open(Protocol):
    """A resource in use."""

    def open(self) -> bool: ...

    @property
    def value(self) -> Any: ...  # noqa: ANN401 - whatever it yields

    def close(self) -> None: ...


class Resources:
    """Opened one after the other, closed the other way round. The thread that runs the app.

    Args:
        resources: in the order in which they are opened.
        values: what they yield, by name, for as long as it is open.
    """

    def __init__(self, resources: Sequence[Resource] = (), values: dict[str, Any] | None = None) -> None:
        self._resources, self._values = resources, {} if values is None else values
        self._opened: list[tuple[str, _Open]] = []

    def open(self, coroutines: Coroutines, runtime: Runtime, stopping: Stopping) -> bool:
        """Open all. Raises what one of them raises. Returns: False = somebody asked to stop meanwhile."""
        for resource in self._resources:
            one: _Open = _InLoop(resource, coroutines, runtime, stopping) if resource.is_async else _InThread(resource)
            if stopping.asked or not one.open():
                return False
            self._opened.append((resource.name, one))
            self._values[resource.name] = one.value
        return True

    def close(self) -> BaseException | None:
        """Close all that were opened, whatever the others raise. Returns: the first error."""
        first: BaseException | None = None
        while self._opened:
            name, one = self._opened.pop()
            try:
                one.close()
            except BaseException as error:  # noqa: BLE001 - of the user's; the others are closed all the same
                _log.exception("closing the resource %s failed", name)
                first = first or error
            self._values.pop(name, None)
        return first


class _InThread:
    """A plain resource: the thread that runs the app opens and closes it."""

    def __init__(self, resource: Resource) -> None:
        self._manager = contextmanager(resource.make)()  # type: ignore[arg-type]  # it is a plain one
        self.value: Any = None

    def open(self) -> bool:
        self.value = self._manager.__enter__()
        return True

    def close(self) -> None:
        self._manager.__exit__(None, None, None)


class _InLoop:
    """An async resource: one task of the event loop opens it, waits for `_release`, and closes it."""

    def __init__(self, resource: Resource, coroutines: Coroutines, runtime: Runtime, stopping: Stopping) -> None:
        self.value: Any = None
        self._resource, self._coroutines, self._runtime, self._stopping = resource, coroutines, runtime, stopping
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self._release: asyncio.Event | None = None
        #: It is open, or its task has ended without opening it.
        self._ready = runtime.event()
        #: Its task has ended.
        self._ended = runtime.event()

    def open(self) -> bool:
        self._coroutines.add(self._hold, self._has_ended)
        self._coroutines.begin()
        while not self._ready.wait(_LOOK_S):
            if self._stopping.asked:
                self._cancel("to be opened")
                return False
        if self._ended.is_set():
            raise self._error or StateError(f"the event loop has ended the resource {self._resource.name}")
        return True

    def close(self) -> None:
        heard, looks, hurried = self._runtime.event(), 0, 0
        if self._release is not None and not self._ended.is_set():
            self._coroutines.call(self._release.set)
            self._coroutines.call(heard.set)
        while not self._ended.wait(_LOOK_S):
            looks += 1
            hurried += self._stopping.hurry
            if hurried >= _LOOKS_IN_A_HURRY:
                self._cancel("to be closed")
                return
            if looks >= _LOOKS_AT_A_BLOCKED_LOOP and not heard.is_set():
                _log.error("leaving without closing the resource %s: the event loop is blocked", self._resource.name)
                return
        if self._error is not None and not isinstance(self._error, asyncio.CancelledError):
            raise self._error

    # ---- in the event loop's thread
    async def _hold(self) -> None:
        self._task, self._release = asyncio.current_task(), asyncio.Event()
        try:
            async with asynccontextmanager(self._resource.make)() as self.value:  # type: ignore[arg-type]  # an async one
                self._ready.set()
                await self._release.wait()
        except asyncio.CancelledError as error:
            self._error = error
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit would end the event loop, and be lost with it
            self._error = error

    def _has_ended(self, not_begun: Exception | None) -> None:
        self._error = self._error or not_begun
        self._ended.set()
        self._ready.set()

    # ---- inside
    def _cancel(self, what: str) -> None:
        """Cancel it, and wait a while: what it has opened it closes in its `finally`, which may have to wait too."""
        if self._task is not None:
            self._coroutines.call(self._task.cancel)
            if self._ended.wait(_LOOK_S * _LOOKS_IN_A_HURRY):
                return
        _log.warning("leaving without waiting for the resource %s %s", self._resource.name, what)
