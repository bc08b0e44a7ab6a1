"""SQLite by the standard library: one file, for the processes of one machine."""

from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.schema import Kind, Names, schema_of
from holdfast.dedup.transactions import ENDED_BEFORE
from holdfast.errors import StateError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from uuid import UUID

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.database import Transaction
    from holdfast.errors import StoreError
    from holdfast.runtime import Runtime

T = TypeVar("T")

#: What passes by itself, or is mended without a change of the program: locks, disks.
_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class SqliteDatabase:
    """Implements `Database`. A transaction has the whole file: SQLite knows no locks of rows.

    Args:
        path: the file.
        names: of the tables.
        timeout_s: how long the file's lock is waited for.
        runtime: locks and the time of day.
    """

    kind: Kind = "sqlite"
    for_update = skip_locked = ""

    def __init__(self, path: Path, names: Names, timeout_s: float, runtime: Runtime) -> None:
        self.where = f"the SQLite file {path}"
        self._path, self._names, self._timeout_s, self._runtime = path, names, timeout_s, runtime
        self._turns = Turns(runtime)
        self._connection: sqlite3.Connection | None = None
        #: Connections of handlers' transactions that have ended; any thread takes and gives.
        self._idle: deque[sqlite3.Connection] = deque()
        #: Of parents: closed in a child, a connection would take its file's locks along.
        self._left: list[sqlite3.Connection] = []

    def owner(self, owner: UUID) -> object:
        """Implements `Database.owner`."""
        return owner.hex

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None, apart: bool = False) -> T:  # noqa: ARG002 - all wait for one lock
        """Implements `Database.run`."""
        return self._run(work, lock_s=lock_s)

    def change_all(self, changes: Sequence[Statement]) -> list[int]:
        """Implements `Database.change_all`."""
        return self._run(lambda tx: [tx.changed_by(each) for each in changes])

    def open(self, first: Statement) -> SqliteOpened:
        """Implements `Database.open`."""
        self._wait_for_turn(self._timeout_s)
        opened = False
        connection = None
        try:
            with suppress(IndexError):
                connection = self._idle.pop()
            if connection is None:
                connection = self._opened(create=False)
            connection.execute("BEGIN IMMEDIATE")
            made = SqliteOpened(self, connection, self._runtime, first)
            opened = True
        except sqlite3.Error as error:
            raise self.store_error(error) from error
        finally:
            if not opened:
                self._turns.give()
                _close(connection)
        return made

    def open_async(self, first: Statement) -> Awaitable[SqliteOpened]:
        """Implements `Database.open_async`: a handler that needs it is refused where it is registered."""
        raise NotImplementedError

    def watched(self, connection: Any) -> AbstractContextManager[None]:  # noqa: ANN401, ARG002 - a file has no network
        """Implements `Database.watched`."""
        return nullcontext()

    def is_of(self, connection: Any) -> bool:  # noqa: ANN401 - sqlite3's
        """Implements `Database.is_of`."""
        cursor = connection.cursor()
        cursor.row_factory = None
        files = [each[2] for each in cursor.execute("PRAGMA database_list")]
        return any(each and self._path.exists() and self._path.samefile(each) for each in files)

    def error_of(self, error: BaseException) -> StoreError | None:
        """Implements `Database.error_of`."""
        return self.store_error(error) if isinstance(error, sqlite3.Error) else None

    def ended(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        """A handler's transaction has ended. Args: whole: its connection can go on."""
        if whole:
            self._idle.append(connection)
        else:
            _close(connection)
        self._turns.give()

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Implements `Database.check`."""

        def look(tx: SqliteTransaction) -> tuple[str, int] | None:
            if create:
                tx.run_all(schema_of(self.kind, self._names))
            there = tx.ask(
                "SELECT count(*) FROM sqlite_master "
                "WHERE name IN ('holdfast_store', 'holdfast_position', 'holdfast_key')"
            )
            if there[0][0] < 3:
                return None
            [(name, layout)] = tx.ask(f"SELECT id, layout FROM {self._names.store}")  # noqa: S608 - a name of ours
            return str(name), int(layout)

        return self._run(look, create=create)

    def close(self) -> None:
        """Implements `Database.close`."""
        with suppress(StoreUnavailable), self._turn(self._timeout_s):
            self._drop()
            idle, self._idle = self._idle, deque()
            for each in idle:
                _close(each)

    def forked(self) -> None:
        """Implements `Database.forked`."""
        self._turns = Turns(self._runtime)
        self._left += [*self._idle, *([self._connection] if self._connection is not None else [])]
        self._connection, self._idle = None, deque()

    def store_error(self, error: sqlite3.Error) -> StoreError:
        """The store's error for an error of the driver."""
        code = _code_of(error)
        if code in _PASSING:
            return StoreUnavailable(f"{self.where} gave no answer: {error}")
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreRefused(
                f"{self.where} cannot be opened: make it with `holdfast sql schema sqlite | sqlite3 FILE`, or "
                "say create=True in tests"
            )
        return StoreRefused(f"{self.where} refuses: {error}")

    def _run(self, work: Callable[[SqliteTransaction], T], *, create: bool = False, lock_s: float | None = None) -> T:
        wait_s = self._timeout_s if lock_s is None else lock_s
        try:
            with self._turn(wait_s):
                return self._whole(work, create=create, wait_s=wait_s)
        except StoreUnavailable as error:
            if lock_s is not None and isinstance(error.__cause__, _TurnsTaken | sqlite3.Error) and _is_locked(error):
                raise Busy from error
            raise

    def _whole(self, work: Callable[[SqliteTransaction], T], *, create: bool, wait_s: float) -> T:
        done = False
        try:
            connection = self._connection = self._connection or self._opened(create=create)
            connection.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
            connection.execute("BEGIN IMMEDIATE")
            reply = work(SqliteTransaction(connection, self._runtime))
            connection.execute("COMMIT")
            done = True
        except sqlite3.Error as error:
            raise self.store_error(error) from error
        finally:
            if not done:
                self._drop()
        return reply

    @contextmanager
    def _turn(self, wait_s: float) -> Iterator[None]:
        self._wait_for_turn(wait_s)
        try:
            yield
        finally:
            self._turns.give()

    def _wait_for_turn(self, wait_s: float) -> None:
        if not self._turns.take(wait_s):
            raise StoreUnavailable(
                f"{self.where} gave no answer: a transaction of this process has held it for {wait_s} s"
            ) from _TurnsTaken()

    def _opened(self, *, create: bool) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path))}?mode={'rwc' if create else 'rw'}"
        return sqlite3.connect(uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)

    def _drop(self) -> None:
        """Close the connection: what is not committed is undone."""
        _close(self._connection)
        self._connection = None


class _TurnsTaken(Exception):
    """Another thread of this process has the file."""


class Turns:
    """The turns of a process' threads at the file, in the order of coming: SQLite itself knows no order, and lets a
    thread that waits for others starve."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.condition()
        self._line: deque[object] = deque()

    def take(self, wait_s: float) -> bool:
        """Wait for a turn. False = it has not come."""
        place = object()
        with self._changed:
            self._line.append(place)
            if self._changed.wait_for(lambda: self._line[0] is place, wait_s):
                return True
            self._line.remove(place)
            self._changed.notify_all()
            return False

    def give(self) -> None:
        """Give it to the next."""
        with self._changed:
            if self._line:  # else Ctrl-C has come between, and it was given before
                self._line.popleft()
            self._changed.notify_all()


class SqliteTransaction:
    """Implements `Transaction`."""

    def __init__(self, connection: sqlite3.Connection, runtime: Runtime) -> None:
        self.connection, self._runtime = connection, runtime

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Implements `Transaction.ask`."""
        cursor = self.connection.cursor()
        cursor.row_factory = None  # a handler may have set one
        return cursor.execute(statement, parameters).fetchall()

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Implements `Transaction.change_each`."""
        self.connection.executemany(statement, rows)

    def changed_by(self, statement: Statement) -> int:
        """Change rows. Returns how many."""
        return self.connection.execute(statement.text, statement.parameters).rowcount

    def run_all(self, statements: str) -> None:
        """Run statements without parameters. Not `executescript`, which would commit first."""
        for each in statements.split(";"):
            if each.strip():
                self.connection.execute(each)

    def now_ms(self) -> int:
        """Implements `Transaction.now_ms`: the machine's own, as all processes of the file are on it."""
        return self._runtime.wall_ms()


class SqliteOpened(SqliteTransaction):
    """Implements `Opened`. Made in a transaction that has begun."""

    #: There is no connection to break: the file is there, or an error says why not.
    is_cut = False

    def __init__(
        self, home: SqliteDatabase, connection: sqlite3.Connection, runtime: Runtime, first: Statement
    ) -> None:
        super().__init__(connection, runtime)
        self._home = home
        self.changed = self.changed_by(first)

    def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Opened.claim`: no other transaction is open."""
        try:
            return self.ask(statement.text, statement.parameters)
        except sqlite3.Error as error:
            raise self._home.store_error(error) from error

    def commit(self) -> None:
        """Implements `Opened.commit`."""
        is_open = False
        with suppress(sqlite3.Error):  # the handler may have closed it
            is_open = self.connection.in_transaction
        if not is_open:
            self.close()
            raise StateError(ENDED_BEFORE)
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            found = self._home.store_error(error)
            raise found if isinstance(found, StoreUnavailable) else error from error
        self._home.ended(self.connection, whole=True)

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`."""
        whole = False
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            whole = True
        self._home.ended(self.connection, whole=whole)
        return error

    def close(self) -> None:
        """Implements `Opened.close`."""
        self._home.ended(self.connection, whole=False)

    def cut(self) -> None:
        """Implements `Opened.cut`: what runs is interrupted. The file is free as soon as its handler comes back."""
        self.connection.interrupt()


def _code_of(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_locked(error: StoreUnavailable) -> bool:
    cause = error.__cause__
    return not isinstance(cause, sqlite3.Error) or _code_of(cause) in _LOCKED


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with suppress(sqlite3.Error):
            connection.close()
