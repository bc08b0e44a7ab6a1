"""One store in one process: the session that all its idempotent functions share, and what is owed to the store."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.dedup.calls.names import Names
from holdfast.dedup.claims import ClaimStore, Verdict
from holdfast.dedup.forks import after_fork
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import Claim, ClaimSession

log = logging.getLogger("holdfast.dedup")

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 1.0


class Finish(NamedTuple):
    """A `finish` of keys whose body has run."""

    session: ClaimSession
    claims: Sequence[Claim]
    results: Sequence[str]

    def pay(self) -> None:
        """Raises StoreError: no answer."""
        verdicts = self.session.finish(self.claims, self.results)
        for claim, verdict in zip(self.claims, verdicts, strict=True):
            if verdict is Verdict.FENCED:
                log.warning("a call of %s had been taken over before it was known to be done", claim.key.scope)


class GiveBack(NamedTuple):
    """A `give_back` of keys that are not in use: the body has failed, or was never run."""

    session: ClaimSession
    claims: Sequence[Claim]

    def pay(self) -> None:
        """Raises StoreError: no answer."""
        if self.session.live():  # else the keys are free already, or soon will be
            self.session.unclaim(self.claims)


class Debts:
    """Of one process to one store. Any thread; nothing here blocks but `pay`."""

    def __init__(self) -> None:
        self._owed: deque[Finish | GiveBack] = deque()
        self._lock = threading.Lock()  # innermost; around the queue and the thread's start and end
        self._paying = threading.Lock()  # held while the store is asked
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return bool(self._owed)

    def add(self, debt: Finish | GiveBack) -> None:
        """Owe it. A thread pays, for as long as anything is owed."""
        with self._lock:
            self._owed.append(debt)
            if self._thread is None:
                thread = threading.Thread(target=self._pay_all, name="holdfast-debts", daemon=True)
                with suppress(RuntimeError):  # the interpreter ends: it is paid then, or the lease decides
                    thread.start()
                    self._thread = thread

    def pay(self) -> None:
        """Pay what is owed now, unless another thread is about it.

        Raises:
            StoreError: no answer; it stays owed, behind the others.
        """
        if not self._owed or not self._paying.acquire(blocking=False):
            return
        try:
            for debt in list(self._owed):
                try:
                    debt.pay()
                except BaseException:
                    with self._lock:
                        self._owed.rotate(-1)  # a store that never takes this one may take the others
                    raise
                with self._lock:
                    self._owed.popleft()  # only who holds `_paying` takes from the left
        finally:
            self._paying.release()

    def _pay_all(self) -> None:
        pause_s, wait = _PAUSE_FIRST_S, threading.Event().wait
        while True:
            try:
                self.pay()
                pause_s = _PAUSE_FIRST_S
            except StoreError:
                pass  # no answer: it stays owed
            except Exception:
                # Must not end the thread: nobody else would pay, and the keys would stay busy for as long as we live.
                log.exception("what is owed to the store was not told, and will be told again")
            with self._lock:
                if not self._owed:
                    self._thread = None
                    return
            wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MOST_S)


#: Where the store has no setting of its own.
_LEASE_S = 10.0
#: Threads that ask the store for coroutines. A question takes a fraction of a millisecond, or the store is down.
_ASKING = 8


class Here:
    """The state of one process. Any thread. It knows no store, so that one which nobody uses any more is let go of."""

    def __init__(self) -> None:
        self.debts = Debts()
        self._numbers = itertools.count(1)
        self._beginning = threading.Lock()  # held while the store is asked for a session
        self._failures = 0
        self._failure = StoreError()
        self._session: ClaimSession | None = None
        self._open = 0
        self._lock = threading.Lock()  # innermost; around the count and the pool's start
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None

    def number(self) -> int:
        """Another one for each claim: no two calls under one session ask for a key as one."""
        return next(self._numbers)  # one step of the interpreter

    def session(self, begin: Callable[[], ClaimSession]) -> ClaimSession:
        """The session; a new one, where there is none or it is lost.

        Raises:
            StoreError: no answer, or a no.
        """
        session, failures = self._session, self._failures
        if session is not None and session.live():
            return session
        with self._beginning:
            if self._session is not None and self._session.live():
                return self._session
            if self._failures != failures:
                # Who has waited here while another asked in vain has waited long enough.
                raise type(self._failure)(str(self._failure))
            try:
                self._session = begin()
            except StoreError as error:
                # Another one: this one's traceback holds the caller's arguments.
                self._failures, self._failure = self._failures + 1, type(error)(str(error))
                raise
            return self._session

    def unanswered(self, name: str, error: StoreError) -> None:
        """A body runs without the store's word. Told once an outage."""
        if not self._open:
            log.warning("the store is down, and %s runs without protection, as it was told to: %s", name, error)
        self._open += 1

    def answered(self) -> None:
        """The store is there."""
        if self._open:
            log.warning("the store is back; calls that ran without protection: %d", self._open)
            self._open = 0

    def enter(self) -> None:
        """A call begins that may hold keys."""
        with self._lock:
            self._running += 1

    def leave(self) -> None:
        """Note that a call has ended."""
        with self._lock:
            self._running -= 1

    def pool(self) -> ThreadPoolExecutor:
        """Threads that ask the store, so that no event loop waits for it; not a loop's own pool, which the user's own
        blocking calls may fill."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_ASKING, thread_name_prefix="holdfast-claims")
            return self._pool

    def end(self) -> None:
        """End the session, if nothing holds keys and nothing is owed; else its lease decides. Does not raise."""
        with suppress(StoreError):
            self.debts.pay()
        with self._lock:
            if self._running or self.debts:
                return
            session, self._session = self._session, None
            self._pool = None  # its threads end with the last call that uses it
        if session is not None:
            session.end()


class Calls:
    """The common part of a store's idempotent functions. It belongs to the store, which closes it.

    Args:
        store: where the keys are.
        lease_s: the store's own setting; None: 10 s.
    """

    def __init__(self, store: ClaimStore, lease_s: float | None) -> None:
        self.names = Names()
        self._store = store
        self._lease_s = lease_s if lease_s is not None else _LEASE_S
        self._start()
        after_fork(self, Calls._renew)

    def _start(self) -> None:
        self.here = Here()
        # At the end of the process, or when nobody has the store any more.
        self._ends = weakref.finalize(self, self.here.end)

    def _renew(self) -> None:
        self._ends.detach()  # the session is the parent's
        self._start()

    def session(self) -> ClaimSession:
        """The session of this process. Raises StoreError."""
        return self.here.session(lambda: self._store.begin(self._lease_s))

    def close(self) -> None:
        """End the session, if it may end. A call after this begins another."""
        self.here.end()


class CallStore(ClaimStore, Protocol):
    """A store whose functions can be idempotent: RedisClaims, MemoryClaims."""

    @property
    def calls(self) -> Calls:
        """Made with the store, closed with it."""
        ...
