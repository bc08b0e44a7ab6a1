"""Own context: a coroutine that shares its task with others sees no context variable that they have set."""

from __future__ import annotations

import types
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator


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
    return _rest(coroutine, run, waits_for), None


@types.coroutine
def _rest(
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
