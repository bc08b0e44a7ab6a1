"""Steps: a way that is written once, for plain functions and for coroutines: a generator of what is to be done next.

Each step is called without arguments. What it returns, or raises, comes back at the yield. Where coroutines go the way,
what a step returns is awaited if it can be, and a `Blocking` one is called in another thread.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
Steps: TypeAlias = "Generator[Callable[[], Any], Any, T]"


class Blocking:
    """A step that blocks its thread."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def __call__(self) -> Any:  # noqa: ANN401 - what it asks for
        """Do it."""
        return self._ask()


def run(steps: Steps[T]) -> T:
    """Go the way in this thread. Raises what it raises."""
    try:
        step = next(steps)
        while True:
            try:
                reply = step()
            except BaseException as error:  # noqa: BLE001 - the way's to handle
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def run_async(steps: Steps[T]) -> T:
    """Go the way in this task. Raises what it raises."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Blocking):
                    reply = await asyncio.get_running_loop().run_in_executor(None, step)
                else:
                    reply = step()
                    if isawaitable(reply):
                        reply = await reply
            except BaseException as error:  # noqa: BLE001 - as above
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as stop:
        value: T = stop.value
        return value
