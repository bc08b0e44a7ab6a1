"""Where PostgreSQL is, as a value that pickles: connections are made where they are used, also in each task."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark.session import resolved_url
from holdfast.adapters.spark.values import WriteFailed
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.adapters.spark._pyspark import SparkSession
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword")
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
    def connected(self) -> Iterator[Connection[Any]]:
        """A connection, and one transaction: committed in the end, rolled back by an error.

        Raises:
            WriteFailed: no connection, it broke, or the server refused. After a commit without an answer nobody
                knows whether it has happened.
        """
        from holdfast.adapters.spark.writers.postgres._psycopg import psycopg, said  # noqa: PLC0415 - of an extra

        parameters = self._parameters()
        where = _place(parameters)
        secrets = [str(parameters[each]) for each in _SECRETS if parameters.get(each)]
        try:
            connection = psycopg.connect(**parameters)
        except psycopg.Error as error:
            # Not chained: the client's text is here, without what is secret.
            raise WriteFailed(
                f"no connection to PostgreSQL at {where}: {said(error, secrets)}: see that it runs, lets this machine "
                "and user in, and that the URL is right; then start the query again"
            ) from None
        try:
            with connection:
                yield connection
        except psycopg.Error as error:
            raise WriteFailed(f"PostgreSQL at {where}: {said(error, secrets)}") from None

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
        return {"connect_timeout": max(2, round(self.timeout_s)), "application_name": "holdfast"} | parameters


def _place(parameters: Mapping[str, Any]) -> str:
    host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
    return f"{host}:{port}/{parameters.get('dbname', parameters.get('user', ''))}"
