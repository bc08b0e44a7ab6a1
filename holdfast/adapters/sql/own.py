"""Marks in transactions of the handlers' own: `store.mark(connection, call)`.

The store opens and commits nothing here. So when the handler has ended, the row says whether its transaction was
committed: what the handler has returned, or raised, does not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.drivers import driver_of
from holdfast.adapters.sql.sqlite import SqliteTransaction
from holdfast.adapters.sql.transactions import SqlTransaction, begin, learn, position_of
from holdfast.dedup.steps import Blocking, run, run_async
from holdfast.dedup.transactions import Conflict, Scope
from holdfast.errors import (
    AlreadyDone,
    FormerOwner,
    StateError,
    StoreLockedOut,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.sql.books import Books
    from holdfast.adapters.sql.changes import Change, Statement
    from holdfast.adapters.sql.database import Opened
    from holdfast.adapters.sql.drivers import Driver, Marked
    from holdfast.adapters.sql.rows import Position
    from holdfast.adapters.sql.transactions import Owned
    from holdfast.dedup.steps import Steps
    from holdfast.plugin.handling.handler_call import HandlerCall
    from holdfast.records import Record

log = logging.getLogger("holdfast.sql")

#: How long a row is waited for whose transaction is open yet, or is being committed.
_LOCK_S = 0.1
_ROLLED_BACK = (
    "the handler has returned, and the transaction in which it has marked its records was not committed: commit it "
    "before the return, or raise"
)
_STILL_OPEN = (
    "the handler has returned, and the transaction in which it has marked its records is open: commit it before the "
    "return"
)
_NOT_ITS_CALL = (
    "call store.mark in the handler itself, in its thread or task, with the HandlerCall that the handler has got: "
    "`def handle(record, *, call: HandlerCall)`"
)
_TWICE = "this call of the handler has marked its records before: mark them once, in one transaction"
_ELSEWHERE = (
    "the connection does not see the row that the store does: give one to the store's own database and schema; above "
    "READ COMMITTED, mark before all other statements of the transaction"
)


class OwnTransaction(SqlTransaction):
    """Implements `Transaction` for one that the handler begins and commits itself."""

    _opened: OwnOpened  # type: ignore[assignment]  # the handler does the rest

    def is_in(self, connection: object, number: object) -> bool:
        """Whether it is that transaction of that connection."""
        return self._opened.connection.connection is connection and self._opened.number == number

    def committing(self) -> Steps[None]:
        """Implements `Transaction.committing`: the handler has returned."""
        if not (yield from self._looking()):
            raise StateError(_STILL_OPEN if self._opened.connection.is_open else _ROLLED_BACK)

    def failing(self, error: BaseException) -> Steps[BaseException | None]:
        """Implements `Transaction.failing`: the handler has raised."""
        try:
            committed = yield from self._looking()
        except (StoreUnavailable, FormerOwner) as found:
            return found
        driver: Driver = self._opened.connection
        if committed:
            log.error("a handler has raised after its transaction was committed: its records are done", exc_info=error)
            return None
        if driver.is_cut and not self._abandoned:  # as of a transaction of the store's: the database is away
            return self._slept(StoreUnavailable(f"the connection of a handler's transaction broke: {error}"), error)
        return Conflict() if driver.is_conflict(getattr(error, "orig", None) or error) else error

    def _looking(self) -> Steps[bool]:
        """Ask the row whether the transaction was committed. Raises StoreUnavailable: nobody knows yet; FormerOwner."""
        with self._lock:
            self.runs = False
        self._note_unsure()
        try:
            open_ = yield Blocking(self._look)
        except StoreRefused as refused:
            self._owned.books.unheard = True
            raise StoreLockedOut(str(refused)) from refused
        if open_ and not self._opened.connection.is_open:
            self._owned.books.unheard = True
            raise StoreUnavailable("a handler's COMMIT is under way: nobody knows yet whether it is made")
        return self._is_done

    def _look(self) -> bool:
        """Read the row. Returns whether a transaction holds it. SQLite's file others hold too."""
        books, name, held = self._owned
        alone = books.database.kind == "sqlite" and not self._opened.connection.is_open
        stripes, statements = [self._change.stripe], books.statements
        with books.lock:
            known = {stripe: held.rows[stripe] for stripe in stripes}
        try:
            found = books.database.run(
                lambda tx: statements.read_stripes(tx, name, stripes), apart=True, lock_s=None if alone else _LOCK_S
            )
        except Busy:
            return True
        learn(self._owned, found, known, stripes)
        return False


class OwnOpened:
    """Implements `Opened` as far as the handler leaves it to the store."""

    def __init__(self, driver: Driver, marked: Marked) -> None:
        self.connection: Any = driver
        self.changed, self.number = marked

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Opened.failed`: the handler's error undoes it."""
        return error

    def cut(self) -> None:
        """Implements `Opened.cut`."""
        self.connection.cut()

    @property
    def is_cut(self) -> bool:
        """Implements `Opened.is_cut`."""
        return bool(self.connection.is_cut)


class Marking:
    """Implements `Way`: on a connection of the user's."""

    def __init__(self, books: Books, driver: Driver) -> None:
        self._books, self._driver = books, driver
        self.in_first_row = driver.kind == "sqlite"

    def open(self, first: Statement) -> Any:  # noqa: ANN401 - or what is awaited for it
        """Implements `Way.open`."""
        return self._open_async(first) if self._driver.is_async else self._opened(self._asked(first))

    def made(self, owned: Owned, change: Change, opened: Opened, asked: Sequence[int]) -> SqlTransaction:
        """Implements `Way.made`."""
        return OwnTransaction(owned, change, opened, asked)

    def looking(self, owned: Owned, opened: Opened) -> Steps[Position | None]:  # noqa: ARG002 - it is not ours to undo
        """Implements `Way.looking`. SQLite's file is the transaction's: nobody else can read in one."""
        books, name, _ = owned
        if not self.in_first_row:
            found: Position | None = yield Blocking(lambda: position_of(owned))
            return found
        tx = SqliteTransaction(self._driver.connection, books.runtime)
        return books.statements.read(tx, [name]).get(name)

    def unchanged(self) -> None:
        """Implements `Way.unchanged`."""
        raise Conflict from StateError(_ELSEWHERE)

    async def _open_async(self, first: Statement) -> OwnOpened:
        return self._opened(await self._asked(first))

    def _opened(self, marked: Marked) -> OwnOpened:
        """Raises StateError: another call's records are marked in this transaction."""
        if marked.changed and marked.number is not None:
            self._books.check_alone(self._driver.connection, marked.number)
        return OwnOpened(self._driver, marked)

    def _asked(self, first: Statement) -> Any:  # noqa: ANN401 - as above
        return self._driver.mark(first, self._books.idle_s)


def mark(books: Books, connection: object, call: HandlerCall) -> Sequence[Record]:
    """Implements `SqlPositions.mark`."""
    scope, driver = _checked(books, connection, call)
    if driver.is_async:
        raise StateError("this connection is awaited: await store.mark_async(connection, call)")
    return run(_marking(books, driver, scope))


async def mark_async(books: Books, connection: object, call: HandlerCall) -> Sequence[Record]:
    """Implements `SqlPositions.mark_async`."""
    given: Any = connection
    if callable(getattr(given, "get_bind", None)):  # an AsyncSession
        given = await given.connection()
    scope, driver = _checked(books, given, call)
    return await run_async(_marking(books, driver, scope))


def _checked(books: Books, connection: object, call: HandlerCall) -> tuple[Scope, Driver]:
    scope = Scope.current.get(None)
    records: Sequence[Record] = getattr(call, "records", ())
    if scope is None or len(records) != len(scope.records) or records[0] is not scope.records[0]:
        raise StateError(_NOT_ITS_CALL)
    if scope.marked is not None:
        raise StateError(_TWICE)
    driver = driver_of(connection)
    if driver.kind != books.database.kind:
        raise StateError(f"the connection is one to {driver.kind}, and the store is {books.database.where}")
    if not books.database.is_of(driver.connection):
        raise StateError(_ELSEWHERE)
    return scope, driver


def _marking(books: Books, driver: Driver, scope: Scope) -> Steps[Sequence[Record]]:
    records, owner = scope.records, _owner(scope.records)
    offsets = [record.offset for record in records]
    way = Marking(books, driver)
    try:
        made = yield from begin(books, owner.name, owner.store_epoch, offsets, way)
        if made is None:
            raise AlreadyDone(  # noqa: TRY301 - as what `begin` raises
                f"{owner.name}: {'this record is' if len(offsets) == 1 else 'these records are'} done"
            )
    except (StoreUnavailable, FormerOwner, AlreadyDone, Conflict) as error:
        scope.error = error
        raise
    except Exception as error:
        if driver.is_conflict(error):
            scope.error = Conflict()
            raise
        if driver.is_elsewhere(error):
            raise StateError(_ELSEWHERE) from error
        if driver.is_cut:
            scope.error = StoreUnavailable(f"the connection broke while it was marked on: {error}")
            raise scope.error from error
        raise
    scope.marked = made
    return [record for record in records if record.offset not in made.done]


def _owner(records: Sequence[Record]) -> Any:  # noqa: ANN401 - the ownership under which they came
    return records[0].fence
