"""PostgreSQL by psycopg 3: transactions of one round trip where nothing is to be decided in between.

One connection for the loop's questions, and one for each transaction of a handler that is open.

Each transaction says its isolation, its rights and its bounds itself: a database, a user or a URL may have others by
default. Bounds are SET LOCAL, and nothing is prepared unless the user says so: pgBouncer may give each transaction
another server.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.adapters.sql._psycopg import conninfo, errors, psycopg
from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.literals import inlined
from holdfast.adapters.sql.postgres_async import AsyncConnections
from holdfast.adapters.sql.postgres_link import BEGIN, Link, PostgresOpened, PostgresTransaction, answered, idling
from holdfast.adapters.sql.schema import Kind, Names, schema_of
from holdfast.adapters.sql.watchdog import Watchdog
from holdfast.errors import AccessRefused, SettingError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.database import Transaction
    from holdfast.adapters.sql.postgres_async import AsyncPostgresOpened
    from holdfast.adapters.sql.postgres_link import Connection
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
        idle_s: after so long the server ends a handler's transaction in which nothing happens.
        prepare: whether psycopg prepares statements that are repeated.
        most_async: connections for coroutines, at most.

    Raises:
        SettingError: libpq cannot read the URL. It is not in the error.
        MissingExtraError: psycopg is not installed.
    """

    kind: Kind = "postgresql"
    for_update, skip_locked = " FOR UPDATE", " FOR UPDATE SKIP LOCKED"

    def __init__(
        self,
        url: str,
        names: Names,
        timeout_s: float,
        runtime: Runtime,
        *,
        idle_s: float,
        prepare: bool,
        most_async: int,
    ) -> None:
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
        self._names, self._timeout_s, self._idle_s, self._runtime = names, timeout_s, idle_s, runtime
        self._prepare_threshold = 5 if prepare else None
        self._lock = runtime.lock()
        self._watchdog = Watchdog(timeout_s, runtime)
        self._link = Link(self._opened, self._watchdog)
        #: Connections of handlers' transactions that have ended; any thread takes and gives.
        self._idle: deque[Link] = deque()
        self._most_async = most_async
        self._async = self._made_async()

    def owner(self, owner: UUID) -> object:
        """Implements `Database.owner`."""
        return owner

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None, apart: bool = False) -> T:
        """Implements `Database.run`."""
        return self._run(work, lock_s, apart=apart)

    def _run(self, work: Callable[[PostgresTransaction], T], lock_s: float | None, *, apart: bool = False) -> T:
        def whole(connection: Connection) -> T:
            answered(connection, self._begin(lock_s))
            reply = work(PostgresTransaction(connection))
            answered(connection, "COMMIT")
            return reply

        if not apart:
            return self._asked(whole, lock_s)
        return self._asked_apart(lambda link: link.asked(whole), lock_s)

    def change_all(self, changes: Sequence[Statement]) -> list[int]:
        """Implements `Database.change_all`."""
        text = "; ".join([self._begin(None), *map(inlined, changes), "COMMIT"])

        def whole(connection: Connection) -> list[int]:
            cursor = connection.execute(text.encode(connection.info.encoding))
            found = [cursor.rowcount]
            while cursor.nextset():
                found.append(cursor.rowcount)
            return found[-1 - len(changes) : -1]

        return self._asked(whole, None)

    def open(self, first: Statement) -> PostgresOpened:
        """Implements `Database.open`. One round trip."""
        return self._asked_apart(lambda link: PostgresOpened(self, link, self._idle_s, first), None, keep=True)

    async def open_async(self, first: Statement) -> AsyncPostgresOpened:
        """Do the same for a coroutine."""
        return await self._async.open(first)

    def watched(self, connection: Any) -> AbstractContextManager[None]:  # noqa: ANN401 - psycopg's
        """Implements `Database.watched`."""
        return self._watchdog.over(connection.fileno())

    def is_of(self, connection: Any) -> bool:  # noqa: ANN401, ARG002 - psycopg's; a server may have several names
        """Implements `Database.is_of`: the rows say so."""
        return True

    def error_of(self, error: BaseException) -> StoreError | None:
        """Implements `Database.error_of`."""
        return self.store_error(error) if isinstance(error, psycopg.Error) else None

    def give_back(self, link: Link) -> None:
        """Take the connection of a transaction that has ended."""
        self._idle.append(link)

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Implements `Database.check`."""

        def look(tx: PostgresTransaction) -> tuple[str, int] | None:
            if create:
                tx.ask("SELECT pg_advisory_xact_lock(?)", (_CREATE_LOCK,))
                tx.run_all(schema_of(self.kind, self._names))
            [there] = tx.ask(
                "SELECT to_regclass(?) IS NOT NULL AND to_regclass(?) IS NOT NULL AND to_regclass(?) IS NOT NULL",
                (self._names.store, self._names.position, self._names.key),
            )
            if not there[0]:
                return None
            [(name, layout)] = tx.ask(f"SELECT id, layout FROM {self._names.store}")  # noqa: S608 - a name of ours
            [rights] = tx.ask(
                "SELECT has_table_privilege(?, 'SELECT') AND has_table_privilege(?, 'INSERT') "
                "AND has_table_privilege(?, 'UPDATE') AND has_table_privilege(?, 'SELECT') "
                "AND has_table_privilege(?, 'INSERT')",
                (*[self._names.position] * 3, *[self._names.key] * 2),
            )
            if not rights[0]:
                raise AccessRefused(f"{self.where}: {_rights(self._names)}")
            return name.hex, layout

        return self._run(look, None)

    def close(self) -> None:
        """Implements `Database.close`."""
        with self._lock:
            self._link.drop()
            self._watchdog.stop()
            self._watchdog = Watchdog(self._timeout_s, self._runtime)
            self._link = Link(self._opened, self._watchdog)
        idle, self._idle = self._idle, deque()
        for link in idle:
            link.drop()
        self._async.close()

    def forked(self) -> None:
        """Implements `Database.forked`. psycopg closes no connection that another process has opened."""
        self._lock, self._idle = self._runtime.lock(), deque()
        self._watchdog = Watchdog(self._timeout_s, self._runtime)
        self._link = Link(self._opened, self._watchdog)
        self._async = self._made_async()

    def _made_async(self) -> AsyncConnections:
        parameters = {**self._parameters, "autocommit": True, "prepare_threshold": self._prepare_threshold}
        return AsyncConnections(self, lambda: self._watchdog, parameters, self._idle_s, self._most_async)

    def _begin(self, lock_s: float | None) -> str:
        """Begin a transaction with its bounds, for the server. One that is frozen gives its rows free by the last."""
        ms = round(self._timeout_s * _SERVERS_SHARE * 1000)
        lock_ms = ms if lock_s is None else min(round(lock_s * 1000), ms // 2)  # that a row is held is an answer
        return (
            f"{BEGIN}; SET LOCAL statement_timeout = {ms}; SET LOCAL lock_timeout = {lock_ms}; "
            f"{idling(self._timeout_s)}"
        )

    def _asked(self, whole: Callable[[Connection], T], lock_s: float | None) -> T:
        with self._lock:
            return self._tried(lambda: self._link.asked(whole), lock_s)

    def _asked_apart(self, ask: Callable[[Link], T], lock_s: float | None, *, keep: bool = False) -> T:
        """Ask on a connection of handlers' transactions. One that was idle may have broken meanwhile: then another one
        is asked. Args: keep: it is not given back, if it has answered."""

        def once() -> T:
            while True:
                try:
                    link, fresh = self._idle.pop(), False
                except IndexError:
                    link, fresh = Link(self._opened, self._watchdog), True
                try:
                    reply = ask(link)
                except psycopg.OperationalError:
                    if fresh or not link.broke:
                        raise
                    continue
                if not keep:
                    self._idle.append(link)
                return reply

        return self._tried(once, lock_s)

    def _tried(self, ask: Callable[[], T], lock_s: float | None) -> T:
        for left in reversed(range(_TRIES)):
            try:
                return ask()
            except errors.LockNotAvailable as error:
                if lock_s is not None:
                    raise Busy from error
                raise self.store_error(error) from error
            except (errors.SerializationFailure, errors.DeadlockDetected) as error:
                if not left:
                    raise self.store_error(error) from error
            except psycopg.Error as error:
                raise self.store_error(error) from error
        raise AssertionError

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=self._prepare_threshold)
        standby = True
        try:
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

    def store_error(self, error: psycopg.Error) -> StoreError:
        """The store's error for an error of the driver."""
        text = " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
        if isinstance(error, errors.InsufficientPrivilege):
            return AccessRefused(f"{self.where}: {text}: {_rights(self._names)}")
        if isinstance(error, _REFUSALS):
            return StoreRefused(
                f"{self.where} refuses: {text}: compare its tables with `holdfast sql schema postgresql`"
            )
        return StoreUnavailable(f"{self.where} gave no answer: {text}")


def _rights(names: Names) -> str:
    return (
        f"grant this user SELECT, INSERT and UPDATE on {names.position}, SELECT and INSERT on {names.key}, and SELECT "
        f"on {names.store}"
    )
