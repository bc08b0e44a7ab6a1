"""Calling: a handler's function is called, with the middlewares around it where there are any.

A middleware is a generator function of the user's: up to its yield it runs before the function, then after it. What the
function raises is raised at the yield. Each call makes a generator of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.keys import text_of
from holdfast.dedup.not_run import not_run
from holdfast.errors import BatchFailed, KeyBusy, Unretriable
from holdfast.plugin.handling.handler_call import HandlerCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from types import TracebackType

    from holdfast.dedup.claims import Claim
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.handlers import Handler
    from holdfast.records import Record


def call_plain(handler: Handler, given: object) -> None:
    """Call a plain function."""
    check_returned(handler, handler.call(given))


async def call_async(handler: Handler, given: object) -> None:
    """Call an `async def`."""
    check_returned(handler, await handler.call(given))


def check_returned(handler: Handler, returned: object) -> None:
    """Refuse what says that the record is not handled: work that has not run (a lambda around an `async def` returns a
    coroutine), and `Skipped.BUSY` of an idempotent function, whose other call may fail yet."""
    if returned is not None and (kind := not_run(returned)) is not None:
        raise Unretriable(
            f"{handler.name} returned a {kind}, which has not run yet: register the `async def` itself, await what it "
            "calls, and wait for the work that it gives to others"
        )
    if returned is Skipped.BUSY:
        raise _busy(handler)
    if handler.batch is not None and isinstance(returned, list):
        busy = {at: _busy(handler) for at, each in enumerate(returned) if each is Skipped.BUSY}
        if busy:
            raise BatchFailed(busy, items=len(returned))


def _busy(handler: Handler) -> KeyBusy:
    return KeyBusy(
        f"another call of {handler.name} is running for this key, and may fail yet, so the record is not handled: it "
        "is tried again as retry= says; on_busy='wait' waits for that call"
    )


class Middleware(NamedTuple):
    """One of the user's."""

    name: str
    #: A generator function, plain or async.
    make: Callable[[HandlerCall], Iterator[None]] | Callable[[HandlerCall], AsyncIterator[None]]
    is_async: bool


class Around:
    """The middlewares of an app, the first one outermost. Any worker, and the event loop's thread."""

    def __init__(self, middlewares: Sequence[Middleware], group: str) -> None:
        self._middlewares, self._group = tuple(middlewares), group

    def call(self, entries: Sequence[Entry], given: Record | list[Record]) -> None:
        """Call the plain handler of these entries. Raises what stands when the outermost middleware has ended. If the
        handler was not called, that is an error whatever they make of it: what no handler has seen is not handled."""
        seen, entered = self._seen(entries, given), list[tuple[Middleware, Any]]()
        called = False
        raised: BaseException | None = None
        try:
            for each in self._middlewares:
                entered.append((each, _enter(each, seen)))
            called = True
            call_plain(entries[0].handler, given)
        except BaseException as error:  # noqa: BLE001 - theirs to see, whatever it is
            raised = error
        refused = None if called else raised
        while entered:
            raised = _leave(*entered.pop(), raised)
        _raise(refused if raised is None else raised)

    async def call_async(self, entries: Sequence[Entry], given: Record | list[Record]) -> None:
        """Call the coroutine handler of these entries; as `call`."""
        seen, entered = self._seen(entries, given), list[tuple[Middleware, Any]]()
        called = False
        raised: BaseException | None = None
        try:
            for each in self._middlewares:
                entered.append((each, await _enter_async(each, seen) if each.is_async else _enter(each, seen)))
            called = True
            await call_async(entries[0].handler, given)
        except BaseException as error:  # noqa: BLE001 - as above
            raised = error
        refused = None if called else raised
        while entered:
            each, generator = entered.pop()
            raised = await _leave_async(each, generator, raised) if each.is_async else _leave(each, generator, raised)
        _raise(refused if raised is None else raised)

    def _seen(self, entries: Sequence[Entry], given: Record | list[Record]) -> HandlerCall:
        is_batch = isinstance(given, list)
        return HandlerCall(
            handler=entries[0].handler.name,
            group=self._group,
            records=given if isinstance(given, list) else (given,),
            keys=_keys_of(entries, given) if isinstance(given, list) else (_key_of(entries[0], given.offset),),
            is_batch=is_batch,
            attempt=max(entry.attempt for entry in entries) + 1,
        )


def _keys_of(entries: Sequence[Entry], records: Sequence[Record]) -> list[str | None]:
    found = {claim.token.offset: text_of(claim.key.key) for entry in entries for claim in entry.asked_for}
    return [found.get(record.offset) for record in records]


def _key_of(entry: Entry, offset: int) -> str | None:
    """Find the key by the offset: the loop may split off other records of a run at any time."""
    claims = entry.asked_for
    at = bisect_left(claims, offset, key=_offset_of)
    return text_of(claims[at].key.key) if at < len(claims) else None


def _offset_of(claim: Claim) -> int:
    return claim.token.offset


def _raise(raised: BaseException | None) -> None:
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # its traceback and this frame would keep each other, and the record


# ---- one middleware and its generator
def _enter(middleware: Middleware, seen: HandlerCall) -> Any:  # noqa: ANN401 - its generator
    generator = middleware.make(seen)
    for _ in generator:  # type: ignore[union-attr]  # a plain one
        return generator
    raise _without_yield(middleware)


async def _enter_async(middleware: Middleware, seen: HandlerCall) -> Any:  # noqa: ANN401 - as above
    generator = middleware.make(seen)
    async for _ in generator:  # type: ignore[union-attr]  # an async one
        return generator
    raise _without_yield(middleware)


def _leave(middleware: Middleware, generator: Any, raised: BaseException | None) -> BaseException | None:  # noqa: ANN401
    """Run it to its end. Returns: the error that stands then; None = what was called counts as handled."""
    where = None if raised is None else raised.__traceback__
    try:
        if raised is None:
            next(generator)
        else:
            generator.throw(raised)
        generator.close()
    except StopIteration:
        return _swallowed(raised)
    except BaseException as error:  # noqa: BLE001 - it stands now
        return _what_stands(error, raised, where)
    return _yielded_twice(middleware, raised)


async def _leave_async(middleware: Middleware, generator: Any, raised: BaseException | None) -> BaseException | None:  # noqa: ANN401
    where = None if raised is None else raised.__traceback__
    try:
        if raised is None:
            await anext(generator)
        else:
            await generator.athrow(raised)
        await generator.aclose()
    except StopAsyncIteration:
        return _swallowed(raised)
    except BaseException as error:  # noqa: BLE001 - as above
        return _what_stands(error, raised, where)
    return _yielded_twice(middleware, raised)


def _swallowed(raised: BaseException | None) -> BaseException | None:
    """An Exception is the middleware's to handle. A cancellation, Ctrl-C and the like are not: the record
    was not handled."""
    return None if isinstance(raised, Exception) else raised


def _what_stands(error: BaseException, raised: BaseException | None, where: TracebackType | None) -> BaseException:
    # A StopIteration that passes through a generator comes out as a RuntimeError.
    stops = isinstance(raised, StopIteration | StopAsyncIteration) and error.__cause__ is raised
    if raised is not None and (error is raised or stops):
        raised.__traceback__ = where  # without the generator's lines
        return raised
    return error


def _without_yield(middleware: Middleware) -> Unretriable:
    return Unretriable(
        f"the middleware {middleware.name} ended without a yield, so the handler was not called: let it yield once, "
        "whatever the record is; what is not to be handled the handler itself passes over, by a return"
    )


def _yielded_twice(middleware: Middleware, raised: BaseException | None) -> BaseException:
    if raised is not None and not isinstance(raised, Exception):
        return raised
    error = Unretriable(
        f"the middleware {middleware.name} yielded twice, and calls its handler once: let it yield once; what calls a "
        "handler again is its retry=Retry(...)"
    )
    error.__cause__ = raised
    return error
