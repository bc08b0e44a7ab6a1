"""PostgreSQL by psycopg 3: one connection, transactions of one round trip where nothing is to be decided in between.

Each transaction says its isolation, its rights and its bounds itself: a database, a user or a URL may have others by
default. Bounds are SET LOCAL, and nothing is prepared, so that pgBouncer may give each transaction another server.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.adapters.sql._psycopg import conninfo, errors, psycopg
from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.schema import Kind, Names, schema_of
from holdfast.adapters.sql.watchdog import Watchdog
from holdfast.errors import AccessRefused, SettingError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from holdfast.adapters.sql.database import Transaction
    from holdfast.errors import StoreError
    from holdfast.runtime import Runtime

T = TypeVar("T")

#: How often a transaction is done again that the database has chosen to end a conflict.
_TRIES = 5
#: The server ends a statement a little before the watchdog breaks its connection off: that says more.
_SERVERS_SHARE = 0.75
#: Two that make the tables at once would fail on each other.
_CREATE_LOCK = 7_304_150_921
#: All else passes, or is mended without a change of the program: connections, limits of the server, standbys, disks.
_REFUSALS = (psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError)
_REMEDY = "give it as postgresql://user:password@host:port/database, with the password percent-encoded"


class PostgresDatabase:
    """Implements `Database`.

    Args:
        url: as libpq reads it.
        names: of the tables.
        timeout_s: for a connection, and for each answer.
        runtime: threads, locks and the clock.

    Raises:
        SettingError: libpq cannot read the URL. It is not in the error.
        MissingExtraError: psycopg is not installed.
    """

    kind: Kind = "postgresql"
    for_update, skip_locked = " FOR UPDATE", " FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str, names: Names, timeout_s: float, runtime: Runtime) -> None:
        try:
            given: dict[str, Any] = dict(conninfo.conninfo_to_dict(url))
        except psycopg.Error:
            raise SettingError("url", "postgresql://...", _REMEDY) from None
        self.where = (
            f"PostgreSQL at {given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"
        )
        # libpq's bounds for the network: no question may wait longer for a machine that is gone.
        bounds = {"connect_timeout": max(2, round(timeout_s)), "tcp_user_timeout": round(timeout_s * 1000)}
        self._parameters = {"application_name": "holdfast", **bounds, **given}
        self._names, self._timeout_s, self._runtime = names, timeout_s, runtime
        self._lock = runtime.lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._watchdog = Watchdog(timeout_s, runtime)

    def owner(self, owner: UUID) -> object:
        """Implements `Database.owner`."""
        return owner

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None) -> T:
        """Implements `Database.run`."""
        return self._run(work, lock_s)

    def _run(self, work: Callable[[_Transaction], T], lock_s: float | None) -> T:
        def whole(connection: psycopg.Connection[tuple[Any, ...]]) -> T:
            with connection.transaction():
                connection.execute(self._bounds(lock_s).encode())
                return work(_Transaction(connection))

        return self._asked(whole, lock_s)

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Implements `Database.change_all`."""

        def whole(connection: psycopg.Connection[tuple[Any, ...]]) -> list[int]:
            with connection.pipeline(), connection.transaction():
                for each in self._bounds(None).split(";"):
                    connection.execute(each.encode())
                cursors = [connection.execute(_spelled(statement), each) for each in rows]
            return [each.rowcount for each in cursors]

        return self._asked(whole, None)

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Implements `Database.check`."""

        def look(tx: _Transaction) -> tuple[str, int] | None:
            if create:
                tx.ask("SELECT pg_advisory_xact_lock(?)", (_CREATE_LOCK,))
                tx.run_all(schema_of(self.kind, self._names))
            [there] = tx.ask(
                "SELECT to_regclass(?) IS NOT NULL AND to_regclass(?) IS NOT NULL",
                (self._names.store, self._names.position),
            )
            if not there[0]:
                return None
            [(name, layout)] = tx.ask(f"SELECT id, layout FROM {self._names.store}")  # noqa: S608 - a name of ours
            [rights] = tx.ask(
                "SELECT has_table_privilege(?, 'SELECT') AND has_table_privilege(?, 'INSERT') "
                "AND has_table_privilege(?, 'UPDATE')",
                (self._names.position,) * 3,
            )
            if not rights[0]:
                raise AccessRefused(f"{self.where}: {_rights(self._names)}")
            return name.hex, layout

        return self._run(look, None)

    def close(self) -> None:
        """Implements `Database.close`."""
        with self._lock:
            self._drop()
            self._watchdog.stop()
            self._watchdog = Watchdog(self._timeout_s, self._runtime)

    def forked(self) -> None:
        """Implements `Database.forked`."""
        self._lock = self._runtime.lock()
        self._connection = None  # psycopg closes no connection that another process has opened
        self._watchdog = Watchdog(self._timeout_s, self._runtime)

    def _bounds(self, lock_s: float | None) -> str:
        """The bounds of one transaction, for the server. One that is frozen gives its rows free by the last."""
        ms = round(self._timeout_s * _SERVERS_SHARE * 1000)
        lock_ms = ms if lock_s is None else round(lock_s * 1000)
        return (
            f"SET LOCAL statement_timeout = {ms}; SET LOCAL lock_timeout = {lock_ms}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {round(self._timeout_s * 1000)}"
        )

    def _asked(self, whole: Callable[[psycopg.Connection[tuple[Any, ...]]], T], lock_s: float | None) -> T:
        with self._lock:
            for left in reversed(range(_TRIES)):
                try:
                    with self._whole() as connection, self._watchdog.over(connection.fileno()):
                        return whole(connection)
                except errors.LockNotAvailable as error:
                    if lock_s is not None:
                        raise Busy from error
                    raise self._store_error(error) from error
                except (errors.SerializationFailure, errors.DeadlockDetected) as error:
                    if not left:
                        raise self._store_error(error) from error
                except psycopg.Error as error:
                    raise self._store_error(error) from error
        raise AssertionError

    @contextmanager
    def _whole(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection; closed after an error, since a reply to what was sent may still come. What is not committed
        is undone."""
        done = False
        try:
            if self._connection is None:
                self._connection = self._opened()
            yield self._connection
            done = True
        finally:
            if not done:
                self._drop()

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        standby = True
        try:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only, connection.deferrable = False, False
            with self._watchdog.over(connection.fileno()):
                [(standby,)] = connection.execute("SELECT pg_is_in_recovery()").fetchall()
        finally:
            if standby:
                connection.close()
        if standby:
            raise StoreUnavailable(
                f"{self.where} is a standby, which takes no writes: name all hosts, with "
                "target_session_attrs=read-write"
            )
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                connection.close()

    def _store_error(self, error: psycopg.Error) -> StoreError:
        text = " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
        if isinstance(error, errors.InsufficientPrivilege):
            return AccessRefused(f"{self.where}: {text}: {_rights(self._names)}")
        if isinstance(error, _REFUSALS):
            return StoreRefused(
                f"{self.where} refuses: {text}: compare its tables with `holdfast sql schema postgresql`"
            )
        return StoreUnavailable(f"{self.where} gave no answer: {text}")


class _Transaction:
    """Implements `Transaction`."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Implements `Transaction.ask`."""
        return self._connection.execute(_spelled(statement), parameters or None).fetchall()

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Implements `Transaction.change_each`."""
        self._connection.cursor().executemany(_spelled(statement), rows)

    def run_all(self, statements: str) -> None:
        """Run statements without parameters."""
        self._connection.execute(statements.encode())

    def now_ms(self) -> int:
        """Implements `Transaction.now_ms`."""
        [(now,)] = self.ask("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return int(now)


def _spelled(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _rights(names: Names) -> str:
    return f"grant this user SELECT, INSERT and UPDATE on {names.position}, and SELECT on {names.store}"
