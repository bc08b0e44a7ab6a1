"""A database as SqlPositions uses it: transactions of a few statements, written once for all databases.

Statements have a `?` for each parameter. A row that is read to be changed is locked until the transaction's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from holdfast.adapters.sql.changes import Statement
    from holdfast.adapters.sql.schema import Kind
    from holdfast.errors import StoreError

T = TypeVar("T")


class Busy(Exception):
    """Another transaction holds a row. Nothing was changed."""


class Transaction(Protocol):
    """One that is open: its work is committed when the work has returned, or undone."""

    def ask(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows that a SELECT finds."""
        ...

    def change_each(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run one statement with each of these parameters, in this order."""
        ...

    def now_ms(self) -> int:
        """The database's milliseconds since 1970."""
        ...


class Opened(Transaction, Protocol):
    """A transaction of a handler, on a connection for itself. One thread uses it; `cut` may come from any.

    `commit`, `failed` or `close` ends it, once. On a connection for coroutines `claim`, `commit` and `failed` are to be
    awaited.
    """

    connection: Any  #: of the database's driver
    changed: int  #: how many rows its first statement has changed

    def claim(self, statement: Statement) -> Sequence[tuple[str, str]]:
        """Note keys, and wait for other transactions that have noted one of them. Returns: the rows that are new.

        Raises: what `failed` is to be told.
        """
        ...

    def commit(self) -> None:
        """Commit.

        Raises:
            StoreUnavailable: no answer: it is committed or not.
            Conflict: the database has undone it, to end a conflict.
            StateError: it was not open any more, or a statement in it had failed.
            Exception: the driver's error, because of which the database has undone it.
        """
        ...

    def failed(self, error: BaseException) -> BaseException:
        """Undo it. Returns: what a handler's error was due to: itself; Conflict; StoreUnavailable, if the connection
        broke."""
        ...

    def close(self) -> None:
        """Undo it. Does not raise."""
        ...

    def cut(self) -> None:
        """Break its connection off. Does not raise."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether its connection broke."""
        ...


class Database(Protocol):
    """Any thread may call; one call at a time is made, but for `open` and what is `apart`.

    Each call raises StoreUnavailable: no answer, what it did may be done; StoreRefused: the database answers and
    refuses.
    """

    kind: Kind
    where: str  #: for texts, without credentials
    for_update: str  #: behind a SELECT, so that its rows are locked
    skip_locked: str  #: the same, and rows of others are left out; "" = this database locks as a whole

    def owner(self, owner: UUID) -> object:
        """An owner as a parameter."""
        ...

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None, apart: bool = False) -> T:
        """Do this in one transaction: again from its beginning where the database has chosen it to end a conflict.

        Args:
            work: its statements.
            lock_s: seconds to wait for a row; None: as long as for an answer.
            apart: on a connection of those that handlers' transactions have.

        Raises:
            Busy: another transaction holds a row for longer.
        """
        ...

    def change_all(self, changes: Sequence[Statement]) -> list[int]:
        """Run these statements in one transaction and one round trip, in this order. Returns how many rows each has
        changed."""
        ...

    def open(self, first: Statement) -> Opened:
        """Begin a transaction for a handler, with that statement."""
        ...

    def open_async(self, first: Statement) -> Awaitable[Any]:
        """Do the same for a coroutine. Of PostgreSQL alone."""
        ...

    def watched(self, connection: Any) -> AbstractContextManager[None]:  # noqa: ANN401 - of its driver
        """Break a connection off that gives no answer in time, while one question is asked."""
        ...

    def is_of(self, connection: Any) -> bool:  # noqa: ANN401 - as above
        """Whether a connection of the user's may be one to this database."""
        ...

    def error_of(self, error: BaseException) -> StoreError | None:
        """The store's error for an error of the driver; None = it is none."""
        ...

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Read the store's id and layout; None = there are no tables. Args: create: make them."""
        ...

    def close(self) -> None:
        """Give the connections back. Does not raise; the next call connects again."""
        ...

    def forked(self) -> None:
        """In a child: leave the connections, and whatever lock is held, to the parent."""
        ...
