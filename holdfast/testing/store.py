"""SimulatedStore: a store of claims as a server of a simulated world, behind a network, with faults."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.dedup.memory_state import Finished
from holdfast.errors import AccessRefused, StoreLockedOut, StoreUnavailable
from holdfast.testing.network import Network, NoAnswer, Refused
from holdfast.testing.store_session import SimulatedSession, Witness, unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from holdfast.dedup.claims import ClaimKey, ClaimStore
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.memory_session import MemorySession
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler

_T = TypeVar("_T")

_WEEK_S = 7 * 86_400.0


class StoreServer(ABC):
    """A store behind a network, with failovers: the common part of the stores of simulated worlds.

    Args:
        scheduler: of the world.
        timeout_s: how long a process waits for a reply.
    """

    def __init__(self, scheduler: Scheduler, *, timeout_s: float) -> None:
        self.network = Network(scheduler, "store", timeout_s=timeout_s)
        #: The server's process. Its clock never switches tasks, so that each call is atomic.
        self.process = scheduler.process("store", preempted=False)
        self._scheduler = scheduler

    @abstractmethod
    def claims(self, process: Process) -> ClaimStore:
        """The store as that process sees it. Call once for each process."""

    @abstractmethod
    def coordinator(self, process: Process) -> Coordinator:
        """Groups in the same server, as that process sees them."""

    def fail_over(self, lost_s: float = 0.0) -> None:
        """A replica takes over after `lost_s` seconds. It replicates nothing from now on, so calls that are
        acknowledged within `lost_s` are lost."""
        take_over = self._replica()
        self._scheduler.at(self._scheduler.now + lost_s, take_over)

    @abstractmethod
    def empty(self) -> None:
        """Start the store again with nothing."""

    # For judges: no call takes time or changes anything.

    @abstractmethod
    def alive(self, session: str) -> bool:
        """Whether the session lives, as the store judges it."""

    @abstractmethod
    def is_done(self, position: str, offset: int) -> bool:
        """Whether the offset is marked as done in that position."""

    @abstractmethod
    def is_finished(self, key: ClaimKey) -> bool:
        """Whether the key is done."""

    @abstractmethod
    def owner(self, position: str) -> str | None:
        """The session that owns the position; None = no session does."""

    @abstractmethod
    def owned(self, position: str) -> Hashable:
        """The position's owner, its epoch, and the offsets that were handed over. Compare two results to see a
        change."""

    @abstractmethod
    def held(self, key: ClaimKey) -> Hashable:
        """The state of the key. Compare two results to see a change."""

    @abstractmethod
    def _replica(self) -> Callable[[], None]:
        """Copy the state of now. The function that is returned puts the server back to that copy."""


class SimulatedStore(StoreServer):
    """The store's specification, `MemoryClaims` and `MemoryCoordinator`.

    Args:
        scheduler: of the world.
        lease_s: as of `MemoryClaims`.
        window_s: as there.
        timeout_s: how long a process waits for a reply.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lease_s: float | None = None,
        window_s: float = _WEEK_S,
        timeout_s: float = 1.0,
    ) -> None:
        super().__init__(scheduler, timeout_s=timeout_s)
        self.lease_s = lease_s
        self._claims = MemoryClaims(lease_s=lease_s, window_s=window_s, runtime=self.process.runtime, renewals=False)
        self._groups = MemoryCoordinator(runtime=self.process.runtime)
        #: The state, for judges, which only read it.
        self.state, self.groups = self._claims.state, self._groups.state
        #: The number of the server that answers; a failover or a restart raises it.
        self.server = 1
        #: Sees each call of a session where it is applied.
        self.witness: Witness = unseen

    def claims(self, process: Process) -> SimulatedClaims:
        """The store as that process sees it."""
        return SimulatedClaims(self, process)

    def coordinator(self, process: Process) -> MemoryCoordinator:
        """Groups in the same server, as that process sees them."""
        return self._groups.elsewhere(process.runtime, Wire(self, process))

    def empty(self) -> None:
        """Start the store again with nothing."""
        self._know(({}, {}, {}, 0, {}))
        self.state.store_id = self.process.runtime.token(8)

    def alive(self, session: str) -> bool:
        """Whether the session lives, as the store judges it."""
        return self.state.alive(session)

    def is_done(self, position: str, offset: int) -> bool:
        """Whether the offset is marked as done in that position."""
        return self.state.position(position).is_done(offset)

    def is_finished(self, key: ClaimKey) -> bool:
        """Whether the key is done."""
        return isinstance(self.state.key(key), Finished)

    def owner(self, position: str) -> str | None:
        """Implements `StoreServer.owner`."""
        return self.state.position(position).owner

    def owned(self, position: str) -> Hashable:
        """Implements `StoreServer.owned`."""
        found = self.state.position(position)
        return found.owner, found.epoch, tuple(sorted(found.running.items()))

    def held(self, key: ClaimKey) -> Hashable:
        """Implements `StoreServer.held`."""
        return self.state.key(key)

    def _replica(self) -> Callable[[], None]:
        state = self.state
        known = (state.sessions, state.positions, state.keys, state.fence, self.groups.groups)
        return partial(self._know, copy.deepcopy(known))

    def _know(self, known: tuple[object, ...]) -> None:
        state, self.server = self.state, self.server + 1
        state.sessions, state.positions, state.keys, state.fence, self.groups.groups = known  # type: ignore[assignment]


class Wire:
    """A `Carry`: takes calls of one process to the store.

    Raises StoreUnavailable without an answer, AccessRefused if the server refuses the process' credentials, and
    StoreLockedOut if it does so after it has accepted them once.
    """

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self._store = store
        self._process = process
        self._let_in = False
        #: The server that answered last.
        self.server = 0
        #: The store id that came with its answer.
        self.store_id = ""

    def __call__(self, request: Callable[[], _T], /) -> _T:
        """Implements `Carry`."""

        def handle() -> tuple[_T, int, str]:
            return request(), self._store.server, self._store.state.store_id

        try:
            reply, self.server, self.store_id = self._store.network.ask(self._process, handle)
        except NoAnswer:
            raise StoreUnavailable("no answer from the simulated store") from None
        except Refused as refused:
            error = StoreLockedOut if self._let_in else AccessRefused
            raise error(f"the simulated store refuses this process ({refused})") from None
        self._let_in = True
        return reply


class SimulatedClaims(MemoryClaims):
    """A `MemoryClaims` that one process reaches over a network."""

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        super().__init__(lease_s=store.lease_s, window_s=store.state.window_s, runtime=process.runtime)
        self.state = store.state
        self._carry = self._wire = Wire(store, process)
        self._store = store

    @property
    def store_id(self) -> str:
        """The store's id, as the last answer gave it."""
        return self._wire.store_id

    def begin(self, lease_s: float = 10.0) -> MemorySession:
        """Begin a session with a lease of at most `lease_s` seconds."""
        session = super().begin(lease_s)
        if isinstance(session, SimulatedSession):
            session.begun()
        return session

    def _session(self, lease: Lease) -> SimulatedSession:
        wire, witness = self._wire, self._store.witness
        return SimulatedSession(self.state, lease, wire, self._runtime, lambda: wire.server, witness=witness)
