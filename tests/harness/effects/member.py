"""A member of such a group, a process: `python -m tests.harness.effects.member <JSON of Told>`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg
import sqlalchemy
from sqlalchemy.orm import sessionmaker

from holdfast import BatchFailed, BatchOf, HandlerCall, Holdfast, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.sql import SqlPositions, postgres_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Record

Kind: TypeAlias = Literal["plain", "coroutine", "batch", "session", "own"]
KINDS: tuple[Kind, ...] = ("plain", "coroutine", "batch", "session", "own")
#: Where a member kills itself.
POINTS = ("in the handler", "before COMMIT", "after COMMIT")
_ADD = "INSERT INTO effects (key, n, member) VALUES (%s, %s, %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a member is told."""

    bootstrap: str
    database: str
    group: str
    source: str
    letters: str
    kind: Kind
    protocol: dict[str, Any] = field(default_factory=dict)
    #: The point at which it kills itself, and how often it has been there then.
    dies: tuple[str, int] | None = None
    #: Seconds that a handler may take.
    work_s: float = 0.01
    #: After so long the server ends a transaction in which nothing happens.
    idle_s: float = 3.0

    @property
    def as_json(self) -> str:
        """For its command line."""
        return json.dumps(asdict(self))


class Death:
    """Kills this process at its point."""

    def __init__(self, dies: tuple[str, int] | None) -> None:
        self._point, self._left = dies or ("", 0)
        if self._point.endswith("COMMIT"):
            answered, commit = postgres_link.answered, psycopg.Connection.commit
            execute = psycopg.AsyncConnection.execute

            def dying(connection: Any, text: str) -> Any:
                self.at("before COMMIT", text == "COMMIT")
                result = answered(connection, text)
                self.at("after COMMIT", text == "COMMIT")
                return result

            def of_sessions(connection: Any) -> None:
                self.at("before COMMIT")
                commit(connection)
                self.at("after COMMIT")

            async def of_coroutines(connection: Any, query: Any, *others: Any, **more: Any) -> Any:
                self.at("before COMMIT", query == b"COMMIT")
                result = await execute(connection, query, *others, **more)
                self.at("after COMMIT", query == b"COMMIT")
                return result

            vars(postgres_link)["answered"] = dying
            setattr(psycopg.Connection, "commit", of_sessions)  # noqa: B010 - mypy knows no other way
            setattr(psycopg.AsyncConnection, "execute", of_coroutines)  # noqa: B010 - as above

    def at(self, point: str, here: bool = True) -> None:
        """It is at that point."""
        if here and point == self._point:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Work:
    """What the handlers do: "never" becomes a dead letter, "once" fails first."""

    def __init__(self, told: Told) -> None:
        self._told, self._failed = told, set[tuple[int, int]]()
        self._death = Death(told.dies)

    def row(self, record: Record) -> tuple[str, int, int]:
        """The effect of a record."""
        value = json.loads(record.value or b"")
        return value["key"], value["n"], os.getpid()

    def judge(self, record: Record) -> None:
        """Raises ValueError, after the effect, where it is to fail."""
        self._death.at("in the handler")
        how, place = json.loads(record.value or b"")["how"], (record.partition.number, record.offset)
        if how == "never" or (how == "once" and place not in self._failed):
            self._failed.add(place)
            raise ValueError("not now")

    @property
    def pause_s(self) -> float:
        return random.uniform(0.0, self._told.work_s)


def app_of(told: Told) -> Holdfast:
    """The app."""
    conf = {"bootstrap.servers": told.bootstrap, "group.id": told.group, **told.protocol}
    store = SqlPositions.from_url(told.database, timeout_s=3.0, transaction_idle_s=told.idle_s, async_connections=5)
    app = Holdfast(
        KafkaSource(conf, assignment="keep"),
        claims=store,
        settings=Settings(workers=4, drain_timeout_s=2.0, ramp=None),
    )
    handler, transaction = _handlers(told, store)
    app.handler(
        told.source,
        name="write",
        batch=BatchOf(records=20, wait_s=0.02) if told.kind == "batch" else None,
        retry=Retry(attempts=2, wait_initial_s=0.01),
        dead_letter=told.letters,
        transaction=transaction,
    )(handler)
    return app


def _handlers(told: Told, store: SqlPositions) -> tuple[Callable[..., Any], Any]:
    work = Work(told)
    Session = sessionmaker(  # noqa: N806 - a class
        sqlalchemy.create_engine(
            told.database.replace("postgresql://", "postgresql+psycopg://"), pool_size=4, max_overflow=0
        )
    )

    def plain(record: Record, *, tx: Any) -> None:
        tx.execute(_ADD, work.row(record))
        time.sleep(work.pause_s)
        work.judge(record)

    async def coroutine(record: Record, *, tx: Any) -> None:
        await tx.execute(_ADD, work.row(record))
        await asyncio.sleep(work.pause_s)
        work.judge(record)

    def batch(records: list[Record], *, tx: Any) -> None:
        failures: dict[int, Exception] = {}
        for number, record in enumerate(records):
            tx.execute(_ADD, work.row(record))
            try:
                work.judge(record)
            except ValueError as error:
                failures[number] = error
        time.sleep(work.pause_s)
        if failures:
            raise BatchFailed(failures)

    def session(record: Record, *, tx: Any) -> None:
        tx.connection().exec_driver_sql(_ADD, work.row(record))
        time.sleep(work.pause_s)
        work.judge(record)

    def own(record: Record, *, call: HandlerCall) -> None:
        with Session.begin() as begun:
            store.mark(begun, call)
            begun.connection().exec_driver_sql(_ADD, work.row(record))
            time.sleep(work.pause_s)
            work.judge(record)

    kinds: dict[Kind, tuple[Callable[..., Any], Any]] = {
        "plain": (plain, store),
        "coroutine": (coroutine, store),
        "batch": (batch, store),
        "session": (session, store.sqlalchemy(Session)),
        "own": (own, None),
    }
    return kinds[told.kind]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s")
    app_of(Told(**json.loads(sys.argv[1]))).run()
