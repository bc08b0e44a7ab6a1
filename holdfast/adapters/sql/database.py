"""A database as SqlPositions uses it: transactions of a few statements, written once for all databases.

Statements have a `?` for each parameter. A row that is read to be changed is locked until the transaction's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from holdfast.adapters.sql.schema import Kind

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


class Database(Protocol):
    """Any thread may call; one call at a time is made.

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

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None) -> T:
        """Do this in one transaction: again from its beginning where the database has chosen it to end a conflict.

        Args:
            work: its statements.
            lock_s: seconds to wait for a row; None: as long as for an answer.

        Raises:
            Busy: another transaction holds a row for longer.
        """
        ...

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Run one statement with each of these parameters, in one transaction and one round trip, in this order.
        Returns how many rows each has changed."""
        ...

    def check(self, *, create: bool) -> tuple[str, int] | None:
        """Read the store's id and layout; None = there are no tables. Args: create: make them."""
        ...

    def close(self) -> None:
        """Give the connection back. Does not raise; the next call connects again."""
        ...

    def forked(self) -> None:
        """In a child: leave the connection, and whatever lock is held, to the parent."""
        ...
