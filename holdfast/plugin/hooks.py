"""Hooks: resources, middlewares, and functions that an app calls at its start, at its end and for each dead letter."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.dedup.not_run import check_runs, is_coroutine
from holdfast.errors import SettingError, StateError
from holdfast.plugin.engine.record.calling import Around, Middleware
from holdfast.plugin.engine.record.letter_hooks import LetterHook
from holdfast.plugin.handlers import Routes
from holdfast.plugin.handling.handler_call import noted
from holdfast.plugin.injection import Injection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.handling.handler_call import HandlerCall

F = TypeVar("F", bound="Callable[..., Any]")
M = TypeVar("M", bound="Callable[[HandlerCall], Iterator[None]] | Callable[[HandlerCall], AsyncIterator[None]]")


class Hooks:
    """Registration of resources, middlewares and hooks, before the app begins."""

    def __init__(self) -> None:
        self._routes, self._injection = Routes(), Injection()
        self._middlewares: list[Middleware] = []
        self._letter_hooks: list[LetterHook] = []
        #: None until the app has begun.
        self._engine: Engine | None = None

    def use(self, middleware: M) -> M:
        """Register a middleware, which runs around each call of each handler: each attempt at a record or a batch.

        A middleware is a generator function that takes the call (see `HandlerCall`) and yields once. The handler runs
        at the yield, and its exception is raised there. The result of the attempt is whatever leaves the outermost
        middleware: if the middlewares swallow the handler's exception, the record counts as handled; if one raises
        after the handler has returned, the handler is called again. A middleware that does not yield, or yields twice,
        fails the record for good. It cannot swallow a cancellation, Ctrl-C and the like, nor an error because of which
        the handler was not called.

        The first registered is outermost. All handlers of the app have all middlewares, also handlers registered
        earlier. A plain middleware runs in the thread or the task of its handler; an `async` one needs an app whose
        handlers are all `async def`.

        Records for which no handler is called pass no middleware: those without a key, not decoded, or done already.

        Raises:
            SettingError: it does not yield, takes other arguments, or is `async` and a handler is not.
            StateError: the app has begun.
        """
        self._check_not_begun("middlewares")
        self._middlewares.append(made := _middleware(middleware))
        try:
            for handler in self._routes.handlers:
                _check_kinds(made, handler)
        except SettingError:
            self._middlewares.remove(made)
            raise
        return middleware

    def resource(self, function: F) -> F:
        """Register a resource, such as a pool or a client: opened before the app joins its group, closed when it has
        left.

        A generator function without parameters, plain or `async`, that yields once: it opens the resource before the
        yield and closes it after. A handler that is registered later and has a keyword-only parameter of the function's
        name gets the yielded value. Resources open in the order of registration and close in reverse. A plain one runs
        in the thread of the app, an `async` one in one task of the event loop of the `async def` handlers.

        An error before the yield ends the start, and `run()` raises it. `run()` raises an error after the yield too,
        unless the app has failed before. Handlers have ended by then, except those that were given up.

        Raises:
            SettingError: it does not yield, takes arguments, or has a name that is taken.
            StateError: the app has begun.
        """
        self._check_not_begun("resources")
        self._injection.add(function)
        return function

    def on_startup(self, function: F) -> F:
        """Register a function that is called before the app joins its group; plain or `async`, as `resource`.

        Raises:
            SettingError: it yields, or takes arguments.
            StateError: the app has begun.
        """
        self._check_not_begun("on_startup")
        self._injection.at_start(function)
        return function

    def on_shutdown(self, function: F) -> F:
        """Register a function that is called when the app has left its group; plain or `async`, as `resource`.

        Raises:
            SettingError: it yields, or takes arguments.
            StateError: the app has begun.
        """
        self._check_not_begun("on_shutdown")
        self._injection.at_end(function)
        return function

    def on_dead_letter(self, function: F) -> F:
        """Register a function that is called for each dead letter; plain or `async`, with resources as a handler.

        Called once with the `Letter`, when the dead letter topic has acknowledged it. The consumer does not wait for
        the call. An error is logged and emitted as `LetterHookFailed`; the record counts as done all the same. Plain
        functions are called in a thread of their own, one letter after the other; `async` ones in the event loop of the
        `async def` handlers, several at a time.

        Best effort: the dead letter topic is the full account. Calls that wait or run when the process dies are lost,
        and so are those that take longer than 5 s after the app has left (after a second `stop()` or signal it does not
        wait; the log says how many). A letter is skipped while 1,000 calls have not ended (`LetterHookFailed` says so).
        No call is made for a message that the broker itself moves to its dead letters, nor for a record that goes to a
        retry topic. A letter that is written twice, after a crash between letter and commit, is called for twice.

        Raises:
            SettingError: it yields, or takes other arguments.
            StateError: the app has begun.
        """
        self._check_not_begun("on_dead_letter")
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        bound = self._injection.bind(function)
        _takes_one("on_dead_letter", name, bound, "the letter")
        check_runs("on_dead_letter", function, name)
        self._letter_hooks.append(LetterHook(name, bound, is_coroutine(bound)))
        return function

    # ---- inside
    def _add(self, handler: Handler) -> None:
        """Register a handler. Raises SettingError."""
        for each in self._middlewares:
            _check_kinds(each, handler)
        self._routes.add(handler)

    def _around(self, group: str) -> Around | None:
        own = [Middleware("the call of a handler", noted, is_async=False)] if self._injection.gives_calls else []
        middlewares = [*self._middlewares, *own]
        return Around(middlewares, group) if middlewares else None

    def _check_not_begun(self, what: str) -> None:
        if self._engine is not None:
            raise StateError(f"register {what} before run()")


def _middleware(function: Callable[..., Any]) -> Middleware:
    """Check a middleware. Raises SettingError: it cannot be called around a handler."""
    own = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    is_async = any(map(inspect.isasyncgenfunction, (function, own)))
    if not (is_async or any(map(inspect.isgeneratorfunction, (function, own)))):
        remedy, inner = "let it be a generator function, `def around(call): ... yield ...`", inspect.unwrap(function)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            remedy = "register the generator function itself, without @contextmanager or another decorator"
        raise SettingError("middleware", name, remedy)
    _takes_one("middleware", name, function, "the call")
    return Middleware(name, function, is_async)


def _takes_one(what: str, name: str, function: Callable[..., Any], argument: str) -> None:
    if not callable(function):
        raise SettingError(what, function, "register a function")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        remedy = f"it is called with one argument, {argument}: give all other parameters defaults"
        raise SettingError(what, name, remedy) from None
    except ValueError:  # some functions written in C have no signature
        pass


def _check_kinds(middleware: Middleware, handler: Handler) -> None:
    if middleware.is_async and not handler.is_async:
        raise SettingError(
            "middleware",
            middleware.name,
            f"it is async, and the handler {handler.name} is a plain function: write the middleware without async, "
            "which works for both, or that handler as an async def",
        )
