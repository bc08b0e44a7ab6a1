"""SqlPositions under test: on real databases, with answers that are lost; and the specification that it is held
against."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.adapters.sql import SqlPositions
from holdfast.adapters.sql.changes import Statement
from holdfast.dedup.claims import NEVER, Acquired, ClaimSession
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.offset_set import OffsetSet
from holdfast.errors import StoreUnavailable
from tests.harness.servers import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.adapters.sql.database import Database, Opened, Transaction
    from holdfast.dedup.claims import Drop, LetGo, Mark, Verdict, Wait
    from holdfast.dedup.memory_session import MemorySession
    from tests.harness.servers.postgres import PostgresServer

T = TypeVar("T")


def settled(reply: Acquired) -> Acquired:
    """What two stores must say alike: the watermark is the first offset that is not done."""
    done = OffsetSet(reply.done)
    watermark = done.first_missing(reply.watermark)
    done.remove_below(watermark)
    return reply._replace(watermark=watermark, done=done, born_ms=0, since=NEVER)


class Session(Protocol):
    """As much of a session as a store of positions is about."""

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]: ...

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]: ...

    def drop(self, drops: Sequence[Drop]) -> list[bool]: ...

    def let_go(self, partitions: Sequence[LetGo]) -> None: ...


class ModelSession:
    """A process without a session at the store: each acquire is a session of MemoryClaims, which is the row's owner,
    and takes the position from whoever has it."""

    def __init__(self, claims: MemoryClaims) -> None:
        self._claims = claims
        self._owned: dict[tuple[str, int], MemorySession] = {}

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        replies: list[Acquired | Wait | Verdict] = []
        for name in partitions:
            owner = self._claims.state.position(name).owner
            if owner is not None:
                self._claims.expire(owner)
            session = self._claims.begin(3600.0)
            [reply] = session.acquire([name])
            assert isinstance(reply, Acquired)
            self._owned[name, reply.epoch] = session
            replies.append(reply)
        return replies

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        return [self._of(mark.partition, mark.epoch).mark([mark])[0] for mark in marks]

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        return [self._of(drop.partition, drop.epoch).drop([drop])[0] for drop in drops]

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """What is in hand may be marked until the next owner comes: nothing changes."""

    def _of(self, name: str, epoch: int) -> MemorySession:
        session = self._owned.get((name, epoch))
        if session is None:
            session = self._claims.begin(3600.0)
            self._claims.expire(session.id)
        return session


class Model:
    """The executable specification."""

    def __init__(self) -> None:
        self._claims = MemoryClaims(renewals=False)

    def begin(self) -> Session:
        return ModelSession(self._claims)

    def close(self) -> None:
        self._claims.close()


class UnheardCommit:
    """A transaction whose COMMIT is not answered, and is made or not."""

    def __init__(self, opened: Opened, lose: str) -> None:
        self._of, self._lose = opened, lose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def commit(self) -> None:
        if self._lose == "after":
            self._of.commit()
        else:
            self._of.close()
        raise StoreUnavailable("the answer to COMMIT was lost by the test")


class Unheard:
    """A database whose next answer is lost, before or after what was asked is done."""

    def __init__(self, database: Database) -> None:
        self._of = database
        self.lose = ""  #: "before", "after", or ""
        self.lose_commit = ""  #: of the next handler's transaction that begins
        self.deaf = False  #: all questions but those of transactions that are open get no answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None, apart: bool = False) -> T:
        return self._asked(lambda: self._of.run(work, lock_s=lock_s, apart=apart))

    def change_all(self, changes: Sequence[Statement]) -> list[int]:
        return self._asked(lambda: self._of.change_all(changes))

    def open(self, first: Statement) -> Any:
        lose, self.lose_commit = self.lose_commit, ""
        opened = self._asked(lambda: self._of.open(first))
        return UnheardCommit(opened, lose) if lose else opened

    def _asked(self, ask: Callable[[], T]) -> T:
        if self.deaf:
            raise StoreUnavailable("the database is away for the test")
        lose, self.lose = self.lose, ""
        if lose != "before":
            reply = ask()
            if not lose:
                return reply
        raise StoreUnavailable("the answer was lost by the test")


class Databases:
    """Makes stores, each process with one of its own, at one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stores: list[SqlPositions] = []

    @classmethod
    def of(cls, kind: str, folder: Path, postgres: Callable[[], PostgresServer]) -> Databases:
        return cls(f"sqlite:///{folder / 'positions.db'}" if kind == "sqlite" else postgres().database())

    def store(self, **settings: Any) -> SqlPositions:
        made = SqlPositions.from_url(self.url, **{"create": True, "timeout_s": 30.0, **settings})
        self.stores.append(made)
        return made

    def begin(self, *, lease_s: float = 0.0) -> ClaimSession:
        """In a process of its own. Without a lease it takes back at once what was taken from it."""
        return self.store().begin(lease_s)

    def losing(self) -> tuple[ClaimSession, Unheard]:
        """The same, and the hand that loses its answers."""
        store = self.store()
        store.connect()
        books = store._books
        books.database = unheard = Unheard(books.database)
        return store.begin(0.0), unheard

    def ask(self, statement: str) -> list[Any]:
        """From the side."""
        if not self.url.startswith("sqlite"):
            return postgres.ask(self.url, statement)
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    def forget(self) -> None:
        """Make the tables, and empty them."""
        store = self.store()
        store.connect()
        store._books.database.change_all([Statement("DELETE FROM holdfast_position", ())])

    def close(self) -> None:
        for each in self.stores:
            each.close()
