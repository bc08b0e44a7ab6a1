"""A guarded function: from the arguments of a call to its keys, and from what became of them to what it returns.

The steps of a call are taken by a thread that blocks (`drive`), or by a task that does not (`drive_async`).
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.grant import CURRENT
from holdfast.dedup.calls.names import ArgumentKey, BatchParameter, ItemKey
from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.calls.work import Ask, Ended, Pause, Work
from holdfast.dedup.not_run import not_run
from holdfast.errors import BatchFailed, KeyMissing, SettingError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.dedup.calls.here import Calls
    from holdfast.dedup.calls.names import CallKey
    from holdfast.dedup.calls.results import CallPolicy
    from holdfast.dedup.calls.work import Run


class Guard:
    """A function and all that is fixed about it. Any thread.

    Raises:
        SettingError: no name, a name that is taken, or a key that cannot be.
    """

    def __init__(
        self,
        calls: Calls,
        policy: CallPolicy,
        function: Callable[..., Any],
        *,
        key: CallKey,
        name: str | None,
        batch: bool,
    ) -> None:
        self._calls = calls
        self._policy = policy
        signature = inspect.signature(function)
        self._name, origin = calls.names.choose(function, name)
        self._form: _Single | _Batch
        if batch:
            parameter = BatchParameter(self._name, signature)
            self._form = _Batch(function, ItemKey(self._name, key), parameter, policy)
        else:
            self._form = _Single(function, ArgumentKey(self._name, signature, key))
        self._batch = batch
        calls.names.take(self._name, origin)  # now that nothing is wrong with it

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as the function
        """Of a plain function."""
        call = self._form.call(args, kwargs)
        work = self._work(call)
        drive(work.steps(), call.body)
        return call.outcome(work)

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as the function
        """Of an `async def`."""
        call = self._form.call(args, kwargs)
        work = self._work(call)
        await drive_async(work.steps(), call.body, self._calls.here.pool())
        return call.outcome(work)

    def _work(self, call: _SingleCall | _BatchCall) -> Work:
        return Work(self._calls, self._name, self._policy, call.keys, batch=self._batch)


class _Single:
    """Calls of a function that has one key."""

    def __init__(self, function: Callable[..., Any], key: ArgumentKey) -> None:
        self.function = function
        self._key = key

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _SingleCall:
        """Raises KeyMissing; TypeError where the function cannot be called so."""
        return _SingleCall(self.function, args, kwargs, self._key(args, kwargs))


class _SingleCall:
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self.keys: Sequence[str] = [key]

    def body(self, keys: Sequence[str]) -> Any:  # noqa: ANN401, ARG002 - as the function; there is only one key
        """Run the function."""
        return self._function(*self._args, **self._kwargs)

    def outcome(self, work: Work) -> Any:  # noqa: ANN401 - as the function
        """Return or raise what the call does."""
        [key] = self.keys
        error = work.error or work.failures.get(key)
        if error is not None:
            raise error
        return work.results[key]


class _Batch:
    """Calls of a function that takes a list of items, each with a key."""

    def __init__(
        self, function: Callable[..., Any], key: ItemKey, parameter: BatchParameter, policy: CallPolicy
    ) -> None:
        self.function = function
        self.key = key
        self.parameter = parameter
        self.marks = policy.on_done == "marker"

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _BatchCall:
        """Raises TypeError where the function cannot be called so."""
        return _BatchCall(self, args, kwargs)


class _BatchCall:
    def __init__(self, form: _Batch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._form = form
        self._items, self._with_items = form.parameter.take(args, kwargs)
        self._missing: dict[int, Exception] = {}
        #: The key of each item, None where there is none; and of each key, its first item.
        self._keys: list[str | None] = []
        self._first: dict[str, int] = {}
        for position, item in enumerate(self._items):
            try:
                key = form.key(item)
            except KeyMissing as error:
                self._missing[position] = error
                self._keys.append(None)
            else:
                self._keys.append(key)
                self._first.setdefault(key, position)
        self.keys: Sequence[str] = list(self._first)

    def body(self, keys: Sequence[str]) -> Any:  # noqa: ANN401 - as the function
        """Run the function for the first item of each of these keys."""
        args, kwargs = self._with_items([self._items[self._first[key]] for key in keys])
        return self._form.function(*args, **kwargs)

    def outcome(self, work: Work) -> list[Any]:
        """Return or raise what the call does."""
        if work.error is not None and not (
            isinstance(work.error, BatchFailed)
            and len(self.keys) < len(self._items)  # its positions are of a shorter list
        ):
            raise work.error
        failures = dict(self._missing)
        results = []
        for position, key in enumerate(self._keys):
            if key is None:
                continue
            if key in work.failures:
                failures[position] = work.failures[key]
                continue
            result = work.results[key]
            repeated = self._form.marks and position != self._first[key] and not isinstance(result, Skipped)
            results.append(Skipped.DONE if repeated else result)
        if failures:
            raise BatchFailed(failures, items=len(self._items))
        return results


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
        _check_ran(step, returned)
        return Ended(returned)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return Ended(error=error)
    finally:
        CURRENT.reset(token)


async def _run_async(step: Run, body: Callable[[Sequence[str]], Awaitable[Any]]) -> Ended:
    token = CURRENT.set(step.claim)
    try:
        returned = await body(step.keys)
        _check_ran(step, returned)
        return Ended(returned)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return Ended(error=error)
    finally:
        CURRENT.reset(token)


def _check_ran(step: Run, returned: object) -> None:
    """Refuse an outcome of a body that has not run yet: its keys are not done."""
    if (kind := not_run(returned)) is not None:
        remedy = f"it returned a {kind}, which has not run yet: make it an `async def`, or let it return a list"
        raise SettingError("function", step.claim.name, remedy)
