"""Calls that one process owes to one store: keys to finish, and keys to give back.

A function's call may end between any two of its lines: a signal's handler raises, an event loop that ends closes the
coroutine, Python's garbage collector finds a task without a reference. `Debts.add` therefore takes no lock and starts
no thread: it may run in the middle of any other line of this process, even of `add` itself.
"""

from __future__ import annotations

import itertools
import logging
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.calls.results import without_result
from holdfast.dedup.claims import Verdict
from holdfast.errors import AccessRefused, StoreError, StoreRefused, StoreUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Claim, ClaimSession

log = logging.getLogger("holdfast.dedup")

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 1.0
#: The pause between two tries of a call that the store refuses: an operator has to act first.
_PAUSE_REFUSED_S = 30.0
#: Characters of results from which on the server's limit may be the cause: it may close the connection without an
#: error.
_LARGE = 65_536


class FinishReply(NamedTuple):
    """The store's answer to a `finish`."""

    verdicts: list[Verdict]
    #: The positions of keys that are done without their result, which the store has refused.
    results_refused: frozenset[int] = frozenset()


def finish_keys(session: ClaimSession, claims: Sequence[Claim], results: Sequence[str]) -> FinishReply:
    """Finish keys whose bodies have run. A result that the store refuses as too large is left out.

    Raises:
        StoreError: no answer, or a refusal for another reason than results.
    """
    try:
        return FinishReply(session.finish(claims, results))
    except AccessRefused:
        raise
    except StoreRefused as error:
        if not any(results):
            raise
        if len(claims) == 1:
            verdicts = session.finish(claims, [without_result(results[0])])
            log.warning("a result of %s is not stored, its key is done all the same: %s", claims[0].key.scope, error)
            return FinishReply(verdicts, frozenset({0}))
    parts = [finish_keys(session, [claim], [result]) for claim, result in zip(claims, results, strict=True)]
    verdicts = [part.verdicts[0] for part in parts]
    if session.live():  # DONE may be of the first try, at another shard: no call takes a key from a living session
        verdicts = [Verdict.NEW if verdict is Verdict.DONE else verdict for verdict in verdicts]
    return FinishReply(verdicts, frozenset(n for n, part in enumerate(parts) if part.results_refused))


class Finish(NamedTuple):
    """An owed `finish` of keys whose body has run."""

    session: ClaimSession
    claims: Sequence[Claim]
    results: Sequence[str]

    def pay(self) -> None:
        """Make the call. Raises StoreError: no answer, or a refusal."""
        try:
            verdicts = finish_keys(self.session, self.claims, self.results).verdicts
        except StoreUnavailable:
            if sum(map(len, self.results)) < _LARGE:
                raise
            self.session.results([claim.key for claim in self.claims])  # raises, if a small call has no answer either
            verdicts = self._again()
        for claim, verdict in zip(self.claims, verdicts, strict=True):
            if verdict is Verdict.FENCED:
                log.warning("a call of %s had been taken over before it was known to be done", claim.key.scope)

    def _again(self) -> list[Verdict]:
        try:
            return finish_keys(self.session, self.claims, self.results).verdicts
        except StoreUnavailable as error:
            large = _LARGE / len(self.results)
            rest = [result if len(result) < large else without_result(result) for result in self.results]
            verdicts = self.session.finish(self.claims, rest)
            log.warning(
                "the store answers, and twice it did not to a result of %s with %d characters; the key is done "
                "without it: %s",
                self.claims[0].key.scope,
                max(map(len, self.results)),
                error,
            )
            return verdicts


class GiveBack(NamedTuple):
    """An owed `unclaim` of keys whose body has failed, or was never run."""

    session: ClaimSession
    claims: Sequence[Claim]

    def pay(self) -> None:
        """Make the call. Raises StoreError: no answer, or a refusal."""
        if self.session.live():  # the keys of a dead session are free, or soon will be
            self.session.unclaim(self.claims)


class Debts:
    """The calls that one process owes to one store. Any thread.

    A thread of its own sends them ("pays"). It starts before the first key is claimed, and ends after `end` was called,
    once no call runs that may still owe something.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        #: Changed by single dict operations, which are atomic, without a lock. Two threads may pay at once: sending a
        #: debt twice does no harm.
        self._owed: dict[int, Finish | GiveBack] = {}
        #: Debts that the store has refused, or that a defect has made fail: they wait apart, and no call waits for
        #: them.
        self._refused: dict[int, Finish | GiveBack] = {}
        #: Calls that have not ended.
        self._entered: set[int] = set()
        self._paying = False
        #: `SimpleQueue.put` is reentrant, by its documentation; Event and Condition are not.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._last: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return bool(self._owed or self._refused)

    @property
    def expected(self) -> bool:
        """Whether something is owed, or a call runs that may still owe something."""
        return bool(self or self._entered)

    def enter(self, number: int) -> None:
        """Note that a call begins, and start the thread that pays."""
        self._entered.add(number)
        self.start()

    def leave(self, number: int) -> None:
        """Note that a call has ended. Does not block; may run in the middle of any other line."""
        self._entered.discard(number)

    def start(self) -> None:
        """Start the thread that pays, if there is none."""
        self._ending = False
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._pay_all, name="holdfast-debts", daemon=True)
                    with suppress(RuntimeError):  # the interpreter ends, or cannot start threads: the next call pays
                        thread.start()
                        self._thread = thread

    def end(self, last: Callable[[], None] | None = None) -> None:
        """Let the thread end once nothing is expected any more. Does not block; may run in the middle of any line.

        Args:
            last: called by the thread before it ends.
        """
        self._last, self._ending = last, True
        self._wake.put(None)

    def add(self, debt: Finish | GiveBack) -> None:
        """Owe this call. Does not block; may run in the middle of any other line."""
        self._owed[next(self._numbers)] = debt
        self._wake.put(None)

    def pay(self) -> None:
        """Pay all debts except those that were refused before. Does nothing while another thread pays.

        Raises:
            StoreError: no answer; the debts stay owed.
        """
        if not self._owed or self._paying:
            return
        try:
            try:
                self._paying = True
                self._pay(self._owed)
            finally:
                self._paying = False
        finally:
            self._paying = False  # again: a signal's handler may have raised just before the first time

    def _pay(self, owed: dict[int, Finish | GiveBack]) -> None:
        for number, debt in list(owed.items()):
            try:
                debt.pay()
            except StoreUnavailable:
                raise
            except Exception as error:
                if number not in self._refused:
                    trace = None if isinstance(error, StoreError) else error
                    log.warning("the store refused the end of a call; it is sent again: %s", error, exc_info=trace)
                    self._refused[number] = debt
            else:
                self._refused.pop(number, None)
            self._owed.pop(number, None)

    def _pay_all(self) -> None:
        me = threading.current_thread()
        while True:
            self._wake.get()
            self._pay_until_nothing_is_owed()
            # In this order: a call that begins meanwhile either finds no thread and starts one, or is in `expected`
            # here.
            self._thread = None
            if self._ending and not self.expected:
                break
            self._thread = me
        self._wake.put(None)  # for a second thread, if there is one
        if self._last is not None:
            self._last()

    def _pay_until_nothing_is_owed(self) -> None:
        pause_s = _PAUSE_FIRST_S
        while self:
            with suppress(StoreUnavailable):
                self._pay(self._owed)
                self._pay(self._refused)
            if self._owed:
                pause_s = min(pause_s, _PAUSE_MOST_S)
                SYSTEM_CLOCK.sleep(pause_s)  # new debts do not shorten the pause
            elif self._refused:
                with suppress(Empty):
                    self._wake.get(timeout=min(pause_s, _PAUSE_REFUSED_S))  # a new debt ends the pause
            pause_s *= 2
