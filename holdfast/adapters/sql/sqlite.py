"""SQLite by the standard library: one file, for the processes of one machine."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from holdfast.adapters.sql.schema import Kind, Names, schema_of
from holdfast.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from uuid import UUID

    from holdfast.adapters.sql.database import Transaction
    from holdfast.runtime import Runtime

T = TypeVar("T")

#: What passes by itself, or is mended without a change of the program: locks, disks.
_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})


class SqliteDatabase:
    """Implements `Database`. A transaction has the whole file: SQLite knows no locks of rows.

    Args:
        path: the file.
        names: of the tables.
        timeout_s: how long the file's lock is waited for.
        runtime: locks and the time of day.
    """

    kind: Kind = "sqlite"
    for_update = skip_locked = ""

    def __init__(self, path: Path, names: Names, timeout_s: float, runtime: Runtime) -> None:
        self.where = f"the SQLite file {path}"
        self._path, self._names, self._timeout_s, self._runtime = path, names, timeout_s, runtime
        self._lock = runtime.lock()
        self._connection: sqlite3.Connection | None = None
        #: Of parents: closed in a child, a connection would take its file's locks along.
        self._left: list[sqlite3.Connection] = []

    def owner(self, owner: UUID) -> object:
        """Implements `Database.owner`."""
        return owner.hex

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None) -> T:  # noqa: ARG002 - no rows' locks
        """Implements `Database.run`."""
        return self._run(work, create=False)

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Implements `Database.change_all`."""
        return self._run(lambda tx: [tx.changed(statement, each) for each in rows], create=False)

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Implements `Database.check`."""

        def look(tx: _Transaction) -> tuple[str, int] | None:
            if create:
                tx.run_all(schema_of(self.kind, self._names))
            there = tx.ask("SELECT count(*) FROM sqlite_master WHERE name IN ('holdfast_store', 'holdfast_position')")
            if there[0][0] < 2:
                return None
            [(name, layout)] = tx.ask(f"SELECT id, layout FROM {self._names.store}")  # noqa: S608 - a name of ours
            return str(name), int(layout)

        return self._run(look, create=create)

    def close(self) -> None:
        """Implements `Database.close`."""
        with self._lock:
            self._drop()

    def forked(self) -> None:
        """Implements `Database.forked`."""
        self._lock = self._runtime.lock()
        if self._connection is not None:
            self._left.append(self._connection)
            self._connection = None

    def _run(self, work: Callable[[_Transaction], T], *, create: bool) -> T:
        with self._lock:
            done = False
            try:
                connection = self._connection = self._connection or self._opened(create=create)
                connection.execute("BEGIN IMMEDIATE")
                reply = work(_Transaction(connection, self._runtime))
                connection.execute("COMMIT")
                done = True
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
                if code in _PASSING:
                    raise StoreUnavailable(f"{self.where} gave no answer: {error}") from error
                if code == sqlite3.SQLITE_CANTOPEN:
                    raise StoreRefused(
                        f"{self.where} cannot be opened: make it with `holdfast sql schema sqlite | sqlite3 FILE`, or "
                        "say create=True in tests"
                    ) from error
                raise StoreRefused(f"{self.where} refuses: {error}") from error
            finally:
                if not done:
                    self._drop()
            return reply

    def _opened(self, *, create: bool) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path))}?mode={'rwc' if create else 'rw'}"
        return sqlite3.connect(uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)

    def _drop(self) -> None:
        """Close the connection: what is not committed is undone."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


class _Transaction:
    """Implements `Transaction`."""

    def __init__(self, connection: sqlite3.Connection, runtime: Runtime) -> None:
        self._connection, self._runtime = connection, runtime

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Implements `Transaction.ask`."""
        return self._connection.execute(statement, parameters).fetchall()

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Implements `Transaction.change_each`."""
        self._connection.executemany(statement, rows)

    def changed(self, statement: str, parameters: Sequence[object]) -> int:
        """Change rows. Returns how many."""
        return self._connection.execute(statement, parameters).rowcount

    def run_all(self, statements: str) -> None:
        """Run statements without parameters. Not `executescript`, which would commit first."""
        for each in statements.split(";"):
            if each.strip():
                self._connection.execute(each)

    def now_ms(self) -> int:
        """Implements `Transaction.now_ms`: the machine's own, as all processes of the file are on it."""
        return self._runtime.wall_ms()
