"""Connections to PostgreSQL, one for each thread that runs handlers. A pool does the same."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Two processes that start together would both make the tables, and one of them would fail.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(4711)"


class Connections:
    """Any thread may ask.

    Args:
        database: the URL of a PostgreSQL.
        tables: what is made where it is missing.
        idle_s: a transaction whose client says nothing for so long is ended by the server.
    """

    def __init__(self, database: str, tables: str, *, idle_s: float) -> None:
        self._database, self._idle_ms = database, round(idle_s * 1000)
        self._mine = threading.local()
        self._all: list[psycopg.Connection] = []
        with self.transaction() as transaction:
            transaction.execute(_ONE_AT_A_TIME)
            transaction.execute(tables.encode())

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Commits at the end of the block, or takes all back. Raises psycopg.Error."""
        connection = self._connection()
        with connection.transaction():
            yield connection

    def close(self) -> None:
        """Close them all. No thread may be in a transaction."""
        for connection in self._all:
            connection.close()

    def _connection(self) -> psycopg.Connection:
        found: psycopg.Connection | None = getattr(self._mine, "connection", None)
        if found is None or found.closed:
            found = psycopg.connect(self._database, autocommit=True)  # transactions begin where they are said to
            found.execute(f"SET idle_in_transaction_session_timeout = {self._idle_ms}".encode())
            self._mine.connection = found
            self._all.append(found)
        return found
