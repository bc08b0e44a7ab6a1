"""Books: what one process knows of its ownerships, for its sessions and for its handlers' transactions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.sql.held import Takers, lost_by
from holdfast.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from holdfast.adapters.sql.database import Database
    from holdfast.adapters.sql.held import Content, Held
    from holdfast.adapters.sql.rows import Position, Statements
    from holdfast.runtime import Runtime

log = logging.getLogger("holdfast.sql")


class Abandonable(Protocol):
    """A transaction of a handler that is open."""

    @property
    def runs(self) -> bool:
        """Whether its handler has not ended."""
        ...

    def is_of(self, name: str, offsets: Collection[int]) -> bool:
        """Whether it marks one of these."""
        ...

    def abandon(self) -> bool:
        """Let it commit no more. False = it is being committed."""
        ...

    def is_in(self, connection: object, number: object) -> bool:
        """Whether it is that transaction of a connection of the user's."""
        ...


class Books:
    """One process' knowledge of its ownerships. Its sessions share it: a mark may come after its session.

    Args:
        database: where the rows are.
        statements: on them.
        runtime: the clock, locks and random names.
        idle_s: after so long the server ends a handler's transaction in which nothing happens.
    """

    def __init__(self, database: Database, statements: Statements, runtime: Runtime, idle_s: float) -> None:
        self.database, self.statements, self.runtime, self.idle_s = database, statements, runtime, idle_s
        #: Held for a whole call of a session: these are asked one after the other.
        self.asking = runtime.rlock()
        #: Guards what is known here. Handlers' transactions need it at their begin and end, so nothing is waited for
        #: under it, but by a reset's `drop`.
        self.lock = runtime.rlock()
        self.held: dict[str, Held] = {}
        #: The highest epoch of each position here. A database that has lost acquires must not give one twice.
        self.epochs: dict[str, int] = {}
        #: Owners of the last acquires without an answer: they may be in rows.
        self.unanswered: dict[UUID, None] = {}
        #: Of positions that were let go here: offset -> the epoch under which its handler runs.
        self.in_hand: dict[str, dict[int, int]] = {}
        self.takers = Takers()
        self.own_process = True
        #: A handler's transaction got no answer: what is known here is no answer until the database gives one again.
        self.unheard = False
        #: The handlers' transactions that are open, and records whose handlers were given up before theirs was: name,
        #: epoch, offset.
        self._open: set[Abandonable] = set()
        self._abandoned: set[tuple[str, int, int]] = set()
        #: Guards these two, and is innermost: who has a transaction open may not wait for `lock`, whose holder may wait
        #: for the rows (of SQLite, for the file) that the transaction has.
        self._open_lock = runtime.lock()

    def forked(self) -> None:
        """In a child: the ownerships are the parent's."""
        self.asking, self.lock, self.own_process = self.runtime.rlock(), self.runtime.rlock(), False

    def hear(self) -> None:
        """Ask the database whether it opens transactions again, where it did not. Raises StoreUnavailable: it does
        not."""
        if self.unheard:
            self.database.run(lambda tx: tx.now_ms(), apart=True)
            self.unheard = False

    def opened(self, tx: Abandonable, name: str, epoch: int, offsets: Collection[int]) -> bool:
        """A handler's transaction has begun. False = its handler was given up before."""
        asked = {(name, epoch, offset) for offset in offsets}
        with self._open_lock:
            self._open.add(tx)
            given_up = not self._abandoned.isdisjoint(asked)
            self._abandoned -= asked
        return not given_up

    def ended(self, tx: Abandonable) -> None:
        """A transaction has ended, or its COMMIT was not answered."""
        with self._open_lock:
            self._open.discard(tx)

    def runs(self, name: str, offsets: Collection[int]) -> bool:
        """Implements `Transactions.runs`."""
        with self._open_lock:
            return any(each.runs and each.is_of(name, offsets) for each in self._open)

    def abandon(self, name: str, epoch: int, offsets: Collection[int]) -> bool:
        """Implements `Transactions.abandon`."""
        with self._open_lock:
            found = [each for each in self._open if each.is_of(name, offsets)]
            if not found:
                self._abandoned.update((name, epoch, offset) for offset in offsets)
        return False not in [each.abandon() for each in found]

    def check_alone(self, connection: object, number: object) -> None:
        """Raises StateError: another call's records are marked in that transaction of a connection of the user's."""
        with self._open_lock:
            found = any(each.is_in(connection, number) for each in self._open)
        if found:
            raise StateError(
                "another call's records are marked in this connection's transaction: give each thread, and each task, "
                "a connection of its own"
            )

    def refused(self, name: str, held: Held, position: Position | None, known: Mapping[int, Content]) -> bool:
        """A change of that ownership has changed nothing.

        Args:
            name: the position's.
            held: the ownership.
            position: as it is now; None = it is not there.
            known: the rows' content as it was acknowledged before the position was read.

        Returns: whether it is owned still, and may be changed again: an answer was lost.
        """
        first = position.first if position is not None else None
        ours = first is not None and first.owner == held.owner
        if position is not None and ours and not lost_by(known, position):
            held.learn(position)
            return True
        if self.held.get(name) is not held:
            return False  # another thread has seen it before
        if first is not None and first.owner in self.unanswered:
            return False  # an acquire of this process, which will say so
        if position is None or ours or position.first.epoch < held.epoch:
            self.went_back(name, held, position)
        else:
            self.takers.note(name, held.epoch, position.head, self.runtime.now())
        del self.held[name]
        return False

    def went_back(self, name: str, held: Held, position: Position | None) -> None:
        """Tell that the database has lost what it had acknowledged."""
        log.error(
            "%s has lost what it had acknowledged (a failover to a standby that was behind, an older backup): the "
            "position of %s is at epoch %s and version %s, and was at %d and %d. It is taken over anew, and what was "
            "lost runs again",
            self.database.where,
            name,
            position.first.epoch if position else None,
            position.head.version if position else None,
            held.epoch,
            sum(content.version for content in held.rows.values()),
        )
