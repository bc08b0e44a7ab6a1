"""SqlPositions under test: on real databases, with answers that are lost; and the specification that it is held
against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.adapters.sql import SqlPositions
from holdfast.dedup.claims import Acquired, ClaimSession
from holdfast.dedup.memory import MemoryClaims
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.adapters.sql.database import Database, Transaction
    from holdfast.dedup.claims import Drop, LetGo, Mark, Verdict, Wait
    from holdfast.dedup.memory_session import MemorySession
    from tests.harness.servers.postgres import PostgresServer

T = TypeVar("T")


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


class Unheard:
    """A database whose next answer is lost, before or after what was asked is done."""

    def __init__(self, database: Database) -> None:
        self._of = database
        self.lose = ""  #: "before", "after", or ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def run(self, work: Callable[[Transaction], T], *, lock_s: float | None = None) -> T:
        return self._asked(lambda: self._of.run(work, lock_s=lock_s))

    def change_all(self, statement: str, rows: Sequence[Sequence[object]]) -> list[int]:
        return self._asked(lambda: self._of.change_all(statement, rows))

    def _asked(self, ask: Callable[[], T]) -> T:
        lose, self.lose = self.lose, ""
        reply = ask() if lose != "before" else None
        if lose or reply is None:
            raise StoreUnavailable("the answer was lost by the test")
        return reply


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

    def forget(self) -> None:
        """Make the tables, and empty them."""
        store = self.store()
        store.connect()
        store._books.database.change_all("DELETE FROM holdfast_position", [()])

    def close(self) -> None:
        for each in self.stores:
            each.close()
