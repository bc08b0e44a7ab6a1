"""The one place that imports psycopg, and not before it is needed: who writes elsewhere has no use for it."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    import psycopg
    from psycopg import Connection, conninfo, errors, sql
except ImportError as error:  # or its C part without a libpq, which the extra brings
    raise MissingExtraError("psycopg", "postgres") from error

__all__ = ["Connection", "conninfo", "errors", "psycopg", "sql"]
