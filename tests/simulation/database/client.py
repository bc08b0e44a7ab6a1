"""A member's side of the simulated database: what the driver, and `postgres.py`, do on a real one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.adapters.sql.changes import Statement
from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.schema import LAYOUT, Kind
from holdfast.dedup.transactions import Conflict
from holdfast.errors import StoreUnavailable
from holdfast.testing.network import NoAnswer, Refused
from tests.simulation.database.errors import Broken, LockTimeout, Undone
from tests.simulation.database.statements import FOR_UPDATE, SKIP_LOCKED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from holdfast.adapters.sql.database import Transaction
    from holdfast.errors import StoreError
    from holdfast.testing.process import Process
    from tests.simulation.database.server import Backend, DatabaseStore, Open

T = TypeVar("T")

#: As in `postgres.py`.
_SERVERS_SHARE = 0.75
_BROKE = (Broken, NoAnswer, Refused)


class Link:
    """One connection, made when it is first asked, and closed for good when an answer is missing. One thread at a time
    asks."""

    def __init__(self, server: DatabaseStore, process: Process) -> None:
        self.server, self._process = server, process
        self.backend: Backend | None = None
        self.closed = False

    def ask(self, work: Callable[[Backend], T]) -> T:
        """Ask once.

        Raises:
            Broken, NoAnswer, Refused: no answer, and it is closed.
            LockTimeout, Undone: its transaction is undone.
        """
        network, server, whole = self.server.network, self.server, False
        try:
            if self.closed:
                raise Broken
            if self.backend is None:
                self.backend = network.ask(self._process, lambda: server.connect(self._process))
            backend = self.backend
            backend.coming += 1
            reply = network.ask(self._process, lambda: server.serve(backend, lambda: work(backend)))
            if self.closed:  # by another thread
                raise Broken
            whole = True
        except (LockTimeout, Undone):
            whole = True
            raise
        except Refused:
            if self.backend is not None:
                self.backend.coming -= 1  # it was turned away, and does not come any more
            raise
        finally:
            if not whole:
                self.close()
        return reply

    def close(self) -> None:
        """Close it. Any thread."""
        self.closed, backend, self.backend = True, self.backend, None
        if backend is not None:
            self.server.network.tell(lambda: self.server.close(backend))


class SimulatedTransaction:
    """Implements `Transaction`: each statement is asked by itself."""

    def __init__(self, link: Link, lock_s: float) -> None:
        self._link, self._lock_s = link, lock_s

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Implements `Transaction.ask`."""
        server = self._link.server
        asked = Statement(statement, tuple(parameters))
        return list(self._link.ask(lambda backend: server.execute(backend, asked, self._lock_s))[0])

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Implements `Transaction.change_each`."""
        server = self._link.server

        def work(backend: Backend) -> None:
            for each in rows:
                server.execute(backend, Statement(statement, tuple(each)), self._lock_s)

        self._link.ask(work)

    def now_ms(self) -> int:
        """Implements `Transaction.now_ms`."""
        return self._link.ask(lambda _: self._link.server.process.runtime.wall_ms())


class Effects:
    """What a handler gets as `tx`."""

    def __init__(self, link: Link, tx: Open) -> None:
        self._link, self._open = link, tx

    @property
    def is_open(self) -> bool:
        """Whether the transaction is open at the server. For judges."""
        return not self._open.over

    @property
    def idled(self) -> bool:
        """Whether the server has ended it, since nothing happened in it. For judges."""
        return self._open.idled

    def add(self, numbers: Sequence[int]) -> None:
        """Write the effects of these records. Raises Undone, or what a connection breaks with."""
        self._link.ask(lambda backend: self._link.server.add_effects(backend, numbers))


class SimulatedOpened(SimulatedTransaction):
    """Implements `Opened`. BEGIN and its first statement are one request, which waits for its row as long as for any
    answer."""

    def __init__(self, home: SimulatedDatabase, link: Link, first: Statement) -> None:
        server = link.server
        super().__init__(link, server.timeout_s)

        def begin(backend: Backend) -> tuple[Open, int]:
            return server.begin(backend, server.idle_s), server.execute(backend, first, None)[1]

        self._home = home
        tx, self.changed = link.ask(begin)
        self.connection = Effects(link, tx)

    def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Opened.claim`: no handler of a world has keys."""
        raise NotImplementedError

    def commit(self) -> None:
        """Implements `Opened.commit`."""
        try:
            self._link.ask(self._link.server.commit)
        except Undone as error:
            self.close()
            raise Conflict from error
        except _BROKE as error:
            self.close()
            raise StoreUnavailable("no answer to COMMIT") from error
        self._home.give_back(self._link)

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`."""
        if self.is_cut:
            self.close()
            return StoreUnavailable(f"a handler's transaction got no answer: {error!r}")
        try:
            if not isinstance(error, Undone):
                self._link.ask(self._link.server.roll_back)
            self._home.give_back(self._link)
        except _BROKE:
            self.close()
        return Conflict() if isinstance(error, Undone) else error

    def close(self) -> None:
        """Implements `Opened.close`."""
        self._link.close()

    def cut(self) -> None:
        """Implements `Opened.cut`."""
        self._link.close()

    @property
    def is_cut(self) -> bool:
        """Implements `Opened.is_cut`."""
        return self._link.closed


class SimulatedDatabase:
    """Implements `Database` for one process."""

    kind: Kind = "postgresql"
    where = "the simulated database"
    for_update, skip_locked = FOR_UPDATE, SKIP_LOCKED

    def __init__(self, server: DatabaseStore, process: Process) -> None:
        self._server, self._process = server, process
        self._lock = process.runtime.lock()
        self._link = Link(server, process)
        #: Connections of handlers' transactions that have ended.
        self._idle: deque[Link] = deque()

    def owner(self, owner: UUID) -> object:
        """Implements `Database.owner`."""
        return owner.hex

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None, apart: bool = False) -> T:
        """Implements `Database.run`."""
        server, wait_s = self._server, self._wait_s if lock_s is None else min(lock_s, self._wait_s / 2)

        def whole(link: Link) -> T:
            link.ask(lambda backend: server.begin(backend, server.timeout_s))
            reply = work(SimulatedTransaction(link, wait_s))
            link.ask(server.commit)
            return reply

        return self._asked_apart(whole) if apart else self._asked(whole, lock_s)

    def change_all(self, changes: Sequence[Statement]) -> list[int]:
        """Implements `Database.change_all`."""
        server = self._server

        def whole(backend: Backend) -> list[int]:
            server.begin(backend, server.timeout_s)
            changed = [server.execute(backend, each, self._wait_s)[1] for each in changes]
            server.commit(backend)
            return changed

        return self._asked(lambda link: link.ask(whole), None)

    def open(self, first: Statement) -> SimulatedOpened:
        """Implements `Database.open`."""
        return self._asked_apart(lambda link: SimulatedOpened(self, link, first), keep=True)

    def open_async(self, first: Statement) -> Awaitable[SimulatedOpened]:
        """Implements `Database.open_async`: no handler of a world is a coroutine, or has a connection of its own."""
        raise NotImplementedError

    def watched(self, connection: Any) -> AbstractContextManager[None]:
        """Implements `Database.watched`."""
        raise NotImplementedError

    def is_of(self, connection: Any) -> bool:
        """Implements `Database.is_of`."""
        raise NotImplementedError

    def error_of(self, error: BaseException) -> StoreError | None:
        """Implements `Database.error_of`."""
        raise NotImplementedError

    def give_back(self, link: Link) -> None:
        """Take the connection of a transaction that has ended."""
        self._idle.append(link)

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Implements `Database.check`."""
        return self._asked(lambda link: link.ask(lambda _: ("simulated", LAYOUT)), None)

    def close(self) -> None:
        """Implements `Database.close`: a world's processes end otherwise."""

    def forked(self) -> None:
        """Implements `Database.forked`: nothing forks in a world."""

    # ---- inside
    @property
    def _wait_s(self) -> float:
        return self._server.timeout_s * _SERVERS_SHARE

    def _asked(self, ask: Callable[[Link], T], lock_s: float | None) -> T:
        with self._lock:
            if self._link.closed:
                self._link = Link(self._server, self._process)
            try:
                return self._once(self._link, ask)
            except LockTimeout as error:
                if lock_s is not None:
                    raise Busy from error
                raise self._unavailable(error) from error
            except _BROKE as error:
                raise self._unavailable(error) from error

    def _asked_apart(self, ask: Callable[[Link], T], *, keep: bool = False) -> T:
        while True:
            fresh = not self._idle
            link = Link(self._server, self._process) if fresh else self._idle.pop()
            try:
                reply = self._once(link, ask)
            except (LockTimeout, *_BROKE) as error:
                if not fresh and isinstance(error, Broken):
                    continue  # it broke while it was idle
                raise self._unavailable(error) from error
            if not keep:
                self._idle.append(link)
            return reply

    @staticmethod
    def _once(link: Link, ask: Callable[[Link], T]) -> T:
        done = False
        try:
            reply = ask(link)
            done = True
        finally:
            if not done:
                link.close()
        return reply

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self.where} gave no answer: {error!r}")
