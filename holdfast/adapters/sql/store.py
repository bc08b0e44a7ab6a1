"""SqlPositions: a store of positions in the database in which the effects are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.adapters.sql.books import Books
from holdfast.adapters.sql.own import mark, mark_async
from holdfast.adapters.sql.rows import Statements
from holdfast.adapters.sql.schema import LAYOUT, Names
from holdfast.adapters.sql.session import SqlSession
from holdfast.adapters.sql.sessions import SessionTransactions
from holdfast.adapters.sql.sqlite import SqliteDatabase
from holdfast.adapters.sql.transactions import Opening, SqlTransaction, begin
from holdfast.dedup.forks import after_fork
from holdfast.dedup.steps import run
from holdfast.errors import SettingError, StoreLockedOut, StoreRefused
from holdfast.plugin.setting_names import check_number
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.database import Database, Opened
    from holdfast.dedup.steps import Steps
    from holdfast.plugin.handling.handler_call import HandlerCall
    from holdfast.records import Record
    from holdfast.runtime import Runtime

#: Longer than a handler lets its connection idle, as a rule; as a session at the broker, the longest that a takeover
#: takes without it.
_IDLE_S = 45.0
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_URLS = "give postgresql://user:password@host:port/database, or sqlite:///file (four slashes before an absolute path)"


class SqlPositions:
    """Positions in a PostgreSQL (13 or later) or a SQLite file, without Redis. One object a process; any thread may
    call.

    It keeps which records of each partition are done, and fences former owners. It keeps business keys of handlers with
    `transaction=`, and no sessions: a new owner does not wait for other handlers that outlive their drain, and runs
    their records again. Made by `from_url`.
    """

    #: After a failover that has lost commits, the database's word counts, and not a higher offset at the broker.
    truth = True
    keeps_keys = False
    serves_plain = True

    def __init__(
        self,
        database: Database,
        names: Names,
        *,
        create: bool = False,
        idle_s: float = _IDLE_S,
        runtime: Runtime = MACHINE,
    ) -> None:
        self._database, self._create, self._runtime = database, create, runtime
        self._books = Books(database, Statements(database, names), runtime, idle_s)
        self._id = ""
        self._plain, self._async = Opening(self._open), Opening(self._open_async, is_async=True)
        after_fork(self, SqlPositions._forked)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        schema: str | None = None,
        timeout_s: float = 5.0,
        transaction_idle_s: float = _IDLE_S,
        prepare: bool = False,
        async_connections: int = 20,
        create: bool = False,
        runtime: Runtime = MACHINE,
    ) -> SqlPositions:
        """Make the store at a URL. Does not connect yet.

        Args:
            url: postgresql://user:password@host:port/database, as libpq reads it, with options behind a `?`; or
                sqlite:///file, four slashes before an absolute path.
            schema: of PostgreSQL, with holdfast's tables. None: where the connection's search_path leads.
            timeout_s: for a connection, for each answer, and for SQLite's lock.
            transaction_idle_s: after so long the server ends a handler's transaction in which nothing happens
                (`transaction=`). A process that is frozen in one, or cut off from the network, keeps the record's
                partition from its next owner for so long. Not of SQLite.
            prepare: whether psycopg prepares a handler's statements that are repeated: they take less time. Not behind
                a pgBouncer in transaction mode that does not know prepared statements (before 1.21).
            async_connections: how many transactions of `async def` handlers are open at the same time; further handlers
                wait. Plain ones have a connection for each of `Settings.workers`.
            create: make the tables if they are not there: for tests and examples. Elsewhere `holdfast sql schema`
                prints the statements, to be run by who may.
            runtime: this process' machine.

        Raises:
            SettingError: a setting cannot work. The URL is not in its text.
            MissingExtraError: PostgreSQL, and psycopg is not installed.
        """
        _check_seconds("timeout_s", timeout_s)
        _check_seconds("transaction_idle_s", transaction_idle_s)
        check_number("async_connections", async_connections, 1, "use 1 or more", whole=True)
        names = Names(schema)
        scheme, rest = _parts(url)
        if scheme in _POSTGRESQL:
            from holdfast.adapters.sql.postgres import PostgresDatabase  # noqa: PLC0415 - of an extra

            database: Database = PostgresDatabase(
                f"postgresql://{rest}",
                names,
                timeout_s,
                runtime,
                idle_s=transaction_idle_s,
                prepare=prepare,
                most_async=async_connections,
            )
        elif scheme == "sqlite":
            if schema is not None:
                raise SettingError("schema", schema, "leave it out: a SQLite file has none")
            database = SqliteDatabase(_path_in(rest), names, timeout_s, runtime)
            transaction_idle_s = math.inf
        else:
            raise SettingError("url", f"{scheme}://...", _URLS)
        return cls(database, names, create=create, idle_s=transaction_idle_s, runtime=runtime)

    @property
    def store_id(self) -> str:
        """The id that is kept beside the data; "" = not known before `connect`. A copy of the database has it too."""
        return self._id

    def connect(self) -> None:
        """Reach the database and check its tables. Idempotent.

        Raises:
            StoreUnavailable: no answer, also where the server refuses the connection; or a standby.
            StoreRefused: there are no tables, they have another layout, or this user has too few rights.
        """
        try:
            self._id = self._checked(create=self._create)
        except StoreRefused as error:
            if not self._id:
                raise
            raise StoreLockedOut(str(error)) from error

    def begin(self, lease_s: float = 10.0) -> SqlSession:
        """Begin a session. Raises as `connect`.

        Args:
            lease_s: how long this process leaves a position alone that another has taken from it, and in which nothing
                happens.
        """
        self.connect()
        return SqlSession(self._books, self._runtime.token(8), lease_s)

    @property
    def store(self) -> SqlPositions:
        """Itself: see `Transactions`."""
        return self

    @property
    def serves_async(self) -> bool:
        """Whether `async def` handlers can have transactions of it: those of PostgreSQL."""
        return self._database.kind == "postgresql"

    def beginning(
        self, partition: str, epoch: int, offsets: Sequence[int], *, is_async: bool
    ) -> Steps[SqlTransaction | None]:
        """Begin a transaction for a handler: see `Transactions`, and `@app.handler(..., transaction=store)`."""
        return begin(self._books, partition, epoch, offsets, self._async if is_async else self._plain)

    def transaction(self, partition: str, epoch: int, offsets: Sequence[int]) -> SqlTransaction | None:
        """Begin one in this thread: see `beginning`."""
        return run(self.beginning(partition, epoch, offsets, is_async=False))

    def sqlalchemy(self, factory: Callable[[], Any]) -> SessionTransactions:
        """Give handlers sessions of SQLAlchemy 2: `@app.handler(..., transaction=store.sqlalchemy(Session))`. Each
        transaction has one of its own for `tx`, which the handler neither commits nor keeps.

        Args:
            factory: makes a session: `sessionmaker(engine)`; `async_sessionmaker(engine)` for `async def` handlers. The
                engine is one of the store's own database, by psycopg 3 (`postgresql+psycopg://`) or `sqlite3`, with as
                many connections as there are handlers at the same time (`pool_size`).

        Raises:
            SettingError: it makes no sessions.
        """
        return SessionTransactions(self, lambda: self._books, factory)

    def mark(self, connection: object, call: HandlerCall) -> Sequence[Record]:
        """Mark the records of a handler's call in a transaction of the handler's own. Call it once, in the handler and
        in its thread, before all else that the transaction does. When the handler has returned, holdfast reads whether
        the transaction was committed.

        Args:
            connection: in the transaction: one of psycopg 3 or `sqlite3`, SQLAlchemy's Session or Connection over one
                of these, or `django.db.connection`. To the store's own database.
            call: what the handler got as its parameter `call: HandlerCall`.

        Returns: the records to handle: those of the call, without those that are done.

        Raises:
            AlreadyDone: all of them are done. Let it pass: the call counts as handled.
            FormerOwner: another process has the partition. Let it pass: the records are its.
            StateError: wrong use, such as a connection in autocommit mode.
            StoreUnavailable: no answer. Let it pass: processing pauses, and no attempt is counted.
        """
        return mark(self._books, connection, call)

    async def mark_async(self, connection: object, call: HandlerCall) -> Sequence[Record]:
        """Do the same in a coroutine: on psycopg's AsyncConnection, or SQLAlchemy's AsyncSession or AsyncConnection
        over one."""
        return await mark_async(self._books, connection, call)

    def runs(self, partition: str, offsets: Collection[int]) -> bool:
        """Whether a handler works in the transaction of these records: see `Transactions`."""
        return self._books.runs(partition, offsets)

    def abandon(self, partition: str, epoch: int, offsets: Collection[int]) -> bool:
        """Let the transaction of these records commit no more: see `Transactions`."""
        return self._books.abandon(partition, epoch, offsets)

    def look(self) -> str:
        """Ask the database whether it has the tables. Makes none. Returns: a text with what is there. Raises as
        `connect`."""
        self._checked(create=False)
        return f"{self._database.where}: positions, layout {LAYOUT}"

    def close(self) -> None:
        """Give the connection back. Does not raise."""
        self._database.close()

    def _open(self, first: Statement) -> Opened:
        return self._books.database.open(first)

    def _open_async(self, first: Statement) -> Awaitable[Any]:
        return self._books.database.open_async(first)

    def _checked(self, *, create: bool) -> str:
        found = self._database.check(create=create)
        where, kind = self._database.where, self._database.kind
        if found is None:
            raise StoreRefused(
                f"{where} has no tables of holdfast: run what `holdfast sql schema {kind}` prints; or say create=True "
                "in tests"
            )
        store_id, layout = found
        if layout != LAYOUT:
            raise StoreRefused(
                f"the tables of holdfast in {where} have layout {layout}, and this version knows layout {LAYOUT}: run "
                "one version of holdfast, or make tables of this layout in another schema or file"
            )
        return store_id

    def _forked(self) -> None:
        # In a child: connection and ownerships are the parent's.
        self._database.forked()
        books = self._books
        books.forked()
        self._books = Books(self._database, books.statements, self._runtime, books.idle_s)

    def __repr__(self) -> str:
        return f"SqlPositions({self._database.where})"


def _check_seconds(field: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.1 <= value < math.inf:
        raise SettingError(field, value, "give a number of seconds, at least 0.1")


def _parts(url: object) -> tuple[str, str]:
    scheme, found, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not found:
        raise SettingError("url", type(url).__name__, _URLS)
    return scheme, rest


def _path_in(rest: str) -> Path:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or path in ("", ":memory:"):
        raise SettingError("url", "sqlite://...", "name a file: sqlite:///positions.db; MemoryClaims() is for memory")
    return Path(path)
