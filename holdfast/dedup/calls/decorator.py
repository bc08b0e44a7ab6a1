"""@idempotent: a function whose body runs once for each key, whatever calls it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

from holdfast.dedup.calls.codec import codec_of
from holdfast.dedup.calls.guard import Guard
from holdfast.dedup.calls.results import CallPolicy
from holdfast.dedup.claims import check_store
from holdfast.dedup.not_run import is_coroutine, makes_generator, name_of_call
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.dedup.calls.call_keys import CallKey
    from holdfast.dedup.calls.codec import Decode, Encode
    from holdfast.dedup.calls.fingerprints import FingerprintOf
    from holdfast.dedup.calls.process import CallStore
    from holdfast.dedup.calls.results import OnBusy, OnDone, RaiseOrReturn, Skipped, StoreDown

P = ParamSpec("P")
R = TypeVar("R")


class _Same(Protocol):
    """Takes a function to one that returns the same."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


class _OrSkipped(Protocol):
    """Takes a function to one that may return `Skipped` as well."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | Skipped]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | Skipped]: ...


class _Batch(Protocol):
    """Takes a function of a list to one that returns a list, with a result or `Skipped` for each item."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Any]], /
    ) -> Callable[P, Coroutine[Any, Any, list[Any]]]: ...
    @overload
    def __call__(self, function: Callable[P, Any], /) -> Callable[P, list[Any]]: ...


@overload
def idempotent(
    claims: CallStore,
    *,
    key: CallKey,
    name: str | None = None,
    batch: Literal[False] = False,
    fingerprint: FingerprintOf = False,
    on_done: Literal["result"] = "result",
    on_busy: Literal["wait", "raise"] = "wait",
    wait_s: float = 30.0,
    on_fenced: RaiseOrReturn = "raise",
    on_unconfirmed: RaiseOrReturn = "return",
    store_down: StoreDown = "raise",
    encode: Encode | None = None,
    decode: Decode | None = None,
) -> _Same: ...
@overload
def idempotent(
    claims: CallStore,
    *,
    key: CallKey,
    name: str | None = None,
    batch: Literal[False] = False,
    fingerprint: FingerprintOf = False,
    on_done: OnDone = "result",
    on_busy: OnBusy = "wait",
    wait_s: float = 30.0,
    on_fenced: RaiseOrReturn = "raise",
    on_unconfirmed: RaiseOrReturn = "return",
    store_down: StoreDown = "raise",
    encode: Encode | None = None,
    decode: Decode | None = None,
) -> _OrSkipped: ...
@overload
def idempotent(
    claims: CallStore,
    *,
    key: CallKey,
    name: str | None = None,
    batch: Literal[True],
    fingerprint: FingerprintOf = False,
    on_done: OnDone = "result",
    on_busy: OnBusy = "wait",
    wait_s: float = 30.0,
    on_fenced: RaiseOrReturn = "raise",
    on_unconfirmed: RaiseOrReturn = "return",
    store_down: StoreDown = "raise",
    encode: Encode | None = None,
    decode: Decode | None = None,
) -> _Batch: ...
def idempotent(
    claims: CallStore,
    *,
    key: CallKey,
    name: str | None = None,
    batch: bool = False,
    fingerprint: FingerprintOf = False,
    on_done: OnDone = "result",
    on_busy: OnBusy = "wait",
    wait_s: float = 30.0,
    on_fenced: RaiseOrReturn = "raise",
    on_unconfirmed: RaiseOrReturn = "return",
    store_down: StoreDown = "raise",
    encode: Encode | None = None,
    decode: Decode | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a function's body once for each key, in all processes that use one store and namespace.

    A body that raises frees its key; the key of a process that dies is free when its session ends (`lease_s` of the
    store, 10 s by default). No decorator can prevent one case: after a crash *between the body's effect and the store's
    note of it* the body runs again.

    Plain functions block their thread while the store is asked; `async def` functions do not block their event loop.
    Threads, tasks, event loops and forked workers may share the store object: each process has a session of its own.

    Args:
        claims: the store. It has to outlive the function's calls.
        key: a parameter's name ("order_id"), with dots a path into it ("order.id": fields of dicts, attributes), a
            tuple of such (("self.tenant", "order_id")), or a function that takes the same arguments. With `batch`:
            paths into an item, or a function of the item.
            Keys are typed, as `holdfast.dedup.keys` says: 4711 and "4711" are two.
        name: under which the keys are kept; by default module and qualified name. Change neither while keys matter.
            A handler of `Holdfast` with that `scope` has the same keys.
        batch: the function takes a list of items as its first argument. It is called with the items whose keys are new,
            each key once, as often as needed until all keys are settled, and returns a list of as many results, or
            None; it may raise `BatchFailed` to fail some. The decorated function returns one result an item, in order,
            or raises `BatchFailed` with the positions in its own list.
        fingerprint: the payload that a call with the same key has to repeat: True for all arguments (in a batch: the
            item; of a `Record` its value), a name, a path or a tuple of them as for `key`, or a function as for `key`
            that makes plain data of them. A digest is kept with the key; once the key is done, a call with another
            digest raises `KeyReused`. While the key is busy, and after a body that has failed, nothing is compared. A
            key that was done without a fingerprint fits every payload.
        on_done: the return value of a call whose key is done. "result": the value that the first call returned, which
            has to read back as the same, see `encode`; None if it was done without a result. "marker": `Skipped.DONE`;
            no result is kept.
        on_busy: the behaviour of a call while another one holds its key. "wait": wait up to `wait_s` until the other
            has ended, then raise `KeyBusy`. "raise": raise `KeyBusy` at once; no item of a batch is run. "skip": return
            `Skipped.BUSY`.
        wait_s: seconds; longer than the lease, or a call gives up before the key of a dead process is free.
        on_fenced: the body has outlived its session (this process was frozen, or without the store, for longer than
            the lease) and another call has taken its key over: raise `Fenced`, or return the result all the same. The
            body can ask `current_claim().cancelled`. If no other call has taken the key over, the result counts as
            usual.
        on_unconfirmed: the body has run and the store does not answer: return the result, or raise `Unconfirmed`. In
            either case the call to the store is repeated in the background, and the key stays busy until it has
            answered.
        store_down: without an answer *before* the body: raise `StoreUnavailable` and run nothing, or ("open") run it
            without protection, which is logged.
        encode: from a result (in a batch: of an item) to the text that is kept, together with `decode`. Without them a
            result is kept as JSON, or by the return annotation: pydantic or msgspec, if one is installed, writes
            models, dataclasses, Decimal, datetime, UUID, Enums and tuples.
        decode: from that text to the result.

    Returns:
        The decorator. The decorated function raises the body's errors, and:
        KeyMissing (no key, an empty one, or one of another type), KeyBusy, KeyReused (see `fingerprint`), Fenced,
        Unconfirmed, StoreUnavailable, StoreRefused, BatchFailed, and ResultNotStored: the body has run and its key is
        done, but its result cannot be kept. Later calls raise it too.

    Raises:
        SettingError: a value that cannot work; by the decorator: a function that cannot be guarded (a generator),
            whose name is missing or taken, or whose return annotation cannot be kept; by a call of a method: its object
            differs from an earlier one in data that is not part of the key.
    """
    check_store("claims", claims, "calls")
    policy = CallPolicy(
        on_done=on_done,
        on_busy=on_busy,
        wait_s=wait_s,
        on_fenced=on_fenced,
        on_unconfirmed=on_unconfirmed,
        store_down=store_down,
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check(function)
        codec = codec_of(function, encode=encode, decode=decode, batch=batch, kept=on_done == "result")
        guard = Guard(
            claims.calls,
            policy,
            function,
            key=key,
            name=name,
            batch=batch,
            fingerprint=fingerprint,
            codec=codec,
        )
        if is_coroutine(function):

            @functools.wraps(function)
            async def guarded_async(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
                return await guard.call_async(args, kwargs)

            return guarded_async

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            return guard.call(args, kwargs)

        return guarded

    return decorate


def _check(function: object) -> None:
    if isinstance(function, classmethod | staticmethod):
        raise SettingError("function", function, "put @idempotent below @classmethod or @staticmethod")
    if not callable(function) or isinstance(function, type):
        raise SettingError("function", function, "decorate a function or a method")
    if makes_generator(function):
        raise SettingError(
            "function",
            name_of_call(function),
            "a generator has not run when its call returns: let it return a list, or decorate what works on an item",
        )
