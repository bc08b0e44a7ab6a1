"""Where PostgreSQL is, as a value that pickles: connections are made where they are used, also in each task."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark.session import resolved_url
from holdfast.adapters.spark.values import WriteFailed
from holdfast.dedup.struck import of_a_handler
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.adapters.spark._pyspark import SparkSession
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword")
#: In ms. The first comes first, as a short one would end the others. A merge takes what it takes; its waits are bound.
_BOUNDS = (
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {locks}; "
    "SET LOCAL idle_in_transaction_session_timeout = {idle}"
)
_SINCE_17 = "; SET LOCAL transaction_timeout = 0"
#: Of this database, with a lock by which others wait for a table, a row or a sink. Another user's details are hidden.
_OLDEST = """
SELECT a.pid, a.usename, a.application_name, a.state
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND EXISTS (
    SELECT FROM pg_catalog.pg_locks l
    WHERE l.pid = a.pid AND l.granted
        AND (l.locktype = 'advisory' OR l.locktype = 'relation' AND l.mode <> 'AccessShareLock')
)
ORDER BY a.xact_start NULLS LAST LIMIT 3
"""
_REMEDY = "give it as postgresql://user:password@host:port/database, with the password percent-encoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAt:
    """A database. `url` is never shown: it may hold a password."""

    url: str = field(repr=False)
    timeout_s: float

    def __post_init__(self) -> None:
        if not self.url or not isinstance(self.url, str):
            raise SettingError(
                "url", type(self.url).__name__, "give PostgreSQL's URL, or the name of a Spark conf with it"
            )
        if not 1 <= self.timeout_s < 86_400:
            raise SettingError("timeout_s", self.timeout_s, "give a number of seconds, at least 1")
        if "://" in self.url:
            self._parameters()

    def resolved(self, spark: SparkSession) -> PostgresAt:
        """With the URL itself, where the name of a conf was given.

        Raises:
            SettingError: the session has no such conf.
        """
        url = resolved_url("url", self.url, "postgresql", spark)
        return self if url == self.url else replace(self, url=url)

    @contextmanager
    def connected(self, *, lock_s: float | None = None) -> Iterator[Connection[Any]]:
        """A connection, and one transaction: committed in the end, rolled back by an error. What a signal's handler
        raises into it comes out as it is.

        It reads what others have committed, may write, and ends by no clock but its own, whatever the database, the
        user or the URL say: what a zombie must see and a wait's end are no matter of somebody's defaults.

        Args:
            lock_s: how long a lock is waited for; None: twice `timeout_s`, since after one of it the server ends a
                transaction of ours that stands still.

        Raises:
            WriteFailed: no connection, it broke, or the server refused. After a commit without an answer nobody
                knows whether it has happened.
        """
        from holdfast.adapters.spark.writers.postgres._psycopg import errors, psycopg, said  # noqa: PLC0415 - of an extra

        before = sys.exception()
        parameters = self._parameters()
        where = _place(parameters)
        secrets = [str(parameters[each]) for each in _SECRETS if parameters.get(each)]
        try:
            connection = psycopg.connect(**parameters)
        except psycopg.Error as error:
            _let_out(error, before)
            # Not chained: the client's text is here, without what is secret.
            raise WriteFailed(
                f"no connection to PostgreSQL at {where}: {said(error, secrets)}: see that it runs, lets this machine "
                "and user in, and that the URL is right; then start the query again"
            ) from None
        try:
            with _to_its_end(connection):
                self._begin(connection, 2 * self.timeout_s if lock_s is None else lock_s)
                yield connection
                connection.commit()
        except psycopg.Error as error:
            _let_out(error, before)
            held = self._holders() if isinstance(error, errors.LockNotAvailable) else ""
            raise WriteFailed(f"PostgreSQL at {where}: {said(error, secrets)}{held}") from None

    def _begin(self, connection: Connection[Any], lock_s: float) -> None:
        from holdfast.adapters.spark.writers.postgres._psycopg import psycopg, sql  # noqa: PLC0415 - of an extra

        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only, connection.deferrable = False, False
        bounds = _BOUNDS + (_SINCE_17 if connection.info.server_version >= 170_000 else "")
        locks, idle = round(lock_s * 1000), round(self.timeout_s * 1000)
        connection.execute(sql.SQL(bounds).format(locks=sql.Literal(locks), idle=sql.Literal(idle)))

    def _holders(self) -> str:
        """The transactions that have others wait, in words; "": none is seen any more, or nobody answers."""
        from holdfast.adapters.spark.writers.postgres._psycopg import psycopg  # noqa: PLC0415 - of an extra

        before = sys.exception()
        try:
            connection = psycopg.connect(**self._parameters())
            with _to_its_end(connection):
                found = connection.execute(_OLDEST).fetchall()
        except psycopg.Error as error:
            _let_out(error, before)
            return ""
        told = [
            f"process {pid} of user {user} ({name or 'no application_name'}, {state or 'its state is hidden'})"
            for pid, user, name, state in found
        ]
        return f". The oldest transactions with locks there: {'; '.join(told)}" if told else ""

    def _parameters(self) -> dict[str, Any]:
        from holdfast.adapters.spark.writers.postgres._psycopg import conninfo, psycopg  # noqa: PLC0415 - of an extra

        if not self.url.startswith(_SCHEMES):
            raise SettingError("url", self.url.partition("://")[0] + "://...", _REMEDY)
        try:
            parameters: dict[str, Any] = conninfo.conninfo_to_dict(self.url)
        except psycopg.Error:
            # Not chained: the parser's text may quote a part of the password.
            raise SettingError("url", "postgresql://...", _REMEDY) from None
        if "@" in str(parameters.get("host", "")):
            raise SettingError("url", "postgresql://...", _REMEDY)
        timeout_s = max(2, round(self.timeout_s))
        # A server that is gone without a word: libpq would wait for its answer for hours.
        usual = {
            "connect_timeout": timeout_s,
            "application_name": "holdfast",
            "keepalives_idle": max(1, timeout_s // 2),
            "keepalives_interval": max(1, timeout_s // 6),
            "keepalives_count": 3,
            "tcp_user_timeout": timeout_s * 1000,
        }
        return usual | parameters


@contextmanager
def _to_its_end(connection: Connection[Any]) -> Iterator[None]:
    """Closed whatever happens, which undoes what is not committed. psycopg's own block rolls back first: there a job's
    time limit would be lost to its log; and one that strikes while it commits would leave the connection open."""
    try:
        try:
            yield
        finally:
            connection.close()
    finally:
        connection.close()  # again: a signal's handler may have raised right before the first


def _let_out(error: BaseException, before: BaseException | None) -> None:
    """Raise what a signal's handler has raised where psycopg made an error of its own of it; else nothing.

    Args:
        error: psycopg's.
        before: what was being handled when the call began.
    """
    struck = of_a_handler(error, before)
    if struck is not None:
        raise struck


def _place(parameters: Mapping[str, Any]) -> str:
    host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
    return f"{host}:{port}/{parameters.get('dbname', parameters.get('user', ''))}"
