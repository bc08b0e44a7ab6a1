"""One store in one process: the session that all its idempotent functions share, and the calls owed to the store."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.calls.debts import Debts
from holdfast.dedup.calls.functions import Names
from holdfast.dedup.claims import ClaimStore
from holdfast.dedup.forks import after_fork
from holdfast.errors import StoreError
from holdfast.runtime import check_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimSession

log = logging.getLogger("holdfast.dedup")

#: The lease, if the store has no setting of its own.
_LEASE_S = 10.0
#: Threads that ask the store for coroutines. A question takes a fraction of a millisecond, or the store is down.
_ASKING = 8


class ProcessState:
    """The state of one process. Any thread. Has no reference to the store, so that an unused store is collected."""

    def __init__(self) -> None:
        self.debts = Debts()
        self._numbers = itertools.count(1)
        # Reentrant: a garbage collection may run a destructor in this thread that calls an idempotent function.
        self._beginning = threading.RLock()  # held while the store is asked for a session
        self._failures = 0
        self._failure = StoreError()
        self._session: ClaimSession | None = None
        self._open = 0
        self._lock = threading.RLock()  # innermost; around the pool's start and the session's end
        self._pool: ThreadPoolExecutor | None = None
        _ALL.add(self)

    def number(self) -> int:
        """A new number for each claim, so that two calls under one session never have the same token."""
        return next(self._numbers)  # atomic

    def session(self, begin: Callable[[], ClaimSession]) -> ClaimSession:
        """Return the session; begin one if there is none, or if it is lost.

        Raises:
            StoreError: no answer, or a refusal.
        """
        session, failures = self._session, self._failures
        if session is not None and session.live():
            return session
        with self._beginning:
            if self._session is not None and self._session.live():
                return self._session
            if self._failures != failures:
                # This thread has waited here while another asked in vain: it does not wait for a second timeout.
                raise type(self._failure)(str(self._failure))
            self.debts.start()  # its thread ends the session, if nothing else does
            try:
                self._session = begin()
            except StoreError as error:
                # A copy is kept: the traceback of the original holds the caller's arguments.
                self._failures, self._failure = self._failures + 1, type(error)(str(error))
                raise
            return self._session

    def unanswered(self, name: str, error: StoreError) -> None:
        """Count a body that runs without the store. Logged once an outage."""
        if not self._open:
            log.warning("the store is down, and %s runs without protection, as its settings say: %s", name, error)
        self._open += 1

    def answered(self) -> None:
        """Note that the store has answered; log the end of an outage."""
        if self._open:
            log.warning("the store is back; calls that ran without protection: %d", self._open)
            self._open = 0

    def pool(self) -> ThreadPoolExecutor:
        """Threads that ask the store, so that no event loop waits for it. Not the default pool of a loop, because the
        user's blocking calls may fill that one."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_ASKING, thread_name_prefix="holdfast-claims")
            return self._pool

    def end(self) -> None:
        """End the session, if no call holds keys and nothing is owed; otherwise its lease runs out. Does not raise."""
        with suppress(StoreError):
            self.debts.pay()
        with self._lock:
            if self.debts.expected:
                return
            session, self._session = self._session, None
            self._pool = None  # its threads end with the last call that uses it
        self.debts.end()
        if session is not None:
            session.end()

    def end_unseen(self) -> None:
        """Do as `end`, in the thread of `Debts`: called when the store is collected, in the middle of any line, where
        the store cannot be asked."""
        self.debts.end(self.end)


#: All objects of this process, ended at its exit.
_ALL: weakref.WeakSet[ProcessState] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for process in list(_ALL):
        process.end()


class Calls:
    """The common part of a store's idempotent functions. It belongs to the store, which closes it.

    Args:
        store: the store of the keys.
        lease_s: the store's own setting; None: 10 s.
        place: equal for all store objects of this process that have the same keys; None: no other object has them.
    """

    def __init__(self, store: ClaimStore, lease_s: float | None, place: object = None) -> None:
        self.names = Names(place)
        self._store = store
        self._lease_s = lease_s if lease_s is not None else _LEASE_S
        self._start()
        after_fork(self, Calls._renew)

    def _start(self) -> None:
        self.process = ProcessState()
        self._ends = weakref.finalize(self, self.process.end_unseen)  # when the store is collected
        self._ends.atexit = False  # at exit `_end_all` does it, which waits

    def _renew(self) -> None:
        self._ends.detach()  # the session is the parent's
        self._start()

    def session(self) -> ClaimSession:
        """The session of this process.

        Raises:
            StoreError: no answer, or a refusal.
            SettingError: gevent or eventlet has patched this process' threads. A process that only imports idempotent
                functions, for example to enqueue their calls, may be patched.
        """
        return self.process.session(self._begin)

    def _begin(self) -> ClaimSession:
        check_threads()
        self.names.in_use = True
        return self._store.begin(self._lease_s)

    def close(self) -> None:
        """End the session, if no call holds keys. A later call begins another."""
        self.names.in_use = False
        self.process.end()


class CallStore(ClaimStore, Protocol):
    """A store whose functions can be idempotent: RedisClaims, MemoryClaims."""

    @property
    def calls(self) -> Calls:
        """The common part of its functions: made with the store, and closed with it."""
        ...
