"""Whoever drives the steps of a call: a thread that blocks, or a task that does not."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.current import CURRENT
from holdfast.dedup.calls.work import Ask, Ended, Pause
from holdfast.errors import SettingError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.dedup.calls.work import Run
    from holdfast.errors import HoldfastError


def drive(steps: Generator[Ask | Pause | Run, Any, None], body: Callable[[Sequence[str]], Any]) -> None:
    """Take all steps in this thread.

    Args:
        steps: of a `Work`.
        body: runs the function for some of the keys.
    """
    reply, error = None, None
    while True:
        try:
            step = steps.throw(error) if error is not None else steps.send(reply)
        except StopIteration:
            return
        reply, error = None, None
        try:
            if isinstance(step, Ask):
                reply = step.call()
            elif isinstance(step, Pause):
                SYSTEM_CLOCK.sleep(step.seconds)
            else:
                reply = _run(step, body)
        except BaseException as raised:  # noqa: BLE001 - the steps decide, and raise it again
            error = raised


async def drive_async(
    steps: Generator[Ask | Pause | Run, Any, None],
    body: Callable[[Sequence[str]], Awaitable[Any]],
    pool: ThreadPoolExecutor,
) -> None:
    """Take all steps in this task; the store is asked by threads of `pool`. May be cancelled anywhere."""
    reply, error = None, None
    while True:
        try:
            step = steps.throw(error) if error is not None else steps.send(reply)
        except StopIteration:
            return
        reply, error = None, None
        try:
            if isinstance(step, Ask):
                reply = await _ask_async(step, pool)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                reply = await _run_async(step, body)
        except BaseException as raised:  # noqa: BLE001 - the steps decide, and raise it again
            error = raised


async def _ask_async(step: Ask, pool: ThreadPoolExecutor) -> Any:  # noqa: ANN401 - as the store answers
    future = pool.submit(step.call)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda _: step.undo())
        raise


def _run(step: Run, body: Callable[[Sequence[str]], Any]) -> Ended:
    token = CURRENT.set(step.claim)
    try:
        returned = body(step.keys)
        _check(step, returned)
        return Ended(returned)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return Ended(error=error)
    finally:
        CURRENT.reset(token)


async def _run_async(step: Run, body: Callable[[Sequence[str]], Awaitable[Any]]) -> Ended:
    token = CURRENT.set(step.claim)
    try:
        returned = await body(step.keys)
        _check(step, returned)
        return Ended(returned)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return Ended(error=error)
    finally:
        CURRENT.reset(token)


def _check(step: Run, returned: object) -> None:
    """What has not run yet is not done."""
    if inspect.iscoroutine(returned):
        returned.close()
    elif not (inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned)):
        return
    raise _not_run(step, returned)


def _not_run(step: Run, returned: object) -> HoldfastError:
    return SettingError(
        "function",
        step.claim.name,
        f"it returned a {type(returned).__name__}, which has not run yet: make it an `async def`, or let it "
        "return a list",
    )
