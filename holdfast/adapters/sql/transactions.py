"""Transactions of handlers: effect and mark at once, in a row that no other open transaction has.

The first statement is an UPDATE of that row: it fences (another owner: no row is changed), it marks, and its lock says
to the next owner's acquire that the handler works. So a transaction with effects under an ownership either ends before
the acquire, which then reads its mark, or changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.dedup.steps import Blocking, run, run_async
from holdfast.dedup.transactions import Conflict
from holdfast.errors import FormerOwner, HandlerHung, StoreLockedOut, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from holdfast.adapters.sql.books import Books
    from holdfast.adapters.sql.changes import Change, Statement
    from holdfast.adapters.sql.database import Opened
    from holdfast.adapters.sql.held import Content, Held
    from holdfast.adapters.sql.rows import Position
    from holdfast.dedup.steps import Steps

#: Each round that does not end is one in which the row was changed in between.
_ROUNDS = 10
_NOTHING = Conflict()


class Owned(NamedTuple):
    """An ownership of this process."""

    books: Books
    name: str
    held: Held


class Way(Protocol):
    """How a handler's transaction is opened."""

    #: It marks in the first row: its database has one transaction at a time, and makes no further row meanwhile.
    in_first_row: bool

    def open(self, first: Statement) -> Opened | Awaitable[Opened]:
        """Open one with that statement. Raises StoreUnavailable, StoreRefused."""
        ...

    def made(self, owned: Owned, change: Change, opened: Opened, asked: Sequence[int]) -> SqlTransaction:
        """Make what `begin` returns of an open one."""
        ...

    def looking(self, owned: Owned, opened: Opened) -> Steps[Position | None]:
        """The statement has changed no row: undo it, and read the position."""
        ...

    def unchanged(self) -> None:
        """That position is as it was known."""
        ...


class SqlTransaction:
    """Implements `Transaction`."""

    def __init__(self, owned: Owned, change: Change, opened: Opened, asked: Sequence[int]) -> None:
        self._owned, self._change, self._opened = owned, change, opened
        self._offsets = frozenset(offset for each in change.offsets for offset in each)
        self.done = frozenset(asked) - self._offsets
        self.connection: Any = opened.connection
        self._began, self._lock = owned.books.runtime.now(), owned.books.runtime.lock()
        #: Whether it may be abandoned, and whether it was. Under its lock.
        self.runs, self._abandoned = True, False

    def is_of(self, name: str, offsets: Collection[int]) -> bool:
        """Whether it marks one of these."""
        return self._owned.name == name and not self._offsets.isdisjoint(offsets)

    def commit(self) -> None:
        """Commit, in this thread: see `committing`."""
        run(self.committing())

    def failed(self, error: BaseException) -> BaseException | None:
        """Undo it, in this thread: see `failing`."""
        return run(self.failing(error))

    def claiming(self, keys: Sequence[tuple[str, str]]) -> Steps[Collection[tuple[str, str]]]:
        """Implements `Transaction.claiming`."""
        books = self._owned.books
        found = yield lambda: self._opened.claim(books.statements.claiming(keys))
        return {(scope, key) for scope, key in found}

    def committing(self) -> Steps[None]:
        """Implements `Transaction.committing`."""
        with self._lock:
            self.runs = False
        if self._abandoned:
            yield lambda: self._opened.failed(_hung(None))
            self._over(cut=True)
            raise _hung(None)
        try:
            yield self._opened.commit
        except StoreUnavailable as error:
            yield from self._finding_out(error)
        except Exception:
            self._over(cut=False)
            raise
        except BaseException:  # Ctrl-C, or a cancelled task, while COMMIT was waited for
            self._opened.close()
            self._note_unsure()
            raise
        else:
            self._over(cut=False, done=True)

    def failing(self, error: BaseException) -> Steps[BaseException | None]:
        """Implements `Transaction.failing`."""
        with self._lock:
            self.runs = False
        cut = self._opened.is_cut
        due_to = error
        try:
            due_to = yield lambda: self._opened.failed(error)
        finally:
            self._over(cut=cut)
        if self._abandoned:
            return _hung(error)
        return self._slept(due_to, error) if isinstance(due_to, StoreUnavailable) else due_to

    def abandon(self) -> bool:
        """Let it commit no more. False = it is being committed."""
        with self._lock:
            if not self.runs:
                return False
            self._abandoned = True
            self._opened.cut()
            return True

    def is_in(self, connection: object, number: object) -> bool:  # noqa: ARG002 - it is on one of the store's
        """Whether it is that transaction of a connection of the user's."""
        return False

    # ---- inside
    def _over(self, *, cut: bool, done: bool = False) -> None:
        books, _, held = self._owned
        books.ended(self)
        with books.lock:
            if done:
                held.marked(self._change)
            held.give_stripe(self._change.stripe, cut=cut)

    def _note_unsure(self) -> None:
        books, _, held = self._owned
        books.ended(self)
        with books.lock:
            stripe = self._change.stripe
            held.unsure[stripe] = held.unsure.get(stripe, frozenset()) | self._offsets

    @property
    def _is_done(self) -> bool:
        books, _, held = self._owned
        with books.lock:
            return all(held.has(offset) for offset in self._offsets)

    def _finding_out(self, error: StoreUnavailable) -> Steps[None]:
        """COMMIT had no answer. Raises StoreUnavailable: it is not committed, or nobody knows yet."""
        self._note_unsure()
        yield from self._asking([self._change.stripe])
        if not self._is_done:
            raise self._slept(error, error) from error

    def _asking(self, stripes: Sequence[int]) -> Steps[None]:
        """Read rows whose COMMIT had no answer. Raises StoreUnavailable, FormerOwner."""
        books = self._owned.books
        try:
            yield Blocking(lambda: resolve(self._owned, stripes))
        except StoreUnavailable:
            books.unheard = True
            raise
        except StoreRefused as refused:
            books.unheard = True
            raise StoreLockedOut(str(refused)) from refused

    def _slept(self, due_to: StoreUnavailable, error: BaseException) -> BaseException:
        """The connection broke: by the server, if the handler let it idle for too long."""
        books = self._owned.books
        took_s, idle_s = books.runtime.now() - self._began, books.idle_s
        if took_s < idle_s:
            books.unheard = True
            return due_to
        found = TimeoutError(
            f"the transaction's connection broke after {took_s:.0f} s: the server ends one in which nothing happens "
            f"for {idle_s:g} s, since a frozen process would keep the partition. Do what is slow in a handler without "
            "transaction=, or raise the store's transaction_idle_s"
        )
        found.__cause__ = error
        return found


class AsyncSqlTransaction(SqlTransaction):
    """Implements `Transaction` for a coroutine."""

    async def commit_async(self) -> None:
        """Commit, in this task: see `committing`."""
        await run_async(self.committing())

    async def failed_async(self, error: BaseException) -> BaseException | None:
        """Undo it, in this task: see `failing`."""
        return await run_async(self.failing(error))


class Opening:
    """Implements `Way`: on a connection of the store's, or one that is made for each transaction."""

    in_first_row = False

    def __init__(self, open_: Callable[[Statement], Opened | Awaitable[Opened]], *, is_async: bool = False) -> None:
        self.open = open_
        self._kind = AsyncSqlTransaction if is_async else SqlTransaction

    def made(self, owned: Owned, change: Change, opened: Opened, asked: Sequence[int]) -> SqlTransaction:
        """Implements `Way.made`."""
        return self._kind(owned, change, opened, asked)

    def looking(self, owned: Owned, opened: Opened) -> Steps[Position | None]:
        """Implements `Way.looking`."""
        yield lambda: opened.failed(_NOTHING)
        found: Position | None = yield Blocking(lambda: position_of(owned))
        return found

    def unchanged(self) -> None:
        """Implements `Way.unchanged`: it is asked again."""


def begin(books: Books, name: str, epoch: int, offsets: Sequence[int], way: Way) -> Steps[SqlTransaction | None]:
    """Implements `Transactions.beginning`."""
    try:
        for _ in range(_ROUNDS):
            with books.lock:
                held = books.held.get(name)
                if held is None or held.epoch != epoch:
                    raise FormerOwner(f"{name}: this process owns it no more, and has left the record to its owner")
                unsure = held.unsure_of(offsets)
                todo = [offset for offset in offsets if not held.has(offset)]
                stripe = held.take_stripe() if todo and not (unsure or way.in_first_row) else 0
            owned = Owned(books, name, held)
            if unsure:
                yield Blocking(lambda: resolve(owned, unsure))  # noqa: B023 - it is called at once
            elif not todo:
                return None
            elif (made := (yield from _opened(owned, stripe, todo, offsets, way))) is not None:
                return made
    except StoreUnavailable:
        books.unheard = True
        raise
    except StoreRefused as error:  # it has let this process in before
        books.unheard = True
        raise StoreLockedOut(str(error)) from error
    raise StoreUnavailable(f"{books.database.where}: rows change while a transaction begins: ask again")


def resolve(owned: Owned, stripes: Sequence[int]) -> None:
    """Read rows whose COMMIT had no answer. Its transaction may run yet: the rows are waited for.

    Raises:
        StoreUnavailable: nobody knows yet.
        FormerOwner: another process has the partition.
    """
    books, name, held = owned
    with books.lock:
        known = {stripe: held.rows[stripe] for stripe in stripes}
    statements, database = books.statements, books.database
    found = database.run(lambda tx: statements.read_stripes(tx, name, stripes), apart=True)
    learn(owned, found, known, stripes)


def _opened(
    owned: Owned, stripe: int, todo: Sequence[int], asked: Sequence[int], way: Way
) -> Steps[SqlTransaction | None]:
    """Open one in that stripe. None: its row was another one than is known here, and is known now."""
    books, name, held = owned
    statements, database, begun = books.statements, books.database, False
    try:
        if stripe not in held.rows:
            adding = statements.adding(name, held.owner, stripe)
            yield Blocking(
                lambda: database.run(lambda tx: tx.change_each(adding.text, [adding.parameters]), apart=True)
            )
        with books.lock:
            held.made(stripe)
            known = dict(held.rows)
            change = held.with_open(stripe, todo)
        opened: Opened = yield lambda: way.open(statements.marking(name, held.owner, change))
        if opened.changed:
            made = way.made(owned, change, opened, asked)
            begun = True
            if not books.opened(made, name, held.epoch, todo):
                raise (yield from made.failing(_hung(None))) or _hung(None)
            return made
        found = yield from way.looking(owned, opened)
        learn(owned, found, known, ())
        if found is not None and {row.stripe: row.version for row in found.rows} == _versions(known):
            way.unchanged()
    finally:
        if not begun:
            with books.lock:
                held.give_stripe(stripe)
    return None


def position_of(owned: Owned) -> Position | None:
    """Read it as it is now."""
    books, name, _ = owned
    return books.database.run(lambda tx: books.statements.read(tx, [name]), apart=True).get(name)


def learn(owned: Owned, found: Position | None, known: Mapping[int, Content], stripes: Sequence[int]) -> None:
    """Take over what was read. Raises FormerOwner."""
    books, name, held = owned
    with books.lock:
        if not books.refused(name, held, found, known):
            raise FormerOwner(f"{name}: another process has taken it over, or the database has lost this ownership")
        for stripe in stripes:
            held.give_stripe(stripe)


def _versions(rows: Mapping[int, Content]) -> dict[int, int]:
    return {stripe: content.version for stripe, content in rows.items()}


def _hung(error: BaseException | None) -> HandlerHung:
    found = HandlerHung("the handler was given up, so that its transaction is undone")
    found.__cause__ = error
    return found
