"""Transactions of handlers: effect and mark at once, in a row that no other open transaction has.

The first statement is an UPDATE of that row: it fences (another owner: no row is changed), it marks, and its lock says
to the next owner's acquire that the handler works. So a transaction with effects under an ownership either ends before
the acquire, which then reads its mark, or changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.transactions import Conflict
from holdfast.errors import FormerOwner, HandlerHung, StoreLockedOut, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.adapters.sql.books import Books
    from holdfast.adapters.sql.changes import Change
    from holdfast.adapters.sql.database import Opened
    from holdfast.adapters.sql.held import Content, Held
    from holdfast.adapters.sql.rows import Position

#: Each round that does not end is one in which the row was changed in between.
_ROUNDS = 10
_NOTHING = Conflict()


class Owned(NamedTuple):
    """An ownership of this process."""

    books: Books
    name: str
    held: Held


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
        """Implements `Transaction.commit`."""
        self._end()
        try:
            self._opened.commit()
        except StoreUnavailable as error:
            self._find_out(error)
        except Exception:
            self._over(cut=False)
            raise
        except BaseException:  # Ctrl-C, while COMMIT was waited for
            self._opened.close()
            self._note_unsure()
            raise
        else:
            self._over(cut=False, done=True)

    def failed(self, error: BaseException) -> BaseException:
        """Implements `Transaction.failed`."""
        with self._lock:
            self.runs = False
        cut = self._opened.is_cut
        due_to = self._opened.failed(error)
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

    # ---- inside
    def _end(self) -> None:
        """Raises HandlerHung: it was abandoned."""
        with self._lock:
            self.runs = False
        if self._abandoned:
            self._opened.failed(_hung(None))
            self._over(cut=True)
            raise _hung(None)

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
            held.unsure[self._change.stripe] = self._offsets

    def _find_out(self, error: StoreUnavailable) -> None:
        """COMMIT had no answer. Raises StoreUnavailable: it is not committed, or nobody knows yet."""
        books, _, held = self._owned
        self._note_unsure()
        try:
            resolve(self._owned, [self._change.stripe])
        except StoreUnavailable:
            books.unheard = True
            raise
        except StoreRefused as refused:
            books.unheard = True
            raise StoreLockedOut(str(refused)) from refused
        with books.lock:
            if all(held.has(offset) for offset in self._offsets):
                return
        raise self._slept(error, error) from error

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


def begin(books: Books, name: str, epoch: int, offsets: Sequence[int]) -> SqlTransaction | None:
    """Implements `Transactions.transaction`."""
    try:
        for _ in range(_ROUNDS):
            with books.lock:
                held = books.held.get(name)
                if held is None or held.epoch != epoch:
                    raise FormerOwner(f"{name}: this process owns it no more, and has left the record to its owner")
                unsure = held.unsure_of(offsets)
                todo = [offset for offset in offsets if not held.has(offset)]
                stripe = held.take_stripe() if todo and not unsure else 0
            if unsure:
                resolve(Owned(books, name, held), unsure)
            elif not todo:
                return None
            elif (made := _opened(Owned(books, name, held), stripe, todo, offsets)) is not None:
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
    _learn(owned, found, known, stripes)


def _opened(owned: Owned, stripe: int, todo: Sequence[int], asked: Sequence[int]) -> SqlTransaction | None:
    """Open one in that stripe. None: its row was another one than is known here, and is known now."""
    books, name, held = owned
    statements, database, begun = books.statements, books.database, False
    try:
        if stripe not in held.rows:
            adding = statements.adding(name, held.owner, stripe)
            database.run(lambda tx: tx.change_each(adding.text, [adding.parameters]), apart=True)
        with books.lock:
            held.made(stripe)
            known = dict(held.rows)
            change = held.with_open(stripe, todo)
        opened = database.open(statements.marking(name, held.owner, change))
        if opened.changed:
            made = SqlTransaction(owned, change, opened, asked)
            begun = True
            if not books.opened(made, name, held.epoch, todo):
                raise made.failed(_hung(None))
            return made
        opened.failed(_NOTHING)
        found = database.run(lambda tx: statements.read(tx, [name]), apart=True).get(name)
        _learn(owned, found, known, ())
    finally:
        if not begun:
            with books.lock:
                held.give_stripe(stripe)
    return None


def _learn(owned: Owned, found: Position | None, known: dict[int, Content], stripes: Sequence[int]) -> None:
    books, name, held = owned
    with books.lock:
        if not books.refused(name, held, found, known):
            raise FormerOwner(f"{name}: another process has taken it over, or the database has lost this ownership")
        for stripe in stripes:
            held.give_stripe(stripe)


def _hung(error: BaseException | None) -> HandlerHung:
    found = HandlerHung("the handler was given up, so that its transaction is undone")
    found.__cause__ = error
    return found
