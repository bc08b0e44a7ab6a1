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

A handler may also have a transaction of its own, and call the store's `mark` in it (`Scope`): then the row says, when
the handler has ended, whether it was committed.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.dedup.steps import Steps
    from holdfast.records import Record

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
    """One that is open: begun, fenced and marked. In the thread, or the task, of the handler. `committing` or `failing`
    ends it, once. The steps of a coroutine's transaction are awaited."""

    connection: Any  #: of the database's driver, or a session

    @property
    def done(self) -> Collection[int]:
        """Offsets of those asked for that were done before: the handler must not get them."""
        ...

    def claiming(self, keys: Sequence[tuple[str, str]]) -> Steps[Collection[tuple[str, str]]]:
        """Claim business keys, each with its scope, for as long as the store keeps them. One that another transaction
        has claimed, and not committed yet, is waited for. Returns: those that are new.

        Raises: what `failing` is to be told.
        """
        ...

    def committing(self) -> Steps[None]:
        """Commit.

        Raises:
            StoreUnavailable: no answer. It is committed or not; `begin` finds out before one of its records starts.
            FormerOwner: another process has the partition.
            Conflict: it was undone, as by `failing`.
            HandlerHung: it was abandoned.
            Exception: the database's, or a StateError: it could not be committed, and is undone.
        """
        ...

    def failing(self, error: BaseException) -> Steps[BaseException | None]:
        """Undo it because of an error of the handler.

        Returns: what that was due to: itself; a Conflict; StoreUnavailable, if the connection broke; FormerOwner. None:
        a transaction of the handler's own is committed all the same.
        """
        ...


class Transactions(Protocol):
    """A store that is in the database of the effects, or what opens transactions for it. Any thread."""

    @property
    def serves_plain(self) -> bool:
        """Whether handlers that are plain functions can have transactions of it."""
        ...

    @property
    def serves_async(self) -> bool:
        """Whether those that are `async def` can."""
        ...

    @property
    def store(self) -> object:
        """The store itself."""
        ...

    def beginning(
        self, partition: str, epoch: int, offsets: Sequence[int], *, is_async: bool
    ) -> Steps[Transaction | None]:
        """Begin one for these records. Returns: None: all of them are done.

        Args:
            partition: the position's name.
            epoch: of the ownership under which the records came.
            offsets: one or more, ascending.
            is_async: the handler is a coroutine.

        Raises:
            StoreUnavailable: no answer. Nothing is done.
            HandlerHung: they were abandoned.
            FormerOwner: another process has the partition; or the database has lost what it had acknowledged.
        """
        ...

    def runs(self, partition: str, offsets: Collection[int]) -> bool:
        """Whether a handler works in these records' transaction: it has begun, and is not being committed. While it is
        not, the database is waited for."""
        ...

    def abandon(self, partition: str, epoch: int, offsets: Collection[int]) -> bool:
        """Let these records' transaction commit no more, and break its connection off: their handler hangs. One that
        has not begun will not.

        Returns: False = it is being committed.
        """
        ...


class Scope:
    """One call of a handler that may mark its records in a transaction of its own. In its thread, or task.

    Args:
        records: those of the call, which has not marked any yet.
    """

    #: The call in which this thread, or task, runs.
    current: ContextVar[Scope] = ContextVar("the handler's call that may mark in a transaction of its own")

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        #: What the store has made of `mark`: a transaction, or an error, or neither.
        self.marked: Transaction | None = None
        self.error: Exception | None = None


def check_transactions(transactions: object, own: object, *, is_async: bool, name: str) -> None:
    """Check what a handler's transactions come from.

    Args:
        transactions: the setting.
        own: the app's store.
        is_async: the handler is an `async def`.
        name: the handler's.

    Raises:
        SettingError: it opens no transactions, or none for such a handler; or it is not of the app's own store.
    """
    given = type(transactions).__name__
    if not all(hasattr(transactions, name) for name in ("beginning", "runs", "abandon", "store")):
        raise SettingError(
            "transaction",
            given,
            "give the store in the database of your effects, such as SqlPositions, which is the app's claims= too",
        )
    if getattr(transactions, "store", None) is not own:
        raise SettingError(
            "transaction",
            given,
            "give the very store that the app has: Holdfast(source, claims=store), and transaction=store",
        )
    if is_async and not getattr(transactions, "serves_async", False):
        raise SettingError(
            "transaction", given, f"{name} is an async def, and this has no async driver: write it as a plain function"
        )
    if not is_async and not getattr(transactions, "serves_plain", True):
        raise SettingError(
            "transaction", given, f"{name} is a plain function, and this has an async driver: write it as an async def"
        )
