"""A connection to a PostgreSQL, and transactions on it: those of a few statements, and those of handlers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from holdfast.adapters.sql._psycopg import errors, psycopg, rows
from holdfast.adapters.sql.watchdog import break_off
from holdfast.dedup.transactions import ENDED_BEFORE, FAILED_BEFORE, Conflict
from holdfast.errors import StateError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.watchdog import Watchdog
    from holdfast.errors import StoreError

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
_UNKNOWN = (errors.StatementCompletionUnknown, errors.TransactionResolutionUnknown)
_STATUS = psycopg.pq.TransactionStatus


class Link:
    """One connection, made when it is first asked, and made anew after an error: a reply to what was sent may still
    come. One thread at a time."""

    def __init__(self, opened: Callable[[], Connection], watchdog: Watchdog) -> None:
        self._opened, self.watchdog = opened, watchdog
        self.connection: Connection | None = None
        #: Whether its last connection broke.
        self.broke = False

    def asked(self, whole: Callable[[Connection], T]) -> T:
        """Ask. What is not committed is undone."""
        done = False
        try:
            if self.connection is None:
                self.connection = self._opened()
            with self.watchdog.over(self.connection.fileno()):
                reply = whole(self.connection)
            done = True
        finally:
            if not done:
                self.broke = self.connection is None or self.connection.closed
                self.drop()
        return reply

    def drop(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            with suppress(psycopg.Error):
                connection.close()


class PostgresTransaction:
    """Implements `Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Implements `Transaction.ask`."""
        with self.connection.cursor(row_factory=rows.tuple_row) as cursor:  # a handler may have set another one
            return cursor.execute(spelled(statement), parameters or None).fetchall()

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Implements `Transaction.change_each`."""
        self.connection.cursor().executemany(spelled(statement), rows)

    def run_all(self, statements: str) -> None:
        """Run statements without parameters."""
        self.connection.execute(statements.encode())

    def now_ms(self) -> int:
        """Implements `Transaction.now_ms`."""
        [(now,)] = self.ask("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return int(now)


def _unanswered(what: str) -> StoreUnavailable:
    return StoreUnavailable(f"a handler's transaction got no answer: {what}")


def spelled(statement: str) -> bytes:
    """A statement with the placeholders of this driver."""
    return statement.replace("?", "%s").encode()


class Home(Protocol):
    """The database, as a transaction needs it."""

    def give_back(self, link: Link) -> None:
        """Take the connection of a transaction that has ended."""
        ...

    def store_error(self, error: psycopg.Error) -> StoreError:
        """The store's error for an error of the driver."""
        ...


class PostgresOpened(PostgresTransaction):
    """Implements `Opened`. Made by its first statement, in one round trip with its BEGIN.

    The server bounds how long it may idle. First statement and COMMIT are bounded by the watchdog alone, so that
    the user's statements have the time limits of their own connection: each SET costs as much as an INSERT.
    """

    def __init__(self, home: Home, link: Link, idle_s: float, first: Statement) -> None:
        self._home, self._link = home, link
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {round(idle_s * 1000)}".encode()

        def begin(connection: Connection) -> int:
            self._block = psycopg.Transaction(connection)  # the method would keep the pipeline to its end
            super(PostgresOpened, self).__init__(connection)
            with connection.pipeline():
                self._block.__enter__()
                connection.execute(idle)
                cursor = connection.execute(spelled(first.text), first.parameters)
            return cursor.rowcount

        self.changed = link.asked(begin)

    def commit(self) -> None:
        """Implements `Opened.commit`."""
        status = self.connection.info.transaction_status
        if status != _STATUS.INTRANS:
            cut = self.is_cut
            self.close()
            if cut:
                raise _unanswered("its connection broke before COMMIT was sent")
            raise StateError(FAILED_BEFORE if status == _STATUS.INERROR else ENDED_BEFORE)
        try:
            with self._link.watchdog.over(self.connection.fileno()):
                self._block.__exit__(None, None, None)
        except psycopg.Error as error:
            lost = self.is_cut or isinstance(error, _UNKNOWN)
            self.close()
            if lost:
                raise self._home.store_error(error) from error
            if isinstance(error, _CONFLICTS):
                raise Conflict from error
            raise
        if self.connection.info.transaction_status != _STATUS.IDLE:
            self.close()
            raise _unanswered("its connection broke before COMMIT was answered")
        self._home.give_back(self._link)

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`."""
        if self.connection.closed:
            cut = self.is_cut
            self.close()
            return _unanswered(str(error)) if cut else error
        self._undo()
        return Conflict() if isinstance(error, _CONFLICTS) else error

    def _undo(self) -> None:
        """Undo it, and keep the connection if it is as before."""
        with suppress(psycopg.Error), self._link.watchdog.over(self.connection.fileno()):
            self._block.__exit__(psycopg.Rollback, psycopg.Rollback(self._block), None)
        if self.connection.info.transaction_status == _STATUS.IDLE:
            self._home.give_back(self._link)
        else:
            self.close()

    def close(self) -> None:
        """Implements `Opened.close`."""
        self._link.drop()

    def cut(self) -> None:
        """Implements `Opened.cut`."""
        with suppress(psycopg.Error):
            break_off(self.connection.fileno())

    @property
    def is_cut(self) -> bool:
        """Implements `Opened.is_cut`."""
        return bool(self.connection.broken)  # not if the handler has closed it
