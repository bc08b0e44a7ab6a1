"""One call of an idempotent function, as steps without I/O: a driver asks the store, waits, and runs the body.

    claim the keys > run the body for the new ones > finish these > read the results of those that were done
    > wait for the busy ones, holding none, and ask again

A driver is a loop of a few lines, one for plain functions and one for coroutines (guard.py), so the two cannot differ.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.calls.fingerprints import reused
from holdfast.dedup.calls.grant import Grant
from holdfast.dedup.calls.results import TOO_LARGE, Skipped, lose, not_stored, stamped, unstamped
from holdfast.dedup.claims import Verdict
from holdfast.dedup.not_run import not_run
from holdfast.errors import (
    BatchFailed,
    Fenced,
    KeyBusy,
    KeyReused,
    ResultNotStored,
    SettingError,
    StoreError,
    Unconfirmed,
)
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from holdfast.dedup.calls.codec import Codec
    from holdfast.dedup.calls.debts import FinishReply
    from holdfast.dedup.calls.grant import CurrentClaim
    from holdfast.dedup.calls.process import Calls
    from holdfast.dedup.calls.results import CallPolicy
    from holdfast.dedup.claims import Claim

_MISCOUNTED = "not a list with one result for each item of the batch"
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.01, 0.5


class Ask(NamedTuple):
    """Ask the store. The driver sends the result of `call` into the steps, or throws its exception into them."""

    call: Callable[[], Any]  #: blocks for the store's timeout
    #: Called if the task has stopped waiting, once `call` has ended in its thread; does not block.
    undo: Callable[[], None]


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Ended:
    """How a body has ended. The driver writes it here at once, so that it is known even if the driver is interrupted in
    its next line."""

    __slots__ = ("error", "returned")

    def __init__(self) -> None:
        self.returned: Any = _NOTHING
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether it has returned, or failed."""
        return self.returned is not _NOTHING or self.error is not None

    def judge(self, name: str) -> None:
        """Turn a returned value whose work has not run yet into an error: its keys are not done."""
        if self.error is None and (kind := not_run(self.returned)) is not None:
            remedy = f"it returned a {kind}, which has not run yet: make it an `async def`, or let it return a list"
            self.error = SettingError("function", name, remedy)


_NOTHING = object()


class Run(NamedTuple):
    """Run the body for these keys, and write in `ended` how it has ended. A BaseException that is no Exception is
    thrown into the steps."""

    keys: Sequence[str]
    claim: CurrentClaim
    ended: Ended


class Work:
    """One call.

    Args:
        calls: of the store.
        name: the function's name, which is the scope of its keys.
        policy: the function's settings.
        keys: all different, each with the fingerprint of its payload, or None.
        codec: writes and reads its results.
        batch: whether the body takes, and returns, a list.
    """

    def __init__(
        self, calls: Calls, name: str, policy: CallPolicy, keys: Mapping[str, str | None], codec: Codec, *, batch: bool
    ) -> None:
        self._codec = codec
        self._calls = calls
        self._name = name
        self._policy = policy
        self._batch = batch
        self._keys = keys
        #: In the end each key is here,
        self.results: dict[str, Any] = {}
        #: or here.
        self.failures: dict[str, Exception] = {}
        #: The body has failed for all keys that it was given.
        self.error: Exception | None = None
        self._ran = False

    def steps(self) -> Generator[Ask | Pause | Run, Any, None]:
        """The steps of the call, until each key is in `results` or `failures`, or there is an `error`. Raises
        StoreError."""
        process, number = self._calls.process, self._calls.process.number()
        try:
            try:
                process.debts.enter(number)
                yield from self._rounds()
            finally:
                process.debts.leave(number)
        finally:
            process.debts.leave(number)  # again: a signal's handler may have raised just before the first time

    def _rounds(self) -> Generator[Ask | Pause | Run, Any, None]:
        patience, pauses = Deadline(self._policy.wait_s), _pauses()
        busy = yield from self._round(list(self._keys))
        while busy and self.error is None:
            if self._ran:  # the time in which the batch's other items ran does not count as waiting
                patience, self._ran = Deadline(self._policy.wait_s), False
            if patience.passed:
                self.failures |= {key: self._busy() for key in busy}
                return
            yield Pause(patience.left_s(next(pauses)))
            busy = yield from self._round(busy)

    def _round(self, keys: Sequence[str]) -> Generator[Ask | Pause | Run, Any, list[str]]:
        """Claim the keys once, and handle those that can be handled. Returns the keys to wait for."""
        grant = Grant(self._calls, self._name, keys)
        try:
            try:
                return (yield from self._with(grant))
            finally:
                grant.owe_rest()  # owes nothing unless the call was cancelled, interrupted or closed
        finally:
            grant.owe_rest()  # again: a signal's handler may have interrupted the first time

    def _with(self, grant: Grant) -> Generator[Ask | Pause | Run, Any, list[str]]:
        try:
            verdicts: list[Verdict] = yield Ask(grant.ask, grant.owe_rest)
        except StoreError as error:
            if self._policy.store_down != "open" or not error.retriable:
                raise
            verdicts = grant.go_without(error)
        found: dict[Verdict, list[Claim]] = {verdict: [] for verdict in Verdict}
        for claim, verdict in zip(grant.claims, verdicts, strict=True):
            found[verdict].append(claim)
        new, done, busy = found[Verdict.NEW], found[Verdict.DONE], _keys(found[Verdict.BUSY])
        if busy and self._policy.on_busy == "raise":
            if new:
                yield Ask(lambda: grant.give_back(new), grant.owe_rest)
            self.error = self._busy()
            return []
        if busy and self._policy.on_busy == "wait" and (own := grant.own(busy)):
            self.failures |= {key: _reentered(self._name) for key in own}
            busy = [key for key in busy if key not in own]
        if new:
            yield from self._run(grant, new)
        if done and self.error is None:
            busy += yield from self._done(grant, done)
        if self._policy.on_busy == "skip":
            self.results |= dict.fromkeys(busy, Skipped.BUSY)
            return []
        return busy

    def _run(self, grant: Grant, claims: list[Claim]) -> Generator[Ask | Pause | Run, Any, None]:
        keys, self._ran, ended = _keys(claims), True, Ended()

        def texts() -> dict[Claim, str]:
            if not ended.done:
                return {}
            ended.judge(self._name)
            failed, returned = self._failed(keys, ended), self._returned(keys, ended)
            return {claim: self._text(returned, claim.key.key)[0] for claim in claims if claim.key.key not in failed}

        grant.runs(texts)
        yield Run(keys, grant.current(claims), ended)
        ended.judge(self._name)
        failed = self._failed(keys, ended)
        if failed:
            if ended.error is not None and not self._of_items(keys, ended.error):
                self.error = ended.error
            self.failures |= failed
            lost = [claim for claim in claims if claim.key.key in failed]
            yield Ask(lambda: grant.give_back(lost), grant.owe_rest)
        done = [claim for claim in claims if claim.key.key not in failed]
        if done:
            yield from self._finish(grant, done, self._returned(keys, ended))

    def _failed(self, keys: list[str], ended: Ended) -> dict[str, Exception]:
        """The keys for which the body has failed, with their errors."""
        error = ended.error
        if error is None:
            return {}
        if self._batch and isinstance(error, BatchFailed):
            if error.fits(len(keys)):
                return {keys[position]: each for position, each in error.failures.items()}
            error = error.fails_all(len(keys))
        return dict.fromkeys(keys, error)

    def _of_items(self, keys: list[str], error: Exception) -> bool:
        """Whether the call raises it with positions in its own list instead of as it is."""
        return self._batch and isinstance(error, BatchFailed) and (error.fits(len(keys)) or len(keys) < len(self._keys))

    def _returned(self, keys: list[str], ended: Ended) -> dict[str, Any]:
        """The body's result for each key; empty if the list does not fit."""
        returned = None if ended.returned is _NOTHING else ended.returned
        if not self._batch:
            return {keys[0]: returned}
        if returned is None:
            return dict.fromkeys(keys)
        if isinstance(returned, list | tuple) and len(returned) == len(keys):
            return dict(zip(keys, returned, strict=True))
        return {}

    def _finish(
        self, grant: Grant, claims: list[Claim], returned: dict[str, Any]
    ) -> Generator[Ask | Pause | Run, Any, None]:
        texts: list[str] = []
        lost: dict[str, ResultNotStored] = {}
        for key in _keys(claims):
            text, error = self._text(returned, key)
            texts.append(text)
            if error is not None:
                lost[key] = error
        reply: FinishReply | None = yield Ask(lambda: grant.finish(claims, texts), grant.owe_rest)
        for i, key in enumerate(_keys(claims)):
            if reply and i in reply.results_refused:
                lost[key] = not_stored(TOO_LARGE)
            failure = self._failure(reply.verdicts[i] if reply else None) or lost.get(key)
            if failure is not None:
                self.failures[key] = failure
            else:
                self.results[key] = returned.get(key)

    def _text(self, returned: dict[str, Any], key: str) -> tuple[str, ResultNotStored | None]:
        text, error = "", None
        if self._policy.on_done == "result":
            text, error = self._codec.encode(returned[key]) if key in returned else lose(_MISCOUNTED)
        return stamped(self._keys[key], text), error

    def _failure(self, verdict: Verdict | None) -> Exception | None:
        if verdict in (Verdict.DONE, Verdict.FENCED) and self._policy.on_fenced == "raise":
            return Fenced(
                f"{self._name} has run, but its process had lost the key and another call has taken it over (or the "
                "store has lost its data): drop the result. A process that does not renew its session for "
                "lease_s counts as dead"
            )
        if verdict is None and self._policy.on_unconfirmed == "raise":
            return Unconfirmed(
                f"{self._name} has run, and the store has not answered that its key is done; that is repeated in "
                "the background. Call again to learn whether it is"
            )
        return None

    def _done(self, grant: Grant, claims: list[Claim]) -> Generator[Ask | Pause | Run, Any, list[str]]:
        """Read the results of keys that were done before. Returns the keys to wait for."""
        keys = _keys(claims)
        if self._policy.on_done == "marker" and not any(map(self._keys.get, keys)):
            self.results |= dict.fromkeys(keys, Skipped.DONE)
            return []
        texts: list[str | None] = yield Ask(lambda: grant.results(claims), grant.owe_rest)
        gone = []
        for key, text in zip(keys, texts, strict=True):
            if text is None:
                gone.append(key)  # its window has passed since the store replied DONE
                continue
            try:
                self.results[key] = self._read(key, text)
            except (KeyReused, ResultNotStored) as error:
                self.failures[key] = error
        return (yield from self._round(gone)) if gone else []

    def _read(self, key: str, text: str) -> Any:  # noqa: ANN401 - whatever the function returned
        """Read the text kept with a key that was done. Raises KeyReused, ResultNotStored."""
        fingerprint, result = unstamped(text)
        if None not in (fingerprint, self._keys[key]) and fingerprint != self._keys[key]:
            raise reused(self._name)
        return Skipped.DONE if self._policy.on_done == "marker" else self._codec.decode(result)

    def _busy(self) -> KeyBusy:
        return KeyBusy(
            f"another call of {self._name} is running for this key"
            + (f", and has not ended within {self._policy.wait_s} s" if self._policy.on_busy == "wait" else "")
            + ": call again later. If its process died, the key is free when its lease ends"
        )


def _reentered(name: str) -> KeyBusy:
    return KeyBusy(
        f"{name} was called in its own body for a key that this body holds, and would wait for itself: call the "
        "function that it decorates (its __wrapped__), or give the inner call another key"
    )


def _keys(claims: Sequence[Claim]) -> list[str]:
    return [claim.key.key for claim in claims]


def _pauses() -> Iterator[float]:
    """Seconds between two tries, with jitter, so that calls that wait for one key do not ask at the same time."""
    pause_s = _PAUSE_FIRST_S
    while True:
        yield pause_s * random.uniform(0.5, 1.0)
        pause_s = min(1.5 * pause_s, _PAUSE_MOST_S)
