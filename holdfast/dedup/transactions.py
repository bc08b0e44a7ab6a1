"""The protocol of a store that is in the database of the effects: a handler's effects and its records' mark are one
transaction.

| event | what comes of it |
|---|---|
| begin | the transaction's first statement fences and marks: it changes nothing if another process has the partition |
| the handler returns | COMMIT: effects and mark are there, or neither |
| the handler raises | ROLLBACK: neither |
| COMMIT has no answer | the row says whether the mark is there; before it was read, none of these records starts |
| the database ends a conflict (40001, 40P01) | neither; `Conflict`: begin anew |
| the handler is given up | `abandon`: it commits no more |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ENDED_BEFORE = (
    "the handler has ended its transaction itself: leave COMMIT and ROLLBACK to holdfast, and raise for a rollback; "
    "a savepoint is `with tx.transaction():` in psycopg"
)
FAILED_BEFORE = (
    "a statement in the handler's transaction has failed, so that nothing of it can be committed, and the handler has "
    "returned: let the error pass, or put what may fail into a savepoint: `with tx.transaction():`"
)


class Conflict(Exception):
    """The database has undone a transaction because of others. The same may succeed at once."""


class Transaction(Protocol):
    """One that is open: begun, fenced and marked. The thread of the handler. `commit` or `failed` ends it, once."""

    connection: Any  #: of the database's driver

    @property
    def done(self) -> Collection[int]:
        """Offsets of those asked for that were done before: the handler must not get them."""
        ...

    def commit(self) -> None:
        """Commit.

        Raises:
            StoreUnavailable: no answer. It is committed or not; `begin` finds out before one of its records starts.
            Conflict: it was undone, as by `failed`.
            HandlerHung: it was abandoned.
            Exception: the database's, or a StateError: it could not be committed, and is undone.
        """
        ...

    def failed(self, error: BaseException) -> BaseException:
        """Undo it because of an error of the handler.

        Returns: what that was due to: itself; a Conflict; or StoreUnavailable, if the connection broke.
        """
        ...


class Transactions(Protocol):
    """A store that is in the database of the effects. Any thread."""

    def transaction(self, partition: str, epoch: int, offsets: Sequence[int]) -> Transaction | None:
        """Begin one for these records; None: all of them are done.

        Args:
            partition: the position's name.
            epoch: of the ownership under which the records came.
            offsets: one or more, ascending.

        Raises:
            StoreUnavailable: no answer. Nothing is done.
            HandlerHung: they were abandoned.
            FormerOwner: another process has the partition; or the database has lost what it had acknowledged.
        """
        ...

    def runs(self, partition: str, offsets: Sequence[int]) -> bool:
        """Whether a handler works in these records' transaction: it has begun, and is not being committed. While it is
        not, the database is waited for."""
        ...

    def abandon(self, partition: str, epoch: int, offsets: Sequence[int]) -> bool:
        """Let these records' transaction commit no more, and break its connection off: their handler hangs. One that
        has not begun will not.

        Returns: False = it is being committed.
        """
        ...


def check_transactions(store: object, own: object) -> None:
    """Raises SettingError: that store opens no transactions, or is not the app's own."""
    if not all(hasattr(store, name) for name in ("transaction", "runs", "abandon")):
        raise SettingError(
            "transaction",
            type(store).__name__,
            "give the store in the database of your effects, such as SqlPositions, which is the app's claims= too",
        )
    if store is not own:
        raise SettingError(
            "transaction",
            type(store).__name__,
            "give the very store that the app has: Holdfast(source, claims=store), and transaction=store",
        )
