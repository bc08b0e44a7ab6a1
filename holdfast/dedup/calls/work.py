"""One call of an idempotent function, as steps: what blocks, waits or runs the body is done by whoever drives them.

    ask for the keys > run the body for those that are new > say that they are done > results of those that were done
    > wait for those that are busy, holding none, and ask again

A driver is a loop of few lines, one for plain functions and one for coroutines (guard.py): so the two cannot differ.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.calls.grant import Grant
from holdfast.dedup.calls.results import Skipped, decode, encode, lose
from holdfast.dedup.claims import Verdict
from holdfast.errors import BatchFailed, Fenced, KeyBusy, ResultNotStored, StoreError, Unconfirmed
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from holdfast.dedup.calls.grant import CurrentClaim
    from holdfast.dedup.calls.here import Calls
    from holdfast.dedup.calls.results import CallPolicy
    from holdfast.dedup.claims import Claim

_MISCOUNTED = "not a list with one result for each item of the batch"
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.01, 0.5


class Ask(NamedTuple):
    """Ask the store. The reply is what `call` returns; what it raises is thrown in."""

    call: Callable[[], Any]  #: blocks for the store's timeout
    #: To be called where nobody waits any more, once `call` has ended in its thread; does not block.
    undo: Callable[[], None]


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Run(NamedTuple):
    """Run the body for these keys. The reply is an `Ended`; what is no Exception is thrown in."""

    keys: Sequence[str]
    claim: CurrentClaim


class Ended(NamedTuple):
    """A body that has returned, or failed."""

    returned: Any = None
    error: Exception | None = None


class Work:
    """One call.

    Args:
        calls: of the store.
        name: the function's, the scope of its keys.
        policy: its choices.
        keys: all different.
        batch: whether the body takes, and returns, a list.
    """

    def __init__(self, calls: Calls, name: str, policy: CallPolicy, keys: Sequence[str], *, batch: bool) -> None:
        self._calls = calls
        self._name = name
        self._policy = policy
        self._batch = batch
        self._keys = keys
        #: Where each key ends: here
        self.results: dict[str, Any] = {}
        #: or here.
        self.failures: dict[str, Exception] = {}
        #: The body has failed for all that it was given.
        self.error: Exception | None = None
        self._ran = False

    def steps(self) -> Generator[Ask | Pause | Run, Any, None]:
        """Until each key is in `results` or `failures`, or there is an `error`. Raises StoreError."""
        here = self._calls.here
        here.enter()
        try:
            yield from self._rounds()
        finally:
            here.leave()

    def _rounds(self) -> Generator[Ask | Pause | Run, Any, None]:
        patience, pauses = Deadline(self._policy.wait_s), _pauses()
        busy = yield from self._round(self._keys)
        while busy and self.error is None:
            if self._ran:  # the time in which others of the batch ran was no waiting
                patience, self._ran = Deadline(self._policy.wait_s), False
            if patience.passed:
                self.failures |= {key: self._busy() for key in busy}
                return
            yield Pause(patience.left_s(next(pauses)))
            busy = yield from self._round(busy)

    def _round(self, keys: Sequence[str]) -> Generator[Ask | Pause | Run, Any, list[str]]:
        """Ask once, and do what can be done. Returns the keys to wait for."""
        grant = Grant(self._calls, self._name, keys)
        try:
            return (yield from self._with(grant))
        except BaseException:  # also of a signal handler, between any two lines: no key is left in our hands
            grant.owe_rest()
            raise

    def _with(self, grant: Grant) -> Generator[Ask | Pause | Run, Any, list[str]]:
        try:
            verdicts: list[Verdict] = yield from _ask(grant.ask, grant.owe_back)
        except StoreError as error:
            if self._policy.store_down != "open" or not error.retriable:
                grant.owe_back()
                raise
            verdicts = grant.go_without(error)
        found: dict[Verdict, list[Claim]] = {verdict: [] for verdict in Verdict}
        for claim, verdict in zip(grant.claims, verdicts, strict=True):
            found[verdict].append(claim)
        new, done, busy = found[Verdict.NEW], found[Verdict.DONE], _keys(found[Verdict.BUSY])
        if busy and self._policy.on_busy == "raise":
            if new:
                yield from _ask(lambda: grant.give_back(new), lambda: grant.owe_back(new))
            self.error = self._busy()
            return []
        if new:
            yield from self._run(grant, new)
        if done and self.error is None:
            busy += yield from self._done(grant, done)
        if self._policy.on_busy == "skip":
            self.results |= dict.fromkeys(busy, Skipped.BUSY)
            return []
        return busy

    def _run(self, grant: Grant, claims: list[Claim]) -> Generator[Ask | Pause | Run, Any, None]:
        keys, self._ran = _keys(claims), True
        try:
            ended: Ended = yield Run(keys, grant.current(claims))
        except BaseException:  # cancelled, interrupted, exiting
            grant.owe_back(claims)
            raise
        failed = self._failed(keys, ended)
        if failed:
            self.failures |= failed
            lost = [claim for claim in claims if claim.key.key in failed]
            yield from _ask(lambda: grant.give_back(lost), lambda: grant.owe_back(lost))
        done = [claim for claim in claims if claim.key.key not in failed]
        if done:
            returned = self._returned(keys, ended)
            grant.ran(done, lambda: [self._text(returned, key)[0] for key in _keys(done)])
            yield from self._finish(grant, done, returned)

    def _failed(self, keys: list[str], ended: Ended) -> dict[str, Exception]:
        if ended.error is None:
            return {}
        if self._batch and isinstance(ended.error, BatchFailed):
            if ended.error.fits(len(keys)):
                return {keys[position]: error for position, error in ended.error.failures.items()}
            if len(keys) < len(self._keys):  # raised as it is, its positions would be those of a longer list
                return dict.fromkeys(keys, ended.error)
        self.error = ended.error
        return dict.fromkeys(keys, ended.error)

    def _returned(self, keys: list[str], ended: Ended) -> dict[str, Any]:
        """The body's result for each key; nothing, where that cannot be told."""
        if not self._batch:
            return {keys[0]: ended.returned}
        if ended.returned is None:
            return dict.fromkeys(keys)
        if isinstance(ended.returned, list | tuple) and len(ended.returned) == len(keys):
            return dict(zip(keys, ended.returned, strict=True))
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
        verdicts: list[Verdict] | None = yield from _ask(
            lambda: grant.finish(claims, texts), lambda: grant.owe(claims, texts)
        )
        for i, key in enumerate(_keys(claims)):
            failure = self._failure(verdicts[i] if verdicts else None) or lost.get(key)
            if failure is not None:
                self.failures[key] = failure
            else:
                self.results[key] = returned.get(key)

    def _text(self, returned: dict[str, Any], key: str) -> tuple[str, ResultNotStored | None]:
        if self._policy.on_done == "marker":
            return "", None
        return encode(returned[key]) if key in returned else lose(_MISCOUNTED)

    def _failure(self, verdict: Verdict | None) -> Exception | None:
        if verdict in (Verdict.DONE, Verdict.FENCED) and self._policy.on_fenced == "raise":
            return Fenced(
                f"{self._name} has run, but its process had lost the key and another call has taken it over (or the "
                "store has lost its data): drop the result. Who does not renew its session for lease_s is taken for "
                "dead"
            )
        if verdict is None and self._policy.on_unconfirmed == "raise":
            return Unconfirmed(
                f"{self._name} has run, and the store has not answered that its key is done; it is told again in the "
                "background. Call again to learn whether it is"
            )
        return None

    def _done(self, grant: Grant, claims: list[Claim]) -> Generator[Ask | Pause | Run, Any, list[str]]:
        """Returns the keys to wait for."""
        keys = _keys(claims)
        if self._policy.on_done == "marker":
            self.results |= dict.fromkeys(keys, Skipped.DONE)
            return []
        texts: list[str | None] = yield from _ask(lambda: grant.results(claims), lambda: None)
        gone = []
        for key, text in zip(keys, texts, strict=True):
            if text is None:
                gone.append(key)  # its window has passed since the store said that it is done
                continue
            try:
                self.results[key] = decode(text)
            except ResultNotStored as error:
                self.failures[key] = error
        return (yield from self._round(gone)) if gone else []

    def _busy(self) -> KeyBusy:
        return KeyBusy(
            f"another call of {self._name} is running for this key"
            + (f", and has not ended within {self._policy.wait_s} s" if self._policy.on_busy == "wait" else "")
            + ": call again later. If its process died, the key is free when its lease ends"
        )


def _ask(call: Callable[[], Any], undo: Callable[[], None]) -> Generator[Ask | Pause | Run, Any, Any]:
    try:
        return (yield Ask(call, undo))
    except StoreError:
        raise
    except BaseException:
        # Cancelled, interrupted, exiting; a signal handler may raise an Exception as well (Celery's soft time limit).
        # The store may have done it all the same.
        undo()
        raise


def _keys(claims: Sequence[Claim]) -> list[str]:
    return [claim.key.key for claim in claims]


def _pauses() -> Iterator[float]:
    """Seconds between two looks, with jitter: those who wait for one key shall not ask all at once."""
    pause_s = _PAUSE_FIRST_S
    while True:
        yield pause_s * random.uniform(0.5, 1.0)
        pause_s = min(1.5 * pause_s, _PAUSE_MOST_S)
