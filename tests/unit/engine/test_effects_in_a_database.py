"""Handlers with `transaction=`: what they do in the store's database happens once, whatever befalls their member."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy.orm import sessionmaker

from holdfast import BatchOf, HandlerCall, Holdfast, MemoryClaims, Settings
from holdfast.adapters.sql import SqlPositions
from holdfast.dedup.claims import Acquired, LetGo
from holdfast.errors import BatchFailed, SettingError
from holdfast.plugin.events import DeadLettered, RecordFailed, StoreDown, StoreUp
from tests.harness.engine import Bench, Letters
from tests.harness.servers.postgres import postgres
from tests.harness.sql_stores import Databases, Unheard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.records import Record
    from tests.harness.engine import Member

__all__ = ["postgres"]

QUICK = Settings(workers=2, ordering="partition", commit_interval_s=0.05)
NAME = "g/orders/1/0"


class Shop:
    """Members whose handlers write each record's value into a table, and then do the bench's work."""

    def __init__(self, bench: Bench, databases: Databases) -> None:
        self.bench, self._databases = bench, databases
        self.stores: dict[str, SqlPositions] = {}
        databases.forget()
        databases.ask("CREATE TABLE effects (value VARCHAR(99) NOT NULL)")
        mark = "?" if databases.url.startswith("sqlite") else "%s"
        self._add = f"INSERT INTO effects VALUES ({mark})"  # noqa: S608 - a placeholder

    def produce(self, *values: str, number: int = 0) -> None:
        self.bench.broker.produce("orders", number, *values)

    def write(self, tx: Any, record: Record) -> None:
        tx.execute(self._add, ((record.value or b"").decode(),))

    @property
    def is_sqlite(self) -> bool:
        return self._databases.url.startswith("sqlite")

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A transaction of the handler's own."""
        if self.is_sqlite:
            with closing(sqlite3.connect(self._databases.url.removeprefix("sqlite:///"))) as connection, connection:
                yield connection
        else:
            import psycopg  # noqa: PLC0415 - of an extra

            with psycopg.connect(self._databases.url) as other:
                yield other

    def engine(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self._databases.url.replace("postgresql://", "postgresql+psycopg://"))

    def store(self, name: str) -> SqlPositions:
        made = self.stores[name] = self._databases.store()
        return made

    def member(self, name: str = "a", *, settings: Settings = QUICK, **handling: Any) -> Member:
        store = self.store(name)

        def book(given: Record | list[Record], *, tx: Any) -> None:
            for record in given if isinstance(given, list) else [given]:
                self.write(tx, record)
                self.bench.work.do(name, record)

        handling = {"handler": book, "transaction": store, **handling}
        return self.bench.member(name, settings=settings, claims=store, **handling)

    def unheard(self, name: str = "a") -> Unheard:
        books = self.stores[name]._books
        if not isinstance(books.database, Unheard):
            books.database = Unheard(books.database)
        return books.database

    def another(self) -> tuple[Any, Acquired]:
        """Another process takes the position over."""
        session = self._databases.begin()
        while True:
            [reply] = session.acquire([NAME])
            if isinstance(reply, Acquired):
                return session, reply

    def effects(self) -> list[str]:
        return sorted(value for (value,) in self._databases.ask("SELECT value FROM effects"))

    def wait(self, *values: str, committed: int) -> None:
        self.bench.wait_committed(committed)
        assert self.effects() == sorted(values)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    databases = Databases.of(request.param, tmp_path, lambda: request.getfixturevalue("postgres"))
    with Bench(claims=databases.store()) as bench:
        yield Shop(bench, databases)
    databases.close()


def failures(member: Member) -> list[tuple[int, int]]:
    return [(each.offset, each.attempt) for each in member.told(RecordFailed)]


def test_what_a_failed_attempt_has_done_is_undone(shop: Shop) -> None:
    shop.produce("one", "two", "three")
    shop.bench.work.fail("two", ValueError(), ValueError())
    a = shop.member()
    shop.wait("one", "two", "three", committed=3)
    assert shop.bench.work.starts()["two"] == 3
    assert failures(a) == [(1, 1), (1, 2)]


def test_a_dead_letter_leaves_no_effect(shop: Shop) -> None:
    shop.produce("one", "two")
    shop.bench.work.fail("one", *[ValueError()] * 3)
    letters = Letters(shop.bench.changed)
    a = shop.member(dead_letter="dlq", dead_letters=letters)
    shop.wait("two", committed=2)
    assert [each.offset for each in a.told(DeadLettered)] == [0]


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("lose", ["before", "after"])
def test_a_commit_without_an_answer_is_counted_by_what_the_row_says(shop: Shop, lose: str, workers: int) -> None:
    a = shop.member(settings=Settings(workers=workers, ordering="none", commit_interval_s=0.05))
    shop.unheard().lose_commit = lose
    shop.produce("one", "two", "three")
    shop.wait("one", "two", "three", committed=3)
    assert sum(shop.bench.work.starts().values()) == 3 + (lose == "before")
    assert not failures(a)


def test_a_crash_between_effect_and_commit_leaves_both_to_the_next_member(shop: Shop) -> None:
    a = shop.member(settings=Settings(workers=2, drain_timeout_s=0.1))
    shop.unheard().lose_commit = "before"
    shop.bench.work.hold("one")
    shop.produce("one")
    shop.bench.wait_running("one")
    shop.unheard().deaf = True  # nothing of it gets through any more
    shop.bench.work.let_go()
    shop.bench.wait(lambda: a.told(StoreDown))
    a.app.stop()
    a.stop()
    assert shop.effects() == []
    shop.member("b")
    shop.wait("one", committed=1)


def test_a_crash_between_the_commit_and_the_brokers_leaves_nothing_to_run_again(shop: Shop) -> None:
    a = shop.member()
    shop.produce("one", "two")
    shop.wait("one", "two", committed=2)
    a.stop()
    shop.bench.group.committed.clear()  # as if it had crashed before
    shop.produce("three")
    shop.member("b")
    shop.wait("one", "two", "three", committed=3)


def test_the_next_owner_waits_for_a_transaction_that_outlives_its_drain(shop: Shop) -> None:
    shop.produce("one", "two")
    shop.bench.work.hold("one")
    a = shop.member(settings=Settings(workers=2, ordering="partition", drain_timeout_s=0.1))
    shop.bench.wait_running("one")
    a.app.stop()
    shop.member("b")
    shop.bench.work.let_go()
    shop.wait("one", "two", committed=2)
    assert shop.bench.work.starts()["one"] == 1


def test_a_former_owner_leaves_its_records_and_takes_the_partition_over_anew(shop: Shop) -> None:
    letters = Letters(shop.bench.changed)
    a = shop.member(dead_letter="dlq", dead_letters=letters)
    shop.produce("one")
    shop.wait("one", committed=1)
    other, reply = shop.another()
    shop.produce("two")
    shop.bench.wait(lambda: not a.owns)
    other.let_go([LetGo(NAME, reply.epoch, ())])
    shop.wait("one", "two", committed=2)
    assert not failures(a)
    assert not letters.sent


def test_a_database_that_is_away_pauses_the_member_and_costs_no_attempt(shop: Shop) -> None:
    letters = Letters(shop.bench.changed)
    a = shop.member(dead_letter="dlq", dead_letters=letters)
    shop.produce("one")
    shop.wait("one", committed=1)
    shop.unheard().deaf = True
    shop.produce("two", "three")
    shop.bench.wait(lambda: a.told(StoreDown))
    shop.unheard().deaf = False
    shop.wait("one", "two", "three", committed=3)
    assert a.told(StoreUp)
    assert not failures(a)
    assert not letters.sent


def test_a_middleware_that_swallows_errors_does_not_swallow_a_lost_commit(shop: Shop) -> None:
    a = shop.member(start=False)

    def swallows(call: object) -> Iterator[None]:
        with suppress(Exception):
            yield

    a.app.use(swallows)
    a.start()
    shop.unheard().lose_commit = "before"
    shop.produce("one")
    shop.wait("one", committed=1)


def test_a_handler_that_is_given_up_leaves_a_letter_and_no_effect(shop: Shop) -> None:
    shop.produce("one")
    shop.bench.work.hold("one")
    letters = Letters(shop.bench.changed)
    settings = Settings(workers=2, handler_timeout_s=0.05, handler_grace_s=0.05, commit_interval_s=0.05)
    shop.member(settings=settings, dead_letter="dlq", dead_letters=letters)
    shop.bench.wait(lambda: letters.sent)
    shop.bench.work.let_go()
    shop.produce("two")
    shop.wait("two", committed=2)


@pytest.mark.full
def test_what_postgresql_undoes_to_end_a_conflict_runs_again_and_counts_as_no_attempt(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import psycopg  # noqa: PLC0415 - of an extra

    databases = Databases.of("postgresql", tmp_path, lambda: request.getfixturevalue("postgres"))
    conflicts: list[Exception] = [psycopg.errors.SerializationFailure(), psycopg.errors.DeadlockDetected()]
    with Bench(claims=databases.store()) as bench:
        shop = Shop(bench, databases)

        def book(record: Record, *, tx: Any) -> None:
            shop.write(tx, record)
            if conflicts:
                raise conflicts.pop()

        a = shop.member(handler=book)
        shop.produce("one", "two")
        shop.wait("one", "two", committed=2)
        assert not conflicts
        assert not failures(a)
    databases.close()


class TestBatches:
    def test_are_one_transaction(self, shop: Shop) -> None:
        shop.produce(*map(str, range(20)))
        shop.member(batch=BatchOf(records=10, wait_s=0.02))
        shop.wait(*map(str, range(20)), committed=20)

    def test_of_one_that_names_what_failed_the_others_run_again(self, shop: Shop) -> None:
        given: list[int] = []

        def rows(records: list[Record], *, tx: Any) -> None:
            given.append(len(records))
            for record in records:
                shop.write(tx, record)
            at = next((at for at, record in enumerate(records) if record.value == b"1"), None)
            if at is not None and len(given) == 1:
                raise BatchFailed({at: ValueError()})

        shop.produce("0", "1", "2")
        a = shop.member(batch=BatchOf(records=3, wait_s=0.02), handler=rows)
        shop.wait("0", "1", "2", committed=3)
        assert failures(a) == [(1, 1)]

    @pytest.mark.parametrize("lose", ["before", "after"])
    def test_a_commit_without_an_answer_is_counted_as_a_whole(self, shop: Shop, lose: str) -> None:
        a = shop.member(batch=BatchOf(records=4, wait_s=0.02))
        shop.unheard().lose_commit = lose
        shop.produce(*map(str, range(6)))
        shop.wait(*map(str, range(6)), committed=6)
        assert not failures(a)


class TestKeys:
    def test_a_record_whose_key_was_handled_is_skipped_by_each_member(self, shop: Shop) -> None:
        shop.produce("one", "two", "one")
        a = shop.member(key=lambda record: record.value)
        shop.wait("one", "two", committed=3)
        a.stop()
        shop.produce("two", "three")
        shop.member("b", key=lambda record: record.value)
        shop.wait("one", "two", "three", committed=5)

    def test_a_dead_letter_leaves_its_key_to_the_next_record(self, shop: Shop) -> None:
        shop.produce("one", "one")
        shop.bench.work.fail("one", *[ValueError()] * 3)
        a = shop.member(dead_letter="dlq", dead_letters=Letters(shop.bench.changed), key=lambda record: record.value)
        shop.wait("one", committed=2)
        assert [each.offset for each in a.told(DeadLettered)] == [0]

    def test_one_that_cannot_be_found_fails_its_record_alone(self, shop: Shop) -> None:
        def key_of(record: Record) -> bytes:
            if record.value == b"two":
                raise ValueError
            return record.value or b""

        shop.produce("one", "two", "three")
        letters, batch = Letters(shop.bench.changed), BatchOf(records=3, wait_s=0.02)
        a = shop.member(batch=batch, dead_letter="dlq", dead_letters=letters, key=key_of)
        shop.wait("one", "three", committed=3)
        assert [each.offset for each in a.told(DeadLettered)] == [1]


class TestTransactionsOfTheirOwn:
    def member(self, shop: Shop, name: str = "a", **handling: Any) -> Member:
        def book(record: Record, *, call: HandlerCall) -> None:
            with shop.connected() as connection:
                for each in shop.stores[name].mark(connection, call):
                    shop.write(connection, each)
                    shop.bench.work.do(name, each)

        return shop.member(name, handler=book, transaction=None, **handling)

    def test_have_each_effect_once(self, shop: Shop) -> None:
        shop.produce("one", "two", "three")
        shop.bench.work.fail("two", ValueError())
        a = self.member(shop)
        shop.wait("one", "two", "three", committed=3)
        assert failures(a) == [(1, 1)]
        a.stop()
        shop.bench.group.committed.clear()
        shop.produce("four")
        self.member(shop, "b")
        shop.wait("one", "two", "three", "four", committed=4)

    def test_of_a_former_owner_are_left_to_the_present_one(self, shop: Shop) -> None:
        a = self.member(shop)
        shop.produce("one")
        shop.wait("one", committed=1)
        other, reply = shop.another()
        shop.produce("two")
        shop.bench.wait(lambda: not a.owns)
        other.let_go([LetGo(NAME, reply.epoch, ())])
        shop.wait("one", "two", committed=2)
        assert not failures(a)

    def test_of_a_handler_that_is_given_up_leave_a_letter_and_no_effect(self, shop: Shop) -> None:
        shop.produce("one")
        shop.bench.work.hold("one")
        letters = Letters(shop.bench.changed)
        # As long as a new connection may take on a busy machine.
        settings = Settings(workers=2, handler_timeout_s=2.0, handler_grace_s=0.05, commit_interval_s=0.05)
        if shop.is_sqlite:
            pytest.skip("SQLite cannot end what another thread has begun")
        self.member(shop, settings=settings, dead_letter="dlq", dead_letters=letters)
        shop.bench.wait(lambda: letters.sent)
        shop.bench.work.let_go()
        shop.produce("two")
        shop.wait("two", committed=2)


def test_sessions_of_sqlalchemy_have_each_effect_once(shop: Shop) -> None:
    engine = shop.engine()
    store = shop.store("a")

    def book(record: Record, *, tx: Any) -> None:
        tx.connection().exec_driver_sql(f"INSERT INTO effects VALUES ('{(record.value or b'').decode()}')")  # noqa: S608 - ours
        shop.bench.work.do("a", record)

    shop.produce("one", "two", "three")
    shop.bench.work.fail("two", ValueError())
    shop.bench.member(
        "a", settings=QUICK, claims=store, handler=book, transaction=store.sqlalchemy(sessionmaker(engine))
    )
    shop.wait("one", "two", "three", committed=3)
    engine.dispose()


@pytest.mark.full
def test_coroutines_have_each_effect_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    databases = Databases.of("postgresql", tmp_path, lambda: request.getfixturevalue("postgres"))
    with Bench(claims=databases.store()) as bench:
        shop, failed = Shop(bench, databases), list[int]()

        async def book(record: Record, *, tx: Any) -> None:
            await tx.execute("INSERT INTO effects VALUES (%s)", ((record.value or b"").decode(),))
            if record.offset % 7 == 0 and record.offset not in failed:
                failed.append(record.offset)
                raise ValueError

        values = [str(number) for number in range(40)]
        shop.produce(*values)
        a = shop.member(settings=Settings(workers=2, ordering="none", commit_interval_s=0.05), handler=book)
        shop.wait(*values, committed=40)
        assert sorted(each.offset for each in a.told(RecordFailed)) == [0, 7, 14, 21, 28, 35]
    databases.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_each_effect_is_there_once_while_partitions_move_and_answers_are_lost(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(seed)
    databases = Databases.of("sqlite", tmp_path, lambda: request.getfixturevalue("postgres"))
    settings = Settings(workers=3, ordering="none", commit_interval_s=0.02, drain_timeout_s=0.05)
    with Bench(claims=databases.store(), orders=2) as bench:
        shop = Shop(bench, databases)
        values = [[f"{number}-{n}" for n in range(15)] for number in (0, 1)]
        members = [shop.member("a", settings=settings)]
        for number in (0, 1):
            shop.produce(*values[number], number=number)
        for name in ("b", "c"):
            shop.unheard(members[-1].name).lose_commit = chance.choice(["before", "after"])
            members.append(shop.member(name, settings=settings))
            shop.unheard(name).lose_commit = chance.choice(["before", "after"])
            bench.wait(lambda: members[-1].owns)
            bench.work.fail(chance.choice(values[0]), ValueError())
            members.pop(0).stop()
        for number in (0, 1):
            bench.wait_committed(15, number)
        assert shop.effects() == sorted(values[0] + values[1])
    databases.close()


class TestWrongUse:
    @pytest.fixture
    def store(self, tmp_path: Path) -> SqlPositions:
        return SqlPositions.from_url(f"sqlite:///{tmp_path / 'x.db'}", create=True)

    def app(self, claims: Any, **settings: Any) -> Holdfast:
        with Bench() as bench:
            member = bench.member(claims=claims, start=False, settings=Settings(**settings))
            bench.members.clear()
            return member.app

    def test_another_store_than_the_apps_is_refused(self, store: SqlPositions) -> None:
        with pytest.raises(SettingError, match="the very store that the app has"):
            self.app(MemoryClaims()).handler("bills", transaction=store)(lambda record, *, tx: None)
        with pytest.raises(SettingError, match="the very store that the app has"):
            self.app(None).handler("bills", transaction=store)(lambda record, *, tx: None)

    def test_a_store_without_transactions_is_refused(self) -> None:
        claims: Any = MemoryClaims()
        with pytest.raises(SettingError, match="SqlPositions"):
            self.app(claims).handler("bills", transaction=claims)(lambda record, *, tx: None)

    def test_a_handler_that_does_not_take_it_is_refused(self, store: SqlPositions) -> None:
        app = self.app(store)
        for handler in (lambda record: None, lambda record, tx: None, lambda *, tx: None):
            with pytest.raises(SettingError, match=r"tx|one argument"):
                app.handler("bills", transaction=store, name="bill")(handler)

    def test_a_coroutine_is_refused(self, store: SqlPositions) -> None:
        async def bill(record: Record, *, tx: Any) -> None: ...

        with pytest.raises(SettingError, match="no async driver"):
            self.app(store).handler("bills", transaction=store)(bill)

    def test_a_store_that_is_gone_without_is_refused(self, store: SqlPositions) -> None:
        with pytest.raises(SettingError, match="pause"):
            self.app(store, store_down="open").handler("bills", transaction=store)(lambda record, *, tx: None)

    def test_a_handler_without_transaction_cannot_take_tx(self, store: SqlPositions) -> None:
        with pytest.raises(SettingError, match="transaction=store"):
            self.app(store).handler("bills", name="bill")(lambda record, *, tx: None)


def test_values_and_resources_go_with_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    databases, seen = Databases.of("sqlite", tmp_path, lambda: request.getfixturevalue("postgres")), list[Any]()
    with Bench(claims=databases.store(), orders=1, others=1) as bench:
        shop = Shop(bench, databases)
        a = shop.member(start=False)

        @a.app.resource
        def greeting() -> Iterator[str]:
            yield "hello"

        @a.app.handler("others", value=bytes.decode, transaction=shop.stores["a"], name="others")
        def other(value: str, record: Record, *, tx: Any, greeting: str) -> None:
            shop.write(tx, record)
            seen.append((value, greeting))

        bench.broker.produce("others", 0, "one")
        a.start()
        bench.wait_committed(1, topic="others")
        assert (shop.effects(), seen) == (["one"], [("one", "hello")])
    databases.close()
