"""A connection to a PostgreSQL, and transactions on it: those of a few statements, and those of handlers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from holdfast.adapters.sql._psycopg import errors, psycopg, rows
from holdfast.adapters.sql.changes import Statement
from holdfast.adapters.sql.literals import inlined
from holdfast.adapters.sql.watchdog import break_off
from holdfast.dedup.transactions import ENDED_BEFORE, FAILED_BEFORE, Conflict
from holdfast.errors import StateError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.sql.watchdog import Watchdog
    from holdfast.errors import StoreError

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
AnyConnection: TypeAlias = "Connection | psycopg.AsyncConnection[tuple[Any, ...]]"

CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)
UNKNOWN = (errors.StatementCompletionUnknown, errors.TransactionResolutionUnknown)
_STATUS = psycopg.pq.TransactionStatus
_OK = (psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK)
#: So long a key is waited for that another transaction has noted; then the handler's begins anew.
_KEY_MS = 10_000
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE"


def answered(connection: Connection, text: str) -> psycopg.pq.abc.PGresult:
    """Send statements without parameters as one message. Returns: the answer to the last one. Raises psycopg.Error.

    libpq waits: the wait of psycopg takes more processor time than such a statement. A signal of Python's is handled
    after the answer, or when the watchdog breaks the connection off.
    """
    encoding = "ascii" if text.isascii() else connection.info.encoding
    result = connection.pgconn.exec_(text.encode(encoding))
    if result.status in _OK:
        return result
    if connection.pgconn.status == psycopg.pq.ConnStatus.BAD:
        raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
    raise errors.error_from_result(result, encoding=connection.info.encoding)


def beginning(first: Statement, idle_s: float) -> str:
    """The first statements of a handler's transaction."""
    return f"{BEGIN}; {idling(idle_s)}; {inlined(first)}"


def claiming(statement: Statement) -> bytes:
    """The statements that note keys. The rest of the transaction has the time limits of its connection."""
    limit = f"SET LOCAL lock_timeout = {_KEY_MS}"
    return f"{limit}; {inlined(statement)}; SET LOCAL lock_timeout TO DEFAULT".encode()


def idling(idle_s: float) -> str:
    """The statement by which a transaction ends in which nothing happens."""
    return f"SET LOCAL idle_in_transaction_session_timeout = {round(idle_s * 1000)}"


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
        answered(self.connection, "; ".join(inlined(Statement(statement, each)) for each in rows))

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

    where: str

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

        def begin(connection: Connection) -> int:
            super(PostgresOpened, self).__init__(connection)
            return answered(connection, beginning(first, idle_s)).command_tuples or 0

        self.changed = link.asked(begin)

    def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Opened.claim`. One round trip."""
        try:
            with self.connection.cursor(row_factory=rows.tuple_row) as cursor:
                cursor.execute(claiming(statement))
                cursor.nextset()
                return cursor.fetchall()
        except psycopg.Error as error:
            raise claim_error(self._home, error) from error

    def commit(self) -> None:
        """Implements `Opened.commit`."""
        try:
            check_open(self.connection)
            with self._link.watchdog.over(self.connection.fileno()):
                answered(self.connection, "COMMIT")
            check_committed(self.connection)
        except psycopg.Error as error:
            found = commit_error(self._home, self.connection, error)
            self.close()
            raise found from error
        except BaseException:
            self.close()
            raise
        self._home.give_back(self._link)

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`."""
        if self.connection.closed:
            found = closed_by(self.connection, error)
            self.close()
            return found
        with suppress(psycopg.Error), self._link.watchdog.over(self.connection.fileno()):
            answered(self.connection, "ROLLBACK")
        if is_idle(self.connection):
            self._home.give_back(self._link)
        else:
            self.close()
        return Conflict() if isinstance(error, CONFLICTS) else error

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


# ---- how a transaction stands: of a connection of either kind
def check_open(connection: AnyConnection) -> None:
    """Check that a handler has left its transaction open.

    Raises:
        StoreUnavailable: its connection broke.
        StateError: it is not open, or a statement in it has failed.
    """
    status = connection.pgconn.transaction_status
    if status == _STATUS.INTRANS:
        return
    if connection.broken:  # not if the handler has closed it
        raise _unanswered("its connection broke before COMMIT was sent")
    raise StateError(FAILED_BEFORE if status == _STATUS.INERROR else ENDED_BEFORE)


def is_idle(connection: AnyConnection) -> bool:
    """Whether it can begin another transaction."""
    return bool(connection.pgconn.transaction_status == _STATUS.IDLE)


def check_committed(connection: AnyConnection) -> None:
    """Raises StoreUnavailable: COMMIT was not answered as it should."""
    if not is_idle(connection):
        raise _unanswered("its connection broke before COMMIT was answered")


def commit_error(home: Home, connection: AnyConnection, error: psycopg.Error) -> Exception:
    """The error of a COMMIT that has raised this one."""
    if connection.broken or isinstance(error, UNKNOWN):
        return home.store_error(error)
    if isinstance(error, CONFLICTS):
        return Conflict()
    return error


def claim_error(home: Home, error: psycopg.Error) -> Exception:
    """The error of a statement that notes keys and has raised this one."""
    if isinstance(error, (errors.LockNotAvailable, *CONFLICTS)):
        return Conflict()
    return home.store_error(error)


def closed_by(connection: AnyConnection, error: BaseException) -> BaseException:
    """Find what an error of a handler was due to whose connection is closed."""
    return _unanswered(str(error)) if connection.broken else error
