"""A guarded function: from the arguments of a call to its keys, and from the state of these to the result of the call.

The steps of a call are driven by a thread that blocks (`drive`), or by a task that does not (`drive_async`).
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.call_keys import ArgumentKey, BatchParameter, ItemKey
from holdfast.dedup.calls.fingerprints import ArgumentFingerprint, ItemFingerprint, reused
from holdfast.dedup.calls.grant import CURRENT
from holdfast.dedup.calls.results import Skipped
from holdfast.dedup.calls.work import Ask, Pause, Work
from holdfast.errors import BatchFailed, KeyMissing, KeyReused, SettingError, StoreError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.dedup.calls.call_keys import CallKey
    from holdfast.dedup.calls.codec import Codec
    from holdfast.dedup.calls.fingerprints import FingerprintOf
    from holdfast.dedup.calls.grant import CurrentClaim
    from holdfast.dedup.calls.process import Calls
    from holdfast.dedup.calls.results import CallPolicy
    from holdfast.dedup.calls.work import Run


class Guard:
    """A decorated function with its settings. Any thread.

    Raises:
        SettingError: no name, a name that is taken, or a key that does not fit the function.
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
        fingerprint: FingerprintOf,
        codec: Codec,
    ) -> None:
        self._calls = calls
        self._codec = codec
        self._policy = policy
        signature = inspect.signature(function)
        self._name, origin = calls.names.choose(function, name)
        self._form: _Single | _Batch
        if batch:
            of_item = None if fingerprint is False else ItemFingerprint(self._name, fingerprint)
            parameter = BatchParameter(self._name, signature, key)
            self._form = _Batch(function, ItemKey(self._name, key), of_item, parameter, policy)
        else:
            of_call = None if fingerprint is False else ArgumentFingerprint(self._name, signature, fingerprint)
            self._form = _Single(function, ArgumentKey(self._name, signature, key), of_call)
        self._batch = batch
        self._taken = calls.names.take(self._name, origin)  # last: all settings are valid

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as the function
        """Call a plain function."""
        call = self._form.call(args, kwargs)
        work = self._work(call)
        drive(work.steps(), call.body)
        return call.outcome(work)

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as the function
        """Call an `async def` function."""
        call = self._form.call(args, kwargs)
        work = self._work(call)
        await drive_async(work.steps(), call.body, self._calls.process.pool())
        return call.outcome(work)

    def _work(self, call: _SingleCall | _BatchCall) -> Work:
        return Work(self._calls, self._name, self._policy, call.keys, self._codec, batch=self._batch)


class _Single:
    """The form of a function whose calls have one key."""

    def __init__(self, function: Callable[..., Any], key: ArgumentKey, fingerprint: ArgumentFingerprint | None) -> None:
        self.function = function
        self._key = key
        self._fingerprint = fingerprint

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _SingleCall:
        """Read the key of a call. Raises KeyMissing; SettingError of a fingerprint; TypeError: the arguments do not
        fit."""
        key = self._key(args, kwargs)
        fingerprint = None if self._fingerprint is None else self._fingerprint(args, kwargs, key)
        return _SingleCall(self.function, args, kwargs, {key: fingerprint})


class _SingleCall:
    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keys: Mapping[str, str | None],
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        #: The key, and the fingerprint of its payload.
        self.keys = keys

    def body(self, keys: Sequence[str]) -> Any:  # noqa: ANN401, ARG002 - as the function; there is only one key
        """Run the function."""
        return self._function(*self._args, **self._kwargs)

    def outcome(self, work: Work) -> Any:  # noqa: ANN401 - as the function
        """Return the result of the call, or raise its error."""
        [key] = self.keys
        error = work.error or work.failures.get(key)
        if error is not None:
            raise error
        return work.results[key]


class _Batch:
    """The form of a function that takes a list of items, each with a key."""

    def __init__(
        self,
        function: Callable[..., Any],
        key: ItemKey,
        fingerprint: ItemFingerprint | None,
        parameter: BatchParameter,
        policy: CallPolicy,
    ) -> None:
        self.function = function
        self.key = key
        self.fingerprint = fingerprint
        self.parameter = parameter
        self.marks = policy.on_done == "marker"

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _BatchCall:
        """Read the keys of a call. Raises TypeError: the arguments do not fit."""
        return _BatchCall(self, args, kwargs)


class _BatchCall:
    def __init__(self, form: _Batch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._form = form
        self._items, self._with_items = form.parameter.take(args, kwargs)
        self._missing: dict[int, Exception] = {}
        #: The key of each item, None = it has none.
        self._keys: list[str | None] = []
        #: Key -> position of its first item.
        self._first: dict[str, int] = {}
        #: The different keys, each with the fingerprint of its first item.
        self.keys: dict[str, str | None] = {}
        for position, item in enumerate(self._items):
            try:
                key = self._key(item)
            except (KeyMissing, KeyReused, SettingError) as error:
                self._missing[position] = error
                self._keys.append(None)
            else:
                self._keys.append(key)
                self._first.setdefault(key, position)

    def _key(self, item: object) -> str:
        """Read an item's key. Raises KeyMissing; KeyReused: an earlier item has the key, with another payload;
        SettingError of a fingerprint."""
        key, of_item = self._form.key(item), self._form.fingerprint
        fingerprint = None if of_item is None else of_item(item, key)
        if self.keys.setdefault(key, fingerprint) != fingerprint and of_item is not None:
            raise reused(of_item.name)
        return key

    def body(self, keys: Sequence[str]) -> Any:  # noqa: ANN401 - as the function
        """Run the function for the first item of each of these keys."""
        args, kwargs = self._with_items([self._items[self._first[key]] for key in keys])
        return self._form.function(*args, **kwargs)

    def outcome(self, work: Work) -> list[Any]:
        """Return the results of the call, or raise its error."""
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
    """Drive all steps in this thread.

    Args:
        steps: those of a `Work`.
        body: runs the function for some of the keys.
    """
    reply: Any = None
    error: BaseException | None = None
    try:
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
                    _run(step, body)
            except BaseException as raised:  # noqa: BLE001 - the steps decide, and raise it again
                error = raised
    finally:
        steps.close()  # the steps have not ended if a signal's handler has raised in a line of this function


async def drive_async(
    steps: Generator[Ask | Pause | Run, Any, None],
    body: Callable[[Sequence[str]], Awaitable[Any]],
    pool: ThreadPoolExecutor,
) -> None:
    """Drive all steps in this task; threads of `pool` ask the store. May be cancelled, or closed, at any point."""
    reply: Any = None
    error: BaseException | None = None
    try:
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
                    await _run_async(step, body)
            except BaseException as raised:  # noqa: BLE001 - the steps decide, and raise it again
                error = raised
    finally:
        steps.close()  # as above


async def _ask_async(step: Ask, pool: ThreadPoolExecutor) -> Any:  # noqa: ANN401 - as the store answers
    question = _Question(step)
    try:
        return await asyncio.wrap_future(pool.submit(question))
    except StoreError:
        raise
    except BaseException:  # cancelled, closed or collected; or the loop is not asyncio's
        question.abandon()
        raise


class _Question:
    """An `Ask` that runs in a thread of the pool, and that its task may abandon at any time.

    Has no lock: a garbage collection that closes the task may run in the middle of any line. The thread or the task,
    whichever is later, undoes the call; it does no harm if both do.
    """

    def __init__(self, step: Ask) -> None:
        self._step = step
        self._begun = self._ended = self._abandoned = False

    def __call__(self) -> Any:  # noqa: ANN401 - as the store answers
        """Run the call. In a thread of the pool."""
        self._begun = True
        try:
            return None if self._abandoned else self._step.call()
        finally:
            self._ended = True
            if self._abandoned:
                self._step.undo()

    def abandon(self) -> None:
        """Note that the task waits no more. In the task; does not block."""
        self._abandoned = True
        if self._ended or not self._begun:
            self._step.undo()


def _run(step: Run, body: Callable[[Sequence[str]], Any]) -> None:
    before = CURRENT.get()
    try:
        try:
            CURRENT.set(step.claim)
            step.ended.returned = body(step.keys)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            step.ended.error = error
        finally:
            _leave(step, before)
    finally:
        _leave(step, before)  # again: a signal's handler may have raised just before the first time


async def _run_async(step: Run, body: Callable[[Sequence[str]], Awaitable[Any]]) -> None:
    before = CURRENT.get()
    try:
        try:
            CURRENT.set(step.claim)
            step.ended.returned = await body(step.keys)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            step.ended.error = error
        finally:
            _leave(step, before)
    finally:
        _leave(step, before)  # as above


def _leave(step: Run, before: CurrentClaim | None) -> None:
    if CURRENT.get() is step.claim:  # the collector closes a task in the context of other code
        CURRENT.set(before)
