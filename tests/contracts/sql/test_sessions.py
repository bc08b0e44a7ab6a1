"""Handlers' transactions with a session of SQLAlchemy's, and of coroutines; and business keys in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from holdfast.dedup.claims import Acquired, Wait
from holdfast.dedup.transactions import Conflict
from holdfast.errors import BatchFailed, FormerOwner, SettingError, StateError, StoreUnavailable
from holdfast.plugin.handling.transacting import NotHandled, current_tx, transacting
from tests.contracts.sql.calling import Calls
from tests.contracts.sql.test_databases import database
from tests.contracts.sql.test_own_transactions import engine_of
from tests.contracts.sql.test_positions import P, databases, own
from tests.harness.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.sql_stores import Databases

__all__ = ["database", "databases", "postgres"]


class Base(DeclarativeBase): ...


class Effect(Base):
    __tablename__ = "effects"

    at: Mapped[int] = mapped_column(primary_key=True)


class Sessions(Calls):
    """A process whose handlers get sessions."""

    def __init__(self, databases: Databases) -> None:
        super().__init__(databases)
        self.engine = engine_of(databases.url)
        self.by = self.store.sqlalchemy(sessionmaker(self.engine))

    def run(self, *offsets: int, **options: Any) -> Any:
        return self.transacts(adds, *offsets, by=self.by, **options)


@pytest.fixture
def calls(databases: Databases) -> Iterator[Sessions]:
    made = Sessions(databases)
    yield made
    made.engine.dispose()


@pytest.fixture
def of_postgres(database: Databases) -> Iterator[Sessions]:
    made = Sessions(database)
    yield made
    made.engine.dispose()


def adds(session: Any, given: Any) -> None:
    for record in given if isinstance(given, list) else [given]:
        session.add(Effect(at=record.offset))


class TestASession:
    def test_has_effect_and_mark_together_and_once(self, calls: Sessions) -> None:
        for offsets in ((0,), (0,), (1, 2), (2, 3)):
            calls.run(*offsets)
        assert calls.effects() == [0, 1, 2, 3]
        assert own(calls.databases.begin()) == Acquired(2, 4, frozenset(), frozenset())

    def test_is_undone_by_an_error(self, calls: Sessions) -> None:
        def fails(session: Any, given: Any) -> None:
            adds(session, given)
            session.flush()
            raise KeyError

        with pytest.raises(KeyError):
            calls.transacts(fails, 0, by=calls.by)
        calls.run(0)
        assert calls.effects() == [0]

    def test_is_undone_by_an_error_of_its_last_flush(self, calls: Sessions) -> None:
        calls.databases.ask("CREATE UNIQUE INDEX one ON effects (at)")
        calls.run(0)
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            calls.transacts(lambda session, _: session.add(Effect(at=0)), 1, by=calls.by)
        calls.run(1)
        assert calls.effects() == [0, 1]

    def test_of_a_former_owner_is_refused(self, calls: Sessions) -> None:
        own(calls.databases.begin())
        with pytest.raises(NotHandled) as raised:
            calls.run(0)
        assert isinstance(raised.value.due_to, FormerOwner)
        assert calls.effects() == []

    @pytest.mark.parametrize("ends", ["commit", "rollback", "close"])
    def test_that_its_handler_ends_is_told(self, calls: Sessions, ends: str) -> None:
        def handle(session: Any, given: Any) -> None:
            adds(session, given)
            getattr(session, ends)()

        with pytest.raises(StateError, match="ended its transaction itself"):
            calls.transacts(handle, 0, by=calls.by)
        calls.run(0)
        assert calls.effects() == [0]

    def test_in_which_a_statement_has_failed_unnoticed_is_told(self, of_postgres: Sessions) -> None:
        def handle(session: Any, given: Any) -> None:
            adds(session, given)
            session.flush()
            with pytest.raises(psycopg.Error):
                session.connection().connection.driver_connection.execute("SELECT 1 / 0")

        with pytest.raises(StateError, match="has failed"):
            of_postgres.transacts(handle, 0, by=of_postgres.by)
        assert of_postgres.effects() == []

    def test_whose_connection_breaks_is_no_answer_and_no_failed_attempt(self, of_postgres: Sessions) -> None:
        def handle(session: Any, given: Any) -> None:
            adds(session, given)
            session.flush()
            [(backend,)] = session.execute(sqlalchemy.text("SELECT pg_backend_pid()")).all()
            of_postgres.databases.ask(f"SELECT pg_terminate_backend({backend}, 10000)")

        with pytest.raises(NotHandled) as raised:
            of_postgres.transacts(handle, 0, by=of_postgres.by)
        assert isinstance(raised.value.due_to, StoreUnavailable)
        of_postgres.run(0)
        assert of_postgres.effects() == [0]

    def test_gets_another_connection_where_the_pools_have_broken(self, of_postgres: Sessions) -> None:
        of_postgres.run(0)
        of_postgres.databases.ask(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        of_postgres.run(1)
        assert of_postgres.effects() == [0, 1]

    def test_of_a_pool_without_a_free_connection_is_no_answer(self, of_postgres: Sessions) -> None:
        engine = engine_of(of_postgres.databases.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
        by = of_postgres.store.sqlalchemy(sessionmaker(engine))
        with engine.connect(), pytest.raises(NotHandled, match="no connection"):
            of_postgres.transacts(adds, 0, by=by)
        engine.dispose()

    def test_a_conflict_has_the_handler_run_again(self, of_postgres: Sessions) -> None:
        conflicts = [psycopg.errors.SerializationFailure()]

        def handle(session: Any, given: Any) -> None:
            adds(session, given)
            if conflicts:
                raise sqlalchemy.exc.OperationalError("", {}, conflicts.pop())

        of_postgres.transacts(handle, 0, by=of_postgres.by)
        assert of_postgres.effects() == [0]

    def test_of_a_handler_that_is_given_up_commits_no_more(self, of_postgres: Sessions) -> None:
        def hangs(session: Any, given: Any) -> None:
            adds(session, given)
            assert of_postgres.by.abandon(P, of_postgres.epoch, [0])

        with pytest.raises(Exception, match="given up"):
            of_postgres.transacts(hangs, 0, by=of_postgres.by)
        assert of_postgres.effects() == []

    def test_by_a_scoped_factory_is_one_of_its_own(self, calls: Sessions) -> None:
        scoped = scoped_session(sessionmaker(calls.engine))
        by, seen = calls.store.sqlalchemy(scoped), list[Any]()
        calls.transacts(lambda session, given: seen.append(session), 0, by=by)
        assert seen[0] is not scoped()
        scoped.remove()

    def test_what_makes_none_is_refused(self, calls: Sessions) -> None:
        wrongs: list[Any] = [object(), calls.engine, sessionmaker(calls.engine)(), lambda: 3]
        for wrong in wrongs:
            with pytest.raises(SettingError, match="sessionmaker"):
                calls.store.sqlalchemy(wrong)

    def test_one_in_autocommit_is_refused(self, of_postgres: Sessions) -> None:
        engine = engine_of(of_postgres.databases.url, isolation_level="AUTOCOMMIT")
        with pytest.raises(StateError, match="autocommit mode"):
            of_postgres.transacts(adds, 0, by=of_postgres.store.sqlalchemy(sessionmaker(engine)))
        engine.dispose()


class Coroutines(Calls):
    async def handle(self, tx: Any, given: Any) -> None:
        for record in given if isinstance(given, list) else [given]:
            await tx.execute(self.add, (record.offset,))


class TestCoroutines:
    def test_have_effect_and_mark_together_and_once(self, database: Databases) -> None:
        calls = Coroutines(database)
        assert calls.transacts_async(calls.handle, [0], [1, 2], [4]) == [None] * 3
        assert calls.transacts_async(calls.handle, [0], [2, 3]) == [None] * 2
        assert calls.effects() == [0, 1, 2, 3, 4]
        assert own(database.begin()).watermark == 5

    def test_many_at_once_share_the_connections(self, database: Databases) -> None:
        calls = Coroutines(database, async_connections=3)
        assert calls.transacts_async(calls.handle, *[[at] for at in range(60)]) == [None] * 60
        assert calls.effects() == list(range(60))
        [(rows,)] = database.ask("SELECT count(*) FROM holdfast_position")
        assert rows <= 61

    def test_are_undone_by_an_error_and_by_a_cancellation(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def fails(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)
            if given.offset == 0:
                raise KeyError
            raise asyncio.CancelledError

        ends = calls.transacts_async(fails, [0], [1])
        assert [type(end) for end in ends] == [KeyError, asyncio.CancelledError]
        assert calls.transacts_async(calls.handle, [0], [1]) == [None, None]
        assert calls.effects() == [0, 1]

    def test_hold_the_next_owner_off(self, database: Databases) -> None:
        calls, next_one, seen = Coroutines(database), database.begin(), list[Any]()

        async def handle(tx: Any, given: Any) -> None:
            seen.append(next_one.acquire([P]))
            await calls.handle(tx, given)

        calls.transacts_async(handle, [0])
        assert seen == [[Wait.WAIT]]
        assert own(next_one).watermark == 1

    def test_of_a_former_owner_are_refused(self, database: Databases) -> None:
        calls = Coroutines(database)
        own(database.begin())
        [end] = calls.transacts_async(calls.handle, [0])
        assert isinstance(end, NotHandled)
        assert isinstance(end.due_to, FormerOwner)

    def test_a_commit_without_an_answer_is_found_out(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def handle(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)
            [(backend,)] = await (await tx.execute("SELECT pg_backend_pid()")).fetchall()
            database.ask(f"SELECT pg_terminate_backend({backend}, 10000)")

        [end] = calls.transacts_async(handle, [0])
        assert isinstance(end, NotHandled)
        assert isinstance(end.due_to, StoreUnavailable)
        calls.transacts_async(calls.handle, [0])
        assert calls.effects() == [0]

    def test_a_commit_that_is_cancelled_is_found_out(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def cancelled_in_commit(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)
            task, execute = asyncio.current_task(), tx.execute
            assert task is not None

            async def execute_and_cancel(*args: Any) -> Any:
                done = await execute(*args)
                task.cancel()
                await asyncio.sleep(0)
                return done

            tx.execute = execute_and_cancel

        [end] = calls.transacts_async(cancelled_in_commit, [0])
        assert isinstance(end, asyncio.CancelledError)
        calls.transacts_async(calls.handle, [0])
        assert calls.effects() == [0]

    def test_that_end_their_transaction_themselves_are_told(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def handle(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)
            await tx.rollback()

        [end] = calls.transacts_async(handle, [0])
        assert isinstance(end, StateError)
        assert calls.effects() == []

    def test_that_are_given_up_commit_no_more(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def handle(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)
            assert calls.store.abandon(P, calls.epoch, [0])

        [end] = calls.transacts_async(handle, [0])
        assert "given up" in str(end)
        assert calls.effects() == []

    def test_a_connection_that_broke_while_it_was_idle_is_made_anew(self, database: Databases) -> None:
        calls = Coroutines(database)

        async def breaks(tx: Any, given: Any) -> None:
            await calls.handle(tx, given)

        async def whole() -> None:
            async def called(given: Any) -> Any:
                return await calls.handle(current_tx(), given)

            call = transacting(called, calls.store)
            await call(calls.records(0)[0])
            database.ask(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'holdfast' AND datname = current_database()"
            )
            await call(calls.records(1)[0])

        asyncio.run(whole())
        assert calls.effects() == [0, 1]

    def test_with_sessions(self, database: Databases) -> None:
        calls = Coroutines(database)
        url = database.url.replace("postgresql://", "postgresql+psycopg://")
        by = calls.store.sqlalchemy(async_sessionmaker(create_async_engine(url, poolclass=sqlalchemy.NullPool)))

        async def handle(session: Any, given: Any) -> None:
            adds(session, given)
            if given.offset == 1:
                await session.flush()
                raise KeyError

        ends = calls.transacts_async(handle, [0], [1], [2], by=by)
        assert [type(end) for end in ends] == [type(None), KeyError, type(None)]
        assert calls.effects() == [0, 2]


class TestKeys:
    def test_a_second_record_with_a_key_is_skipped(self, calls: Sessions) -> None:
        calls.run(0, keys=["a"])
        calls.run(1, keys=["a"])
        calls.run(2, keys=["b"])
        assert calls.effects() == [0, 2]
        assert own(calls.databases.begin()).watermark == 3

    def test_of_a_batch_the_first_is_handled(self, calls: Sessions) -> None:
        calls.run(0, keys=["b"])
        calls.run(1, 2, 3, 4, keys=["c", "b", "c", "a"])
        calls.run(5, 6, keys=["a", "b"])
        assert calls.effects() == [0, 1, 4]

    def test_an_attempt_that_fails_leaves_its_key(self, calls: Sessions) -> None:
        def fails(session: Any, given: Any) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            calls.transacts(fails, 0, by=calls.by, keys=["a"])
        calls.run(1, keys=["a"])
        assert calls.effects() == [1]

    def test_an_error_names_its_place_in_the_whole_batch(self, databases: Databases) -> None:
        calls = Calls(databases)
        calls.transacts(lambda tx, given: None, 0, keys=["a"])

        def fails(_: Any, given: Any) -> None:
            raise BatchFailed({1: ValueError()})

        with pytest.raises(BatchFailed) as raised:
            calls.transacts(fails, 1, 2, 3, keys=["a", "b", "c"])
        assert raised.value.failures.keys() == {2}

    def test_that_another_transaction_has_noted_is_waited_for(self, of_postgres: Sessions) -> None:
        calls = of_postgres
        with psycopg.connect(calls.databases.url) as other:
            other.execute("INSERT INTO holdfast_key VALUES ('orders', 'a')")
            import threading  # noqa: PLC0415 - of this test alone

            waits = threading.Thread(target=lambda: calls.run(0, keys=["a"]))
            waits.start()
            from tests.harness.waiting import until  # noqa: PLC0415 - as above

            until(lambda: calls.databases.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        waits.join()
        assert calls.effects() == []

    def test_long_ones_and_those_with_a_nul_are_kept(self, calls: Sessions) -> None:
        for offset, key in enumerate(["x" * 5000, "x" * 5000, "a\0b", "a\0b", "it's \\ %s ?"]):
            calls.run(offset, keys=[key])
        assert calls.effects() == [0, 2, 4]

    def test_of_the_drivers_connection_are_the_same(self, databases: Databases) -> None:
        calls = Calls(databases)

        def handle(tx: Any, given: Any) -> None:
            tx.execute(calls.add, (given.offset,))

        for offset, key in enumerate(["it's \\ ?", "it's \\ ?", "b"]):
            calls.transacts(handle, offset, keys=[key])
        assert calls.effects() == [0, 2]


def test_a_conflict_that_never_ends_is_the_handlers_error(of_postgres: Sessions) -> None:
    error = psycopg.errors.DeadlockDetected()

    def handle(session: Any, given: Any) -> None:
        raise error

    with pytest.raises((psycopg.errors.DeadlockDetected, Conflict)):
        of_postgres.transacts(handle, 0, by=of_postgres.by)
