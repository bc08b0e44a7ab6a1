"""The only file that imports psycopg. It is imported when a PostgreSQL is asked for: SQLite works without it."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    import psycopg
    from psycopg import conninfo, errors, rows
except ImportError as error:  # also if libpq, which the extra installs, is missing for its C part
    raise MissingExtraError("psycopg", "postgres") from error

__all__ = ["conninfo", "errors", "psycopg", "rows"]
