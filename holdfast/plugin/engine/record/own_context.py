"""Own context: a coroutine that shares its task with others sees no context variable that they have set."""

from __future__ import annotations

import types
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator


@types.coroutine
def in_own_context(coroutine: Coroutine[Any, Any, object]) -> Generator[Any, Any, None]:
    """Await it, each of its steps in a copy of the context that the task has now."""
    run = copy_context().run
    try:
        waits_for = run(coroutine.send, None)
    except StopIteration:
        return
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
        except StopIteration:
            return
