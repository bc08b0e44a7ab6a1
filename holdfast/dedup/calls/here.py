"""One store in one process: the session that all its idempotent functions share, and what is owed to the store."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.calls.debts import Debts
from holdfast.dedup.calls.names import Names
from holdfast.dedup.claims import ClaimStore
from holdfast.dedup.forks import after_fork
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimSession

log = logging.getLogger("holdfast.dedup")

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
        """It has ended."""
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
    """What the idempotent functions of one store share. It belongs to the store, which closes it.

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
