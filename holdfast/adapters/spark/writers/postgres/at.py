"""PostgresAt: the settings of a PostgreSQL, as a value that pickles. The driver and each task open connections."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark.session import resolved_url
from holdfast.adapters.spark.values import WriteFailed
from holdfast.dedup.interrupts import raised_by_handler
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.adapters.spark._pyspark import SparkSession
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword")
#: Timeouts in ms. statement_timeout comes first, as a short one would end the other statements. A merge may run for any
#: time; only its waits are limited.
_BOUNDS = (
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {locks}; "
    "SET LOCAL idle_in_transaction_session_timeout = {idle}"
)
_SINCE_17 = "; SET LOCAL transaction_timeout = 0"
#: The oldest transactions of this database with locks on tables, rows or sinks. Other users' details may be hidden.
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
    """A database. `url` is not in the repr: it may have a password."""

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
        """With the URL in place of the name of a conf.

        Raises:
            SettingError: the session has no such conf.
        """
        url = resolved_url("url", self.url, "postgresql", spark)
        return self if url == self.url else replace(self, url=url)

    @contextmanager
    def connected(self, *, lock_s: float | None = None) -> Iterator[Connection[Any]]:
        """A connection with one transaction: committed at the end, rolled back by an error. An error that a signal
        handler raises into it passes unchanged.

        The transaction is READ COMMITTED, may write, and has only the timeouts set here. They override defaults of the
        database, the user and the URL: fencing and the end of a wait must not depend on those.

        Args:
            lock_s: seconds to wait for a lock; None: twice `timeout_s`, since the server ends an idle transaction of
                another attempt after `timeout_s`.

        Raises:
            WriteFailed: there is no connection, it broke, or the server refused. If a commit gets no answer, it is
                unknown whether it has happened.
        """
        from holdfast.adapters.spark.writers.postgres._psycopg import errors, psycopg, said  # noqa: PLC0415 - of an extra

        before = sys.exception()
        parameters = self._parameters()
        where = _place(parameters)
        secrets = [str(parameters[each]) for each in _SECRETS if parameters.get(each)]
        try:
            connection = psycopg.connect(**parameters)
        except psycopg.Error as error:
            _raise_handler_error(error, before)
            # Not chained: the client's text may have secrets, which `said` removes.
            raise WriteFailed(
                f"no connection to PostgreSQL at {where}: {said(error, secrets)}: see that it runs, lets this machine "
                "and user in, and that the URL is right; then start the query again"
            ) from None
        try:
            with _closing(connection):
                self._begin(connection, 2 * self.timeout_s if lock_s is None else lock_s)
                yield connection
                connection.commit()
        except psycopg.Error as error:
            _raise_handler_error(error, before)
            held = self._lock_holders() if isinstance(error, errors.LockNotAvailable) else ""
            raise WriteFailed(f"PostgreSQL at {where}: {said(error, secrets)}{held}") from None

    def _begin(self, connection: Connection[Any], lock_s: float) -> None:
        from holdfast.adapters.spark.writers.postgres._psycopg import psycopg, sql  # noqa: PLC0415 - of an extra

        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only, connection.deferrable = False, False
        bounds = _BOUNDS + (_SINCE_17 if connection.info.server_version >= 170_000 else "")
        locks, idle = round(lock_s * 1000), round(self.timeout_s * 1000)
        connection.execute(sql.SQL(bounds).format(locks=sql.Literal(locks), idle=sql.Literal(idle)))

    def _lock_holders(self) -> str:
        """The transactions that hold locks, in words; "": there are none any more, or the server does not answer."""
        from holdfast.adapters.spark.writers.postgres._psycopg import psycopg  # noqa: PLC0415 - of an extra

        before = sys.exception()
        try:
            connection = psycopg.connect(**self._parameters())
            with _closing(connection):
                found = connection.execute(_OLDEST).fetchall()
        except psycopg.Error as error:
            _raise_handler_error(error, before)
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
        # Without these, libpq would wait for hours if the server vanishes without closing the connection.
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
def _closing(connection: Connection[Any]) -> Iterator[None]:
    """Close the connection in any case, which rolls back an open transaction. psycopg's own context manager rolls back
    first: a signal handler's error, such as a job's time limit, would be lost to its log there, and one during the
    commit would leave the connection open."""
    try:
        try:
            yield
        finally:
            connection.close()
    finally:
        connection.close()  # again: a signal handler may have raised right before the first call


def _raise_handler_error(error: BaseException, before: BaseException | None) -> None:
    """Raise the error of a signal handler that psycopg has turned into one of its own; else do nothing.

    Args:
        error: psycopg's error.
        before: the exception that was being handled when the call began.
    """
    raised = raised_by_handler(error, before)
    if raised is not None:
        raise raised


def _place(parameters: Mapping[str, Any]) -> str:
    host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
    return f"{host}:{port}/{parameters.get('dbname', parameters.get('user', ''))}"
