"""Drivers: a connection that is the user's, in a transaction that is the user's: psycopg 3, `sqlite3`, or what
SQLAlchemy and Django make of one of these."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.adapters.sql.literals import inlined
from holdfast.adapters.sql.watchdog import break_off
from holdfast.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.schema import Kind

_OPEN_ONE = (
    "open one before: `with connection.transaction():` in psycopg, `with Session.begin() as session:` or "
    "`with engine.begin() as connection:` in SQLAlchemy, `with transaction.atomic():` in Django"
)
NO_TRANSACTION = f"there is no transaction to mark in: this connection is in autocommit mode; {_OPEN_ONE}"
_HAS_FAILED = "a statement in this transaction has failed, so that nothing of it can be committed: let the error pass"
_NOT_A_CONNECTION = (
    "it is no connection that can be marked on: give one of psycopg 3 or sqlite3, SQLAlchemy's Session or Connection "
    "over one of these (postgresql+psycopg://), or django.db.connection"
)


class Marked(NamedTuple):
    """The outcome of a mark in a transaction of the user's."""

    changed: int  #: rows
    number: object = None  #: of the transaction, where it is known


class Driver(Protocol):
    """A connection of the user's."""

    kind: Kind  #: of database
    is_async: bool
    connection: Any  #: of the driver

    def check(self) -> None:
        """Raises StateError: it is in no transaction, and a statement would begin none."""
        ...

    def mark(self, first: Statement, idle_s: float) -> Any:  # noqa: ANN401 - Marked, or what is awaited for it
        """Run that statement. The server ends the transaction when nothing happens in it for so long. Raises the
        driver's error."""
        ...

    def claim(self, statement: Statement) -> Any:  # noqa: ANN401 - rows, or what is awaited for them
        """Note keys, as `Opened.claim`. Raises the driver's error."""
        ...

    def cut(self) -> None:
        """Break the connection off. Any thread. Does not raise."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether it broke."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is in a transaction."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether a statement in its transaction has failed, so that nothing of it can be committed."""
        ...

    def is_conflict(self, error: BaseException) -> bool:
        """Whether the database has undone the transaction to end a conflict."""
        ...

    def is_busy(self, error: BaseException) -> bool:
        """Whether a key was waited for in vain."""
        ...

    def is_unknown(self, error: BaseException) -> bool:
        """Whether the server does not know what became of a COMMIT."""
        ...

    def is_elsewhere(self, error: BaseException) -> bool:
        """Whether the connection's database has no such table."""
        ...


class SqliteDriver:
    """Implements `Driver`."""

    kind: Kind = "sqlite"
    is_async = is_cut = has_failed = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def check(self) -> None:
        """Implements `Driver.check`."""
        commits = self.connection.isolation_level is None or getattr(self.connection, "autocommit", -1) is True
        if commits and not self.connection.in_transaction:
            raise StateError(NO_TRANSACTION)

    def mark(self, first: Statement, idle_s: float) -> Marked:  # noqa: ARG002 - nobody ends it
        """Implements `Driver.mark`."""
        return Marked(self.connection.execute(first.text, first.parameters).rowcount)

    def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Driver.claim`."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement.text, statement.parameters).fetchall()

    def cut(self) -> None:
        """Implements `Driver.cut`."""
        with suppress(sqlite3.Error):
            self.connection.interrupt()

    @property
    def is_open(self) -> bool:
        """Implements `Driver.is_open`."""
        with suppress(sqlite3.Error):
            return self.connection.in_transaction
        return False

    def is_conflict(self, error: BaseException) -> bool:
        """Implements `Driver.is_conflict`: it knows none."""
        return error is None

    is_busy = is_unknown = is_conflict

    def is_elsewhere(self, error: BaseException) -> bool:
        """Implements `Driver.is_elsewhere`."""
        return "no such table" in str(error)


class PsycopgDriver:
    """Implements `Driver`."""

    kind: Kind = "postgresql"
    is_async = False

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - psycopg is of an extra
        from holdfast.adapters.sql import _psycopg, postgres_link  # noqa: PLC0415 - as above

        self.connection, self._link, self._psycopg = connection, postgres_link, _psycopg

    def check(self) -> None:
        """Implements `Driver.check`."""
        status = self.connection.info.transaction_status.name
        if status == "INERROR":
            raise StateError(_HAS_FAILED)
        if self.connection.autocommit and status == "IDLE":
            raise StateError(NO_TRANSACTION)

    def mark(self, first: Statement, idle_s: float) -> Marked:
        """Implements `Driver.mark`. One round trip, and that of BEGIN if psycopg has not begun yet."""
        with self.connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            cursor.execute(self._text(first, idle_s))
            cursor.nextset()
            return _marked(cursor.fetchall())

    def claim(self, statement: Statement) -> Any:  # noqa: ANN401 - of the other class it is awaited
        """Implements `Driver.claim`. One round trip."""
        with self.connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            cursor.execute(self._link.claiming(statement))
            cursor.nextset()
            return cursor.fetchall()

    def cut(self) -> None:
        """Implements `Driver.cut`."""
        with suppress(Exception):  # it may be closed
            break_off(self.connection.fileno())

    @property
    def is_cut(self) -> bool:
        """Implements `Driver.is_cut`."""
        return bool(self.connection.broken)

    @property
    def is_open(self) -> bool:
        """Implements `Driver.is_open`."""
        return bool(self.connection.info.transaction_status.name in ("INTRANS", "INERROR", "ACTIVE"))

    @property
    def has_failed(self) -> bool:
        """Implements `Driver.has_failed`."""
        return bool(self.connection.info.transaction_status.name == "INERROR")

    def is_conflict(self, error: BaseException) -> bool:
        """Implements `Driver.is_conflict`."""
        return isinstance(error, self._link.CONFLICTS)

    def is_busy(self, error: BaseException) -> bool:
        """Implements `Driver.is_busy`."""
        return isinstance(error, self._psycopg.errors.LockNotAvailable)

    def is_unknown(self, error: BaseException) -> bool:
        """Implements `Driver.is_unknown`."""
        return isinstance(error, self._link.UNKNOWN)

    def is_elsewhere(self, error: BaseException) -> bool:
        """Implements `Driver.is_elsewhere`."""
        return isinstance(error, (self._psycopg.errors.UndefinedTable, self._psycopg.errors.InvalidSchemaName))

    def _text(self, first: Statement, idle_s: float) -> bytes:
        text = f"{self._link.idling(idle_s)}; {inlined(first)} RETURNING pg_current_xact_id()::text"
        return text.encode(self.connection.info.encoding)


class AsyncPsycopgDriver(PsycopgDriver):
    """Implements `Driver`, to be awaited."""

    is_async = True

    async def mark(self, first: Statement, idle_s: float) -> Marked:  # type: ignore[override]  # it is awaited
        """Implements `Driver.mark`."""
        async with self.connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            await cursor.execute(self._text(first, idle_s))
            cursor.nextset()
            return _marked(await cursor.fetchall())

    async def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Driver.claim`."""
        async with self.connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            await cursor.execute(self._link.claiming(statement))
            cursor.nextset()
            return await cursor.fetchall()  # type: ignore[no-any-return]  # as the statement says


def _marked(rows: Sequence[tuple[Any, ...]]) -> Marked:
    return Marked(len(rows), rows[0][0] if rows else None)


def driver_of(given: object) -> Driver:
    """The driver of a connection. Raises StateError: there is none, or it is in no transaction."""
    found: Any = given
    if callable(getattr(found, "get_bind", None)):  # an SQLAlchemy Session; of an AsyncSession, see `sessions`
        found = found.connection()
    if hasattr(found, "sync_connection"):  # SQLAlchemy's AsyncConnection
        found = found.sync_connection
    if hasattr(found, "ensure_connection"):  # Django's
        found.ensure_connection()
        found = found.connection
    elif hasattr(found, "get_isolation_level"):  # SQLAlchemy's Connection
        if not found.in_transaction():
            raise StateError(f"this connection has begun no transaction: {_OPEN_ONE}")
        found = found.connection.driver_connection
    driver = driver_for(found)
    driver.check()
    return driver


def driver_for(connection: object) -> Driver:
    """Find it for a connection of a driver, whatever that is in."""
    if isinstance(connection, sqlite3.Connection):
        return SqliteDriver(connection)
    psycopg = sys.modules.get("psycopg")  # who has one of its connections has imported it
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return PsycopgDriver(connection)
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgDriver(connection)
    raise StateError(f"{type(connection).__name__}: {_NOT_A_CONNECTION}")
