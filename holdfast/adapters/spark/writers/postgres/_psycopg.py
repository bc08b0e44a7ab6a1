"""The only file that imports psycopg. It is imported when it is needed: other writers work without psycopg.

Also converts psycopg's errors into one line with a remedy, without secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence


try:
    import psycopg
    from psycopg import Connection, Cursor, conninfo, errors, sql
    from psycopg.sql import Composable
except ImportError as error:  # also if libpq, which the extra installs, is missing for its C part
    raise MissingExtraError("psycopg", "postgres") from error

__all__ = ["Composable", "Connection", "Cursor", "conninfo", "errors", "psycopg", "said", "sql"]


_AGAIN = "start the query again"
_REMEDIES: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.InsufficientPrivilege, "grant the user INSERT, UPDATE and SELECT on the table, and CREATE on the schema"),
    (errors.LockNotAvailable, f"another transaction holds the table or the sink for long: end it, or {_AGAIN} later"),
    (errors.DeadlockDetected, f"another transaction changes the same rows in another order: {_AGAIN}"),
    (errors.QueryCanceled, f"the server's operator or its rules ended the statement: {_AGAIN}"),
    (errors.CardinalityViolation, "two keys of the batch are one in the table: make the key's column tell them apart"),
    (errors.IdleInTransactionSessionTimeout, f"the driver stood still in its transaction, which is undone: {_AGAIN}"),
    (errors.NotNullViolation, "fill the column before the sink, or let it be null"),
    (errors.UniqueViolation, "another unique index than the key's refuses a row: drop it, or make it part of the key"),
    (errors.DiskFull, f"make room, and {_AGAIN}"),
    (errors.IntegrityError, "the table's own rules refuse a row: mend the rows before the sink, or the rule"),
    (errors.DataError, "a value does not fit its column: cast it before the sink, or alter the column"),
    (errors.ProgrammingError, "see that the table and the user's rights are what the sink needs"),
    (errors.OperationalError, f"see that the server is well, and {_AGAIN}"),
)


def said(error: psycopg.Error, secrets: Sequence[str]) -> str:
    """The first line of the server's or the client's message, with a remedy. Details are left out: they quote rows."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    text = " ".join(text.split())
    for secret in secrets:
        text = text.replace(secret, "***")
    remedy = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
    return f"{text}: {remedy}" if remedy and error.sqlstate else text
