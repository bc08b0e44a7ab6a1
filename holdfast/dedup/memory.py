"""MemoryClaims: the table of claims.py as Python, the executable specification of a store. For tests, and for a group
in one process."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

from holdfast.dedup.forks import after_fork
from holdfast.dedup.lease import Lease
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.memory_state import MemoryState, StoredSession, straight
from holdfast.errors import SettingError
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from holdfast.dedup.calls.process import Calls
    from holdfast.dedup.memory_state import Carry
    from holdfast.runtime import Runtime


class MemoryClaims:
    """The executable specification of a ClaimStore. Nothing outlives the object. Any thread may call.

    Args:
        lease_s: a session that is not renewed for so long is dead. None: the lease given to `begin`.
        window_s: how long a finished key is remembered. Positions are kept for ever.
        runtime: the machine; its clock judges leases and windows.
        renewals: False = no thread renews; a test calls `renew` of the session, or lets the lease run out.

    Raises:
        SettingError: a setting cannot work.
    """

    def __init__(
        self,
        *,
        lease_s: float | None = None,
        window_s: float = 7 * 86_400.0,
        runtime: Runtime = MACHINE,
        renewals: bool = True,
    ) -> None:
        if lease_s is not None:
            _check_seconds("lease_s", lease_s)
        _check_seconds("window_s", window_s)
        self.state = MemoryState(window_s, runtime)
        self._runtime = runtime
        self._lease_s = lease_s
        self._renewals = renewals
        #: Takes each call to the store and brings its reply; in tests this may fail or be late.
        self._carry: Carry = straight
        #: The coordinator of groups in this store.
        self.groups = MemoryCoordinator(watch_s=1.0, runtime=runtime)
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        #: One at most, made at the first use.
        self._calls: list[Calls] = []
        after_fork(self, MemoryClaims._forked)

    @property
    def calls(self) -> Calls:
        """The functions that are `idempotent` at this store, and their session."""
        from holdfast.dedup.calls.process import Calls  # noqa: PLC0415 - an app does without

        if not self._calls:
            self._calls.append(Calls(self, self._lease_s))
        return self._calls[0]  # where two threads have made one at the same time, both use the first

    @property
    def store_id(self) -> str:
        """The random name of this object's data."""
        return self.state.store_id

    def connect(self) -> None:
        """Do nothing: the store is in this process.

        Raises:
            StoreUnavailable: a test has made the store silent.
        """
        self._carry(self.state.answer)

    def begin(self, lease_s: float = 10.0) -> MemorySession:
        """Begin a session of `lease_s` at most.

        Raises:
            SettingError: not a lease.
            StoreUnavailable: a test has made the store silent.
        """
        _check_seconds("lease_s", lease_s)
        lease_s = lease_s if self._lease_s is None else min(lease_s, self._lease_s)
        lease = Lease(self._runtime.token(8), lease_s, self._runtime, sent_at=self._runtime.now())
        session = self._session(lease)

        def add_session() -> None:
            self.state.sessions[session.id] = StoredSession(deadline=self.state.clock.now() + lease_s)

        self._carry(lambda: self.state.handle(add_session))
        if self._renewals:
            lease.start(session.renew)
            self._leases.add(lease)
        return session

    def close(self) -> None:
        """Stop renewing: sessions that have not ended run out with their lease."""
        for calls in self._calls:
            calls.close()
        for lease in sorted(self._leases, key=_session_id):  # the same order each time, wherever they lie in memory
            lease.stop()

    def _session(self, lease: Lease) -> MemorySession:
        return MemorySession(self.state, lease, self._carry)

    def _forked(self) -> None:
        # A child has a copy of all this, and another thread may have held the lock.
        self.state.lock = self._runtime.lock()
        self._leases = weakref.WeakSet()

    # For tests.

    def elsewhere(self, runtime: Runtime, carry: Carry = straight) -> MemoryClaims:
        """Return this store as a process on another machine sees it: that machine's clock judges its leases.

        Args:
            runtime: of that process.
            carry: carries calls and replies between that process and the store.
        """
        other = MemoryClaims(
            lease_s=self._lease_s, window_s=self.state.window_s, runtime=runtime, renewals=self._renewals
        )
        other.state = self.state
        other._carry = carry
        other.groups = self.groups.elsewhere(runtime, carry)
        return other

    def expire(self, session_id: str) -> None:
        """Kill a session, as if its lease had passed: its process notices at the next reply."""
        with self.state.lock:
            self.state.kill(session_id)

    def go_silent(self, *, hears: bool) -> None:
        """Answer no call from now on. Args: hears: whether calls are applied all the same."""
        with self.state.lock:
            self.state.hears, self.state.speaks = hears, False

    def speak_again(self) -> None:
        """Hear and answer as before."""
        with self.state.lock:
            self.state.hears = self.state.speaks = True


def _session_id(lease: Lease) -> str:
    return lease.session_id


def _check_seconds(field: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise SettingError(field, value, "give a number of seconds above 0")
