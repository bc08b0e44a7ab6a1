"""A PostgreSQL of a simulated world: connections, transactions at READ COMMITTED, locks of rows, and effects.

It runs the shipped statements of `SqlPositions` (`statements.py`). Each statement sees what was committed when it began
and, of a row for whose lock it has waited, what is committed then. A row's lock goes to who waits for it longest. A
transaction whose connection breaks, or in which nothing happens for too long, is undone. It has its effects when it is
committed. A failover puts an older copy of rows and effects in their place, and breaks all connections.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.adapters.sql.rows import Position, row_of
from holdfast.adapters.sql.schema import Names
from holdfast.adapters.sql.store import SqlPositions
from holdfast.testing.network import Network
from holdfast.testing.store import StoreServer
from tests.simulation.database.client import SimulatedDatabase
from tests.simulation.database.errors import Broken, LockTimeout, Undone
from tests.simulation.database.statements import SKIP_LOCKED, Content, Evaluator, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from holdfast.adapters.sql.changes import Statement
    from holdfast.dedup.claims import ClaimKey
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.tasks import Waiter

_T = TypeVar("_T")

#: How often a transaction is looked after that is open.
_LOOK_S = 0.05


class Witness(Protocol):
    """Sees each COMMIT of effects."""

    def applied(self, number: int, member: str, open_s: float) -> None:
        """The effect of that record is there from now on. Args: open_s: how long its transaction was open."""
        ...


class Open:
    """A transaction that is open."""

    def __init__(self, began_at: float, idle_s: float) -> None:
        self.began_at, self.idle_s = began_at, idle_s
        self.rows: dict[Key, Content] = {}
        self.locks: dict[Key, None] = {}
        self.effects: list[int] = []
        #: It has ended; and because nothing happened in it.
        self.over = self.idled = False


class Backend:
    """The server's side of one connection."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.tx: Open | None = None
        #: How many requests are under way, and run; and when the last one ended.
        self.coming = self.busy = 0
        self.touched = 0.0
        #: The client has closed it, behind what is under way; and it takes no requests any more.
        self.closing = self.gone = False


class _Connections(Network):
    """A network whose server may wait before it answers: for locks."""

    def __init__(self, scheduler: Scheduler, server: Process, *, timeout_s: float) -> None:
        super().__init__(scheduler, "database", timeout_s=timeout_s)
        self._server = server

    def tell(self, request: Callable[[], None]) -> None:
        """Send what is not answered."""
        self._scheduler.at(self._scheduler.now + self._way(), lambda: self._told(request))

    def _told(self, request: Callable[[], None]) -> None:
        if self._hears:
            request()

    def _arrive(self, call: object, request: Callable[[], object], back_s: float | None) -> None:
        if self._hears:
            arrive = super()._arrive
            self._server.spawn(lambda: arrive(call, request, back_s), "backend")  # type: ignore[arg-type]


class DatabaseStore(StoreServer):
    """Positions and effects in one database, and `SqlPositions` in each process.

    Args:
        scheduler: of the world.
        timeout_s: how long a process waits for a reply.
        idle_s: after so long a handler's transaction is ended in which nothing happens.
    """

    network: _Connections

    def __init__(self, scheduler: Scheduler, *, timeout_s: float, idle_s: float) -> None:
        super().__init__(scheduler, timeout_s=timeout_s)
        self.network = _Connections(scheduler, self.process, timeout_s=timeout_s)
        self.timeout_s, self.idle_s = timeout_s, idle_s
        self.rows: dict[Key, Content] = {}
        #: Number of a record -> how often its effect is there: more than once where a reset has replayed it.
        self.effects: Counter[int] = Counter()
        self.witness: Witness | None = None
        self._evaluator = Evaluator()
        scheduler.at_end(lambda: None, self._evaluator.close)
        self._backends: list[Backend] = []
        self._locks: dict[Key, Open] = {}
        self._lines: defaultdict[Key, deque[tuple[Open, list[Waiter]]]] = defaultdict(deque)
        self._known: dict[str, Position] = {}
        self._random = Random(f"{scheduler.seed} database")
        #: Mishaps to come: COMMITs without an answer, and whether these do not arrive; transactions that are undone;
        #: and what happens when a transaction has an effect: its process and what ends its connection are given.
        self.unanswered, self.not_even_heard, self.conflicts = 0, False, 0
        self.when_open: list[Callable[[Process, Callable[[], None]], None]] = []

    # ---- StoreServer
    def claims(self, process: Process) -> SqlPositions:
        """The store as that process sees it."""
        return SqlPositions(SimulatedDatabase(self, process), Names(), idle_s=self.idle_s, runtime=process.runtime)

    def coordinator(self, process: Process) -> Coordinator:
        """Implements `StoreServer.coordinator`: it keeps no groups."""
        raise NotImplementedError

    def empty(self) -> None:
        """Implements `StoreServer.empty`: no world has it."""
        raise NotImplementedError

    def alive(self, session: str) -> bool:
        """Implements `StoreServer.alive`: it knows no sessions."""
        return False

    def is_done(self, position: str, offset: int) -> bool:
        """Implements `StoreServer.is_done`."""
        found = self._position(position)
        return found is not None and (offset < found.watermark or offset in found.done)

    def is_finished(self, key: ClaimKey) -> bool:
        """Implements `StoreServer.is_finished`: it keeps no keys."""
        return False

    def owner(self, position: str) -> str | None:
        """Implements `StoreServer.owner`: owners are no sessions."""
        return None

    def owned(self, position: str) -> Hashable:
        """Implements `StoreServer.owned`."""
        found = self._position(position)
        return None if found is None else (found.first.owner, found.first.epoch)

    def held(self, key: ClaimKey) -> Hashable:
        """Implements `StoreServer.held`: it keeps no keys."""
        return None

    @property
    def rows_left_locked(self) -> bool:
        """Whether a transaction holds a row whose client has closed its connection, and the server has not heard so: it
        ends when nothing has happened in it for too long."""
        return any(each.closing and each.tx is not None and each.tx.locks for each in self._backends)

    def _position(self, name: str) -> Position | None:
        if name not in self._known:
            rows = [row_of(content) for key, content in sorted(self.rows.items()) if key[0] == name]
            if not rows:
                return None
            self._known[name] = Position(rows)
        return self._known[name]

    def _replica(self) -> Callable[[], None]:
        rows, effects = dict(self.rows), Counter(self.effects)

        def take_over() -> None:
            for backend in self._backends:
                self.end(backend)
            self.rows, self.effects = dict(rows), Counter(effects)
            self._known.clear()

        return take_over

    # ---- connections; in a task of the server
    def connect(self, process: Process) -> Backend:
        """A new connection."""
        self._backends = [each for each in self._backends if not each.gone]
        self._backends.append(Backend(process))
        return self._backends[-1]

    def serve(self, backend: Backend, work: Callable[[], _T]) -> _T:
        """Do what was asked on a connection. An error undoes its transaction."""
        backend.coming -= 1
        if backend.gone:
            raise Broken
        backend.busy += 1
        done = False
        try:
            reply = work()
            if backend.gone:
                raise Broken
            done = True
        finally:
            backend.busy -= 1
            backend.touched = self._scheduler.now
            if not done:
                self._undo(backend)
            if not backend.process.alive or (backend.closing and not backend.coming):
                self.end(backend)
        return reply

    def begin(self, backend: Backend, idle_s: float) -> Open:
        """BEGIN."""
        tx = backend.tx = Open(self._scheduler.now, idle_s)
        self._look_after(backend, tx)
        return tx

    def execute(self, backend: Backend, statement: Statement, lock_s: float | None) -> tuple[Sequence[Content], int]:
        """Run one statement. Returns: the rows that it finds, and how many it has changed.

        Raises:
            LockTimeout: another transaction has held a row for `lock_s`.
            Broken: the connection broke meanwhile.
        """
        tx = self._tx(backend)
        skips, until = SKIP_LOCKED in statement.text, None if lock_s is None else self._scheduler.now + lock_s
        view = {**self.rows, **tx.rows}
        while True:
            found = self._evaluator.find(statement.text, statement.parameters, view)
            for key in found.keys:
                if key in tx.locks:
                    continue
                if key not in self._locks:
                    self._locks[key] = tx
                elif skips:
                    continue
                else:
                    self._wait(tx, key, until)
                tx.locks[key] = None
                if view.get(key) != (latest := self.rows.get(key)):
                    view.pop(key)
                    view |= {} if latest is None else {key: latest}
                    break
            else:
                break
        tx.rows |= found.changed
        rows = found.rows
        if skips:
            rows = [row for row, key in zip(found.rows, found.keys, strict=True) if key in tx.locks]
        return rows, len(found.changed)

    def add_effects(self, backend: Backend, numbers: Sequence[int]) -> None:
        """A handler's statement. Raises Undone: there was a conflict."""
        tx = self._tx(backend)
        if self.conflicts > 0 and self._random.random() < 0.5:
            self.conflicts -= 1
            raise Undone
        tx.effects += numbers
        if self.when_open:
            self.when_open.pop()(backend.process, lambda: self.end(backend))

    def commit(self, backend: Backend) -> None:
        """COMMIT. Raises Undone: there was a conflict."""
        tx = self._tx(backend)
        if tx.effects and self.conflicts > 0:
            self.conflicts -= 1
            raise Undone
        lost = tx.effects and self.unanswered > 0
        if lost:
            self.unanswered -= 1
            if self.not_even_heard:
                self.end(backend)
                raise Broken
        self.rows |= tx.rows
        for name, _ in tx.rows:
            self._known.pop(name, None)
        for number in tx.effects:
            self.effects[number] += 1
            if self.witness is not None:
                self.witness.applied(number, backend.process.name, self._scheduler.now - tx.began_at)
        self._end(backend)
        if lost:
            self.end(backend)
            raise Broken

    def roll_back(self, backend: Backend) -> None:
        """ROLLBACK."""
        self._tx(backend)
        self._undo(backend)

    def close(self, backend: Backend) -> None:
        """The client has closed the connection. What it has sent before is done before. A request that is lost leaves a
        connection of which the server hears nothing more."""
        backend.closing = True
        if not (backend.busy or backend.coming):
            self.end(backend)

    def end(self, backend: Backend) -> None:
        """End a connection, and undo its transaction."""
        backend.gone = True
        self._undo(backend)

    # ---- inside
    @staticmethod
    def _tx(backend: Backend) -> Open:
        if backend.tx is None or backend.gone:
            raise Broken
        return backend.tx

    def _undo(self, backend: Backend) -> None:
        if backend.tx is not None:
            self._end(backend)

    def _end(self, backend: Backend) -> None:
        tx, backend.tx = backend.tx, None
        assert tx is not None
        tx.over = True
        for key in tx.locks:
            self._hand_on(key)
        for line in self._lines.values():
            for other, waiters in line:
                if other is tx:
                    self._scheduler.tell(waiters)

    def _hand_on(self, key: Key) -> None:
        line = self._lines[key]
        while line:
            tx, waiters = line.popleft()
            if not tx.over:
                self._locks[key] = tx
                self._scheduler.tell(waiters)
                return
        self._locks.pop(key, None)

    def _wait(self, tx: Open, key: Key, until: float | None) -> None:
        waiters: list[Waiter] = []
        place = tx, waiters
        self._lines[key].append(place)
        self._scheduler.wait_among(waiters, None if until is None else until - self._scheduler.now)
        if place in self._lines[key]:
            self._lines[key].remove(place)
        mine = self._locks.get(key) is tx
        if tx.over:
            if mine:
                self._hand_on(key)
            raise Broken
        if not mine:
            raise LockTimeout

    def _look_after(self, backend: Backend, tx: Open) -> None:
        """Undo it when its process is gone, or nothing happens in it."""
        if tx.over:
            return
        now = self._scheduler.now
        idle = not backend.busy and now - backend.touched > tx.idle_s
        if idle or not (backend.busy or backend.process.alive):
            tx.idled = idle
            self.end(backend)
        else:
            self._scheduler.at(now + _LOOK_S, lambda: self._look_after(backend, tx))
