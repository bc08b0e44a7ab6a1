"""The database of a simulated world does what `SqlPositions` relies on, and its judges see what must not be."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.dedup.claims import Acquired, Mark, Wait
from holdfast.errors import FormerOwner, StoreUnavailable
from tests.simulation.database.errors import Undone
from tests.simulation.database.server import DatabaseStore
from tests.simulation.drawing.draw import draw
from tests.simulation.played import run_all, world
from tests.simulation.playing.play import Play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.sql import SqlPositions
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler

NAME = "g/orders/1/0"


class Database:
    """A database, and processes that use it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.server = DatabaseStore(scheduler, timeout_s=1.0, idle_s=3.0)
        self._number = 0

    def process(self) -> Process:
        self._number += 1
        return self.scheduler.process(f"p{self._number}")

    def marked(self, *offsets: int) -> list[bool]:
        return [self.server.is_done(NAME, offset) for offset in offsets]


@pytest.fixture
def database() -> Iterator[Database]:
    with world() as scheduler:
        yield Database(scheduler)


def owner(store: SqlPositions) -> tuple[Any, Acquired]:
    """A new session, which owns the partition as soon as that is free."""
    session = store.begin()
    while True:
        [reply] = session.acquire([NAME])
        if isinstance(reply, Acquired):
            session.mark([Mark(NAME, reply.epoch, 0, (), False)])
            return session, reply
        assert reply is Wait.WAIT


def opened(store: SqlPositions) -> Any:
    """The transaction of record 0, of a new owner."""
    _, had = owner(store)
    tx = store.transaction(NAME, had.epoch, [0])
    assert tx is not None
    return tx


def test_effect_and_mark_are_there_when_they_are_committed_and_not_before(database: Database) -> None:
    process, seen = database.process(), []

    def main() -> None:
        store = database.server.claims(process)
        tx = opened(store)
        tx.connection.add([7])
        seen.append((set(database.server.effects), database.marked(0)))
        tx.commit()
        seen.append((set(database.server.effects), database.marked(0)))

    process.spawn(main, "main")
    run_all(database.scheduler)
    assert seen == [(set(), [False]), ({7}, [True])]


def test_a_takeover_waits_for_the_transaction_and_reads_what_it_has_marked(database: Database) -> None:
    first, second = database.process(), database.process()
    began, found = first.runtime.event(), []

    def works() -> None:
        store = database.server.claims(first)
        tx = opened(store)
        began.set()
        first.runtime.sleep(1.0)
        tx.connection.add([7])
        tx.commit()

    def takes_over() -> None:
        began.wait()
        _, had = owner(database.server.claims(second))
        found.append(had.watermark or 0 in had.done)

    first.spawn(works, "works")
    second.spawn(takes_over, "takes over")
    run_all(database.scheduler)
    assert found == [True]


def test_a_frozen_transaction_is_ended_and_its_owner_commits_no_more(database: Database) -> None:
    first, second = database.process(), database.process()
    began, told = first.runtime.event(), []

    def freezes() -> None:
        store = database.server.claims(first)
        tx = opened(store)
        tx.connection.add([7])
        began.set()
        first.stall(30.0)
        with pytest.raises((TimeoutError, StoreUnavailable, FormerOwner)):
            tx.commit()
        told.append("frozen")

    def takes_over() -> None:
        began.wait()
        _, had = owner(database.server.claims(second))
        told.append("taken over" if 0 not in had.done else "done")

    first.spawn(freezes, "freezes")
    second.spawn(takes_over, "takes over")
    run_all(database.scheduler)
    assert told == ["taken over", "frozen"]
    assert not database.server.effects


@pytest.mark.parametrize("heard", [True, False])
def test_a_commit_without_an_answer_is_what_the_row_says(database: Database, heard: bool) -> None:
    process, outcome = database.process(), []

    def main() -> None:
        store = database.server.claims(process)
        tx = opened(store)
        tx.connection.add([7])
        database.server.unanswered, database.server.not_even_heard = 1, not heard
        try:
            tx.commit()
            outcome.append("done")
        except StoreUnavailable:
            outcome.append("undone")

    process.spawn(main, "main")
    run_all(database.scheduler)
    assert outcome == ["done" if heard else "undone"]
    assert (set(database.server.effects), database.marked(0)) == ({7} if heard else set(), [heard])


def test_a_failover_takes_effects_and_marks_back_together(database: Database) -> None:
    process, told = database.process(), []

    def main() -> None:
        store = database.server.claims(process)
        _, had = owner(store)
        database.server.fail_over(1.0)
        tx = store.transaction(NAME, had.epoch, [0])
        assert tx is not None
        tx.connection.add([7])
        tx.commit()
        told.append(set(database.server.effects))
        process.runtime.sleep(2.0)
        told.append(set(database.server.effects))
        with pytest.raises(FormerOwner):
            store.transaction(NAME, had.epoch, [1])

    process.spawn(main, "main")
    run_all(database.scheduler)
    assert told == [{7}, set()]
    assert database.marked(0) == [False]


def test_a_conflict_undoes_the_transaction(database: Database) -> None:
    process, told = database.process(), []

    def main() -> None:
        store = database.server.claims(process)
        _, had = owner(store)
        database.server.conflicts = 100
        for _ in range(20):  # at the statement, or at COMMIT
            tx = store.transaction(NAME, had.epoch, [0])
            assert tx is not None
            try:
                tx.connection.add([7])
            except Undone as error:
                told.append(type(tx.failed(error)).__name__)
                continue
            with pytest.raises(Exception, match=r"^$") as raised:
                tx.commit()
            told.append(type(raised.value).__name__)

    process.spawn(main, "main")
    run_all(database.scheduler)
    assert told == ["Conflict"] * 20
    assert not database.server.effects


# ---- the judges
@contextmanager
def judged() -> Iterator[tuple[Any, Any]]:
    """The judges of a world that was played to its end, and a record of it whose effect is there."""
    stage = Play(
        draw(
            next(seed for seed in range(100) if draw(seed, with_database=True).store == "database"), with_database=True
        )
    )
    try:
        stage.play()
        judges: Any = stage.judges
        assert judges.found is None
        yield judges, stage.book.records[min(stage.store.effects)]  # type: ignore[attr-defined]
    finally:
        stage.scheduler.end()


def test_a_second_effect_is_seen() -> None:
    with judged() as (judges, record):
        judges.applied(record.number, "m9", 0.0)
        assert judges.found.rule == "TWICE"


def test_an_effect_beside_a_dead_letter_is_seen() -> None:
    with judged() as (judges, record):
        record.unit.handled, record.failures = False, 99
        judges.lettered("m8", "s", record, 3)
        judges.applied(record.number, "m9", 1.0)
        assert judges.found.rule == "BOTH"


def test_effects_that_a_failover_took_are_to_come_again() -> None:
    with judged() as (judges, record):
        database = judges._sight.store
        judges.store_forgets()
        database.rows, database.effects = {}, Counter()
        database._known.clear()
        judges.store_forgot()
        assert not record.unit.handled
        assert not judges.complete
