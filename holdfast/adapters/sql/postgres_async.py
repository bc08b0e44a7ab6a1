"""PostgreSQL for coroutines: their transactions, on connections of psycopg's that are awaited.

An event loop has its own connections: one for each transaction that is open. All else is asked by threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from holdfast.adapters.sql._psycopg import psycopg, rows
from holdfast.adapters.sql.postgres_link import (
    CONFLICTS,
    beginning,
    check_committed,
    check_open,
    claim_error,
    claiming,
    closed_by,
    commit_error,
    is_idle,
)
from holdfast.adapters.sql.watchdog import break_off
from holdfast.dedup.transactions import Conflict
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.postgres_link import Home
    from holdfast.adapters.sql.watchdog import Watchdog

AsyncConnection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"


class _OfALoop(NamedTuple):
    turns: asyncio.Semaphore
    idle: deque[AsyncConnection]

    def close(self) -> None:
        """Close those that are idle."""
        while self.idle:
            with suppress(IndexError):  # another thread does the same
                connection = self.idle.pop()
                connection.pgconn.finish()


class AsyncConnections:
    """The connections of one process' event loops. Each method but `close` in an event loop.

    Args:
        home: the database.
        watchdog: looks after what has no answer.
        parameters: of a connection.
        most: so many of one event loop are open at most; who needs another one waits.
    """

    def __init__(
        self, home: Home, watchdog: Callable[[], Watchdog], parameters: Mapping[str, Any], idle_s: float, most: int
    ) -> None:
        self._home, self._watchdog, self._parameters, self._idle_s, self._most = (
            home,
            watchdog,
            parameters,
            idle_s,
            most,
        )
        self._of: dict[asyncio.AbstractEventLoop, _OfALoop] = {}

    async def open(self, first: Statement) -> AsyncPostgresOpened:
        """Begin a transaction with that statement. One that was idle may have broken meanwhile: then another one is
        asked. Raises StoreUnavailable, StoreRefused."""
        turns, idle = self._of.get(asyncio.get_running_loop()) or self._begin()
        await turns.acquire()
        opened = False
        try:
            while True:
                fresh = not idle
                connection = await self._connected() if fresh else idle.pop()
                try:
                    changed = await self._begun(connection, first)
                except psycopg.OperationalError as error:
                    if not fresh and connection.closed:
                        continue
                    raise self._home.store_error(error) from error
                except psycopg.Error as error:
                    raise self._home.store_error(error) from error
                opened = True
                return AsyncPostgresOpened(self, connection, changed)
        finally:
            if not opened:
                turns.release()

    def give_back(self, connection: AsyncConnection) -> None:
        """Take the connection of a transaction that has ended. One that is closed makes room for another."""
        turns, idle = self._of.get(asyncio.get_running_loop()) or self._begin()
        if not connection.closed:
            idle.append(connection)
        turns.release()

    def close(self) -> None:
        """Close those that are idle. Any thread."""
        for each in list(self._of.values()):
            each.close()

    @property
    def home(self) -> Home:
        """The database."""
        return self._home

    @property
    def watchdog(self) -> Watchdog:
        """Looks after what has no answer."""
        return self._watchdog()

    def _begin(self) -> _OfALoop:
        """Begin in this event loop; what others have left that are over is closed."""
        for loop in [each for each in self._of if each.is_closed()]:
            self._of.pop(loop).close()
        made = self._of[asyncio.get_running_loop()] = _OfALoop(asyncio.Semaphore(self._most), deque())
        return made

    async def _connected(self) -> AsyncConnection:
        try:
            connection = await psycopg.AsyncConnection.connect(**self._parameters)
        except psycopg.Error as error:
            raise self._home.store_error(error) from error
        standby = True
        try:
            with self.watchdog.over(connection.fileno()):
                cursor = await connection.execute("SELECT pg_is_in_recovery()")
                [(standby,)] = await cursor.fetchall()
        except psycopg.Error as error:
            raise self._home.store_error(error) from error
        finally:
            if standby:
                await connection.close()
        if standby:
            raise StoreUnavailable(f"{self._home.where} is a standby, which takes no writes")
        return connection

    async def _begun(self, connection: AsyncConnection, first: Statement) -> int:
        done = False
        try:
            with self.watchdog.over(connection.fileno()):
                cursor = await connection.execute(beginning(first, self._idle_s).encode(connection.info.encoding))
            while cursor.nextset():
                pass
            done = True
        finally:
            if not done:
                await connection.close()
        return cursor.rowcount


class AsyncPostgresOpened:
    """Implements `Opened`, to be awaited."""

    def __init__(self, home: AsyncConnections, connection: AsyncConnection, changed: int) -> None:
        self._home, self.connection, self.changed = home, connection, changed

    async def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Implements `Opened.claim`."""
        try:
            async with self.connection.cursor(row_factory=rows.tuple_row) as cursor:
                await cursor.execute(claiming(statement))
                cursor.nextset()
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise claim_error(self._home.home, error) from error

    async def commit(self) -> None:
        """Implements `Opened.commit`. A task that is cancelled meanwhile leaves the transaction open: it is to be
        closed."""
        try:
            check_open(self.connection)
            with self._home.watchdog.over(self.connection.fileno()):
                await self.connection.execute(b"COMMIT")
            check_committed(self.connection)
        except psycopg.Error as error:
            found = commit_error(self._home.home, self.connection, error)
            self.close()
            raise found from error
        except Exception:
            self.close()
            raise
        self._home.give_back(self.connection)

    async def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`."""
        if self.connection.closed:
            found = closed_by(self.connection, error)
            self.close()
            return found
        done = False
        try:
            with suppress(psycopg.Error), self._home.watchdog.over(self.connection.fileno()):
                await self.connection.execute(b"ROLLBACK")
            done = is_idle(self.connection)
        finally:
            if done:
                self._home.give_back(self.connection)
            else:
                self.close()
        return Conflict() if isinstance(error, CONFLICTS) else error

    def close(self) -> None:
        """Implements `Opened.close`. Does not wait."""
        self.connection.pgconn.finish()
        self._home.give_back(self.connection)

    def cut(self) -> None:
        """Implements `Opened.cut`. Any thread."""
        with suppress(psycopg.Error):
            break_off(self.connection.fileno())

    @property
    def is_cut(self) -> bool:
        """Implements `Opened.is_cut`."""
        return bool(self.connection.broken)
