"""`store.mark` in transactions that handlers begin and commit themselves, by psycopg, sqlite3 and SQLAlchemy."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast.dedup.claims import Acquired, Wait
from holdfast.errors import AlreadyDone, BatchFailed, FormerOwner, HandlerHung, StateError, StoreUnavailable
from holdfast.plugin.handling.transacting import NotHandled
from tests.contracts.sql.calling import Calls
from tests.contracts.sql.test_databases import copy_of, database
from tests.contracts.sql.test_positions import P, databases, own
from tests.harness.servers.postgres import postgres
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast.plugin.handling.handler_call import HandlerCall
    from tests.harness.sql_stores import Databases

__all__ = ["database", "databases", "postgres"]


@contextmanager
def _plain(url: str) -> Iterator[Any]:
    """A connection of the driver's, in a transaction that is committed at the end."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            yield connection
    else:
        with psycopg.connect(url) as other:
            yield other


def engine_of(url: str, **options: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), **options)


@contextmanager
def _session(url: str) -> Iterator[Any]:
    engine = engine_of(url)
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def _connection(url: str) -> Iterator[Any]:
    engine = engine_of(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def write(connection: Any, offset: int) -> None:
    if isinstance(connection, psycopg.Connection | sqlite3.Connection):
        connection.execute(f"INSERT INTO effects VALUES ({int(offset)})")  # noqa: S608 - a number
    else:
        connection.execute(sqlalchemy.text(f"INSERT INTO effects VALUES ({int(offset)})"))  # noqa: S608 - as above


@pytest.fixture(params=[_plain, _session, _connection], ids=["driver", "session", "connection"])
def begun(request: pytest.FixtureRequest, databases: Databases) -> Callable[[], AbstractContextManager[Any]]:
    """Begins a transaction of the user's."""
    return lambda: request.param(databases.url)


def books(calls: Calls, begun: Callable[[], AbstractContextManager[Any]]) -> Callable[[HandlerCall], None]:
    """A handler as it should be."""

    def handle(call: HandlerCall) -> None:
        with begun() as connection:
            for record in calls.store.mark(connection, call):
                write(connection, record.offset)

    return handle


class TestEffectAndMark:
    def test_are_there_together_and_once(self, databases: Databases, begun: Any) -> None:
        calls = Calls(databases)
        handle = books(calls, begun)
        for offset in (0, 0, 1, 7, 1):
            assert calls.marks(handle, offset) is None
        assert calls.effects() == [0, 1, 7]
        assert own(databases.begin()) == Acquired(2, 2, frozenset({7}), frozenset())

    def test_are_neither_there_after_an_error(self, databases: Databases, begun: Any) -> None:
        calls, error = Calls(databases), KeyError()

        def fails(call: HandlerCall) -> None:
            with begun() as connection:
                calls.store.mark(connection, call)
                write(connection, 0)
                raise error

        with pytest.raises(KeyError) as raised:
            calls.marks(fails, 0)
        assert raised.value is error
        calls.marks(books(calls, begun), 0)
        assert calls.effects() == [0]

    def test_of_a_batch_what_is_done_is_left_out(self, databases: Databases) -> None:
        calls = Calls(databases)
        handle = books(calls, lambda: _plain(databases.url))
        calls.marks(handle, 1)
        calls.marks(handle, 0, 1, 2)
        assert calls.effects() == [0, 1, 2]

    def test_a_batch_that_names_what_failed_is_undone_as_a_whole(self, databases: Databases) -> None:
        calls = Calls(databases)

        def fails(call: HandlerCall) -> None:
            with _plain(databases.url) as connection:
                calls.store.mark(connection, call)
                raise BatchFailed({1: ValueError()})

        with pytest.raises(BatchFailed) as raised:
            calls.marks(fails, 0, 1)
        assert raised.value.undone
        assert own(databases.begin()).watermark == 0

    def test_a_handler_that_marks_nothing_is_as_any_other(self, databases: Databases) -> None:
        calls = Calls(databases)
        assert calls.marks(lambda call: None, 0) is None
        with pytest.raises(BatchFailed) as raised:
            calls.marks(_raises(BatchFailed({0: ValueError()})), 0, 1)
        assert not raised.value.undone

    def test_by_threads_each_effect_is_there_once(self, databases: Databases) -> None:
        calls, errors = Calls(databases), list[BaseException]()
        handle = books(calls, lambda: _plain(databases.url))

        def work(first: int) -> None:
            try:
                for offset in range(first, 60, 3):
                    calls.marks(handle, offset)
            except BaseException as error:  # noqa: BLE001 - a thread's
                errors.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors
        assert calls.effects() == list(range(60))
        assert own(databases.begin()).watermark == 60


def _raises(error: Exception) -> Callable[[Any], None]:
    def raises(_: Any) -> None:
        raise error

    return raises


class TestAFormerOwner:
    @pytest.mark.parametrize("swallows", [False, True])
    def test_is_told_and_nothing_of_it_counts(self, databases: Databases, swallows: bool) -> None:
        calls = Calls(databases)
        own(databases.begin())

        def handle(call: HandlerCall) -> None:
            with suppress(FormerOwner if swallows else KeyError), _plain(databases.url) as connection:
                calls.store.mark(connection, call)
                write(connection, 0)

        with pytest.raises(NotHandled) as raised:
            calls.marks(handle, 0)
        assert isinstance(raised.value.due_to, FormerOwner)
        assert calls.effects() == []

    def test_is_waited_for_by_the_next_one(self, database: Databases) -> None:
        calls, next_one = Calls(database), database.begin()

        def handle(call: HandlerCall) -> None:
            with _plain(database.url) as connection:
                calls.store.mark(connection, call)
                assert next_one.acquire([P]) == [Wait.WAIT]
                write(connection, 0)

        calls.marks(handle, 0)
        assert own(next_one).watermark == 1


class TestACommit:
    def test_that_is_made_counts_though_the_handler_raises_after_it(self, databases: Databases) -> None:
        calls = Calls(databases)
        handle = books(calls, lambda: _plain(databases.url))

        def raises(call: HandlerCall) -> None:
            handle(call)
            raise ValueError

        assert calls.marks(raises, 0) is None
        assert calls.effects() == [0]
        assert own(databases.begin()).watermark == 1

    def test_that_nobody_knows_of_runs_the_record_no_more_before_it_is_known(self, database: Databases) -> None:
        calls, kept = Calls(database), list[Any]()

        def loses_its_answer(call: HandlerCall) -> None:
            connection = psycopg.connect(database.url)
            calls.store.mark(connection, call)
            write(connection, 0)
            kept.append(connection)
            raise psycopg.OperationalError("the answer to COMMIT is lost")

        driver = "holdfast.adapters.sql.drivers.PsycopgDriver.is_open"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, property(lambda _: False))  # the connection broke
            with pytest.raises(NotHandled) as raised:
                calls.marks(loses_its_answer, 0)
        assert isinstance(raised.value.due_to, StoreUnavailable)
        kept[0].commit()
        kept[0].close()
        assert calls.marks(books(calls, lambda: _plain(database.url)), 0) is None
        assert calls.effects() == [0]

    @pytest.mark.parametrize("begin", [_plain, _session])
    def test_that_cannot_be_sent_since_the_connection_broke_is_no_failed_attempt(
        self, database: Databases, begin: Any
    ) -> None:
        calls = Calls(database)

        def handle(call: HandlerCall) -> None:
            with begin(database.url) as connection:
                calls.store.mark(connection, call)
                database.ask(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND state = 'idle in transaction'"
                )
                write(connection, 0)

        with pytest.raises(NotHandled) as raised:
            calls.marks(handle, 0)
        assert isinstance(raised.value.due_to, StoreUnavailable)
        calls.marks(books(calls, lambda: _plain(database.url)), 0)
        assert calls.effects() == [0]

    def test_that_a_failover_has_lost_is_made_again(self, databases: Databases) -> None:
        calls = Calls(databases)
        handle = books(calls, lambda: _plain(databases.url))
        calls.marks(handle, 0)
        fail_over = copy_of(databases)
        calls.marks(handle, 1)
        fail_over()
        databases.ask("DELETE FROM effects WHERE at = 1")
        with pytest.raises(NotHandled):
            calls.marks(handle, 2)
        calls.epoch = own(calls.session).epoch
        calls.marks(handle, 1)
        assert calls.effects() == [0, 1]


class TestAConflict:
    def test_has_the_handler_run_again(self, database: Databases) -> None:
        calls, conflicts = Calls(database), [psycopg.errors.SerializationFailure(), psycopg.errors.DeadlockDetected()]

        def handle(call: HandlerCall) -> None:
            with _session(database.url) as session:
                calls.store.mark(session, call)
                write(session, 0)
                if conflicts:
                    raise sqlalchemy.exc.OperationalError("", {}, conflicts.pop())

        calls.marks(handle, 0)
        assert not conflicts
        assert calls.effects() == [0]

    def test_an_old_snapshot_is_one(self, database: Databases) -> None:
        calls, tries = Calls(database), list[int]()
        plain = books(calls, lambda: _plain(database.url))
        for offset in range(2):
            calls.marks(plain, offset)

        def handle(call: HandlerCall) -> None:
            with psycopg.connect(database.url) as connection:
                connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
                connection.execute("SELECT * FROM effects")
                tries.append(1)
                if len(tries) == 1:
                    calls.marks(plain, 3)
                calls.store.mark(connection, call)
                write(connection, 2)

        calls.marks(handle, 2)
        assert calls.effects() == [0, 1, 2, 3]
        assert len(tries) == 2


def test_a_handler_that_is_given_up_commits_no_more(database: Databases) -> None:
    calls = Calls(database)

    def hangs(call: HandlerCall) -> None:
        with _plain(database.url) as connection:
            calls.store.mark(connection, call)
            write(connection, 0)
            assert calls.store.abandon(P, calls.epoch, [0])

    with pytest.raises(psycopg.OperationalError):
        calls.marks(hangs, 0)
    assert calls.effects() == []

    def begins_late(call: HandlerCall) -> None:
        assert calls.store.abandon(P, calls.epoch, [1])
        with _plain(database.url) as connection:
            calls.store.mark(connection, call)

    with pytest.raises(HandlerHung):
        calls.marks(begins_late, 1)


class TestWrongUse:
    def test_a_transaction_that_was_rolled_back_and_a_handler_that_returns(self, databases: Databases) -> None:
        calls = Calls(databases)

        def handle(call: HandlerCall) -> None:
            with _plain(databases.url) as connection:
                calls.store.mark(connection, call)
                write(connection, 0)
                connection.rollback()

        with pytest.raises(StateError, match="was not committed"):
            calls.marks(handle, 0)
        calls.marks(books(calls, lambda: _plain(databases.url)), 0)
        assert calls.effects() == [0]

    def test_a_transaction_that_is_left_open(self, databases: Databases) -> None:
        calls, left = Calls(databases), list[Any]()

        def handle(call: HandlerCall) -> None:
            if databases.url.startswith("sqlite"):
                connection: Any = sqlite3.connect(databases.url.removeprefix("sqlite:///"))
            else:
                connection = psycopg.connect(databases.url)
            left.append(connection)
            calls.store.mark(connection, call)

        with pytest.raises(StateError, match="is open"):
            calls.marks(handle, 0)
        left[0].close()

    @pytest.mark.parametrize(
        "options", [{"isolation_level": None}, {"autocommit": True}], ids=["no transaction", "autocommit"]
    )
    def test_no_transaction(self, databases: Databases, options: dict[str, Any]) -> None:
        calls = Calls(databases)

        def handle(call: HandlerCall) -> None:
            if databases.url.startswith("sqlite"):
                connection: Any = sqlite3.connect(databases.url.removeprefix("sqlite:///"), isolation_level=None)
            else:
                connection = psycopg.connect(databases.url, autocommit=True)
            with closing(connection):
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="autocommit mode"):
            calls.marks(handle, 0)

    def test_no_transaction_of_sqlalchemys(self, databases: Databases) -> None:
        calls, engine = Calls(databases), engine_of(databases.url)

        def handle(call: HandlerCall) -> None:
            with engine.connect() as connection:
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="has begun no transaction"):
            calls.marks(handle, 0)
        engine.dispose()

    def test_a_transaction_in_which_a_statement_has_failed(self, database: Databases) -> None:
        calls = Calls(database)

        def handle(call: HandlerCall) -> None:
            with psycopg.connect(database.url) as connection:
                with suppress(psycopg.Error):
                    connection.execute("SELECT 1 / 0")
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="has failed"):
            calls.marks(handle, 0)

    def test_two_calls_on_one_connection(self, database: Databases) -> None:
        calls = Calls(database)
        with psycopg.connect(database.url) as connection:

            def inner(call: HandlerCall) -> None:
                calls.store.mark(connection, call)

            def outer(call: HandlerCall) -> None:
                calls.store.mark(connection, call)
                with pytest.raises(StateError, match="a connection of its own"):
                    calls.marks(inner, 1)
                connection.rollback()
                raise KeyError

            with pytest.raises(KeyError):
                calls.marks(outer, 0)

    def test_a_connection_that_is_used_again_is_none_of_that(self, database: Databases) -> None:
        calls = Calls(database)
        with psycopg.connect(database.url) as connection:

            def handle(call: HandlerCall) -> None:
                with connection.transaction():
                    calls.store.mark(connection, call)
                    write(connection, call.record.offset)
                if call.record.offset == 0:  # as another thread would, before this one has returned
                    calls.marks(handle, 1)

            calls.marks(handle, 0)
        assert calls.effects() == [0, 1]

    def test_twice_in_one_call(self, databases: Databases) -> None:
        calls = Calls(databases)

        def handle(call: HandlerCall) -> None:
            with _plain(databases.url) as connection:
                calls.store.mark(connection, call)
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="mark them once"):
            calls.marks(handle, 0)

    def test_outside_of_the_call(self, databases: Databases) -> None:
        calls, kept = Calls(databases), list[Any]()
        calls.marks(kept.append, 0)
        with _plain(databases.url) as connection:
            with pytest.raises(StateError, match="in the handler itself"):
                calls.store.mark(connection, kept[0])
            with pytest.raises(StateError, match="in the handler itself"):
                calls.marks(lambda _: calls.store.mark(connection, kept[0]), 1)

    def test_another_database(self, databases: Databases, tmp_path: Path, postgres: Any) -> None:
        calls = Calls(databases)
        other = str(tmp_path / "other.db") if databases.url.startswith("sqlite") else postgres.database()
        other = f"sqlite:///{other}" if databases.url.startswith("sqlite") else other

        def handle(call: HandlerCall) -> None:
            with _plain(other) as connection:
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="the store's own database"):
            calls.marks(handle, 0)
        from tests.harness.sql_stores import Databases as Others  # noqa: PLC0415 - of this test alone

        others = Others(other)
        own(others.begin())  # its tables, with a row of that name
        with pytest.raises(StateError, match="the store's own database"):
            calls.marks(handle, 0)
        others.close()

    def test_another_kind_of_database_and_what_is_no_connection(self, database: Databases, tmp_path: Path) -> None:
        calls = Calls(database)
        with closing(sqlite3.connect(tmp_path / "x.db")) as other, pytest.raises(StateError, match="one to sqlite"):
            calls.marks(lambda call: calls.store.mark(other, call), 0)
        with pytest.raises(StateError, match="no connection that can be marked on"):
            calls.marks(lambda call: calls.store.mark(object(), call), 0)


def test_already_done_that_is_caught_is_as_good_as_one_that_passes(databases: Databases) -> None:
    calls, caught = Calls(databases), list[AlreadyDone]()
    calls.marks(books(calls, lambda: _plain(databases.url)), 0)

    def handle(call: HandlerCall) -> None:
        with _plain(databases.url) as connection:
            try:
                calls.store.mark(connection, call)
            except AlreadyDone as done:
                caught.append(done)

    assert calls.marks(handle, 0) is None
    assert len(caught) == 1


class TestCoroutines:
    def test_mark_on_a_connection_that_is_awaited(self, database: Databases) -> None:
        calls = Calls(database)

        async def handle(call: HandlerCall) -> None:
            async with await psycopg.AsyncConnection.connect(database.url) as connection:
                await calls.store.mark_async(connection, call)
                await connection.execute(calls.add, (call.record.offset,))

        for offset in (0, 0, 1):
            calls.marks_async(handle, offset)
        assert calls.effects() == [0, 1]

    def test_and_on_sqlalchemys(self, database: Databases) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine  # noqa: PLC0415 - of this test alone

        calls = Calls(database)

        async def handle(call: HandlerCall) -> None:
            engine = create_async_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))
            async with AsyncSession(engine) as session, session.begin():
                await calls.store.mark_async(session, call)
                await session.execute(sqlalchemy.text("INSERT INTO effects VALUES (0)"))
            async with engine.begin() as connection:
                with pytest.raises(StateError, match="mark them once"):
                    await calls.store.mark_async(connection, call)
            await engine.dispose()

        calls.marks_async(handle, 0)
        assert calls.effects() == [0]

    def test_one_that_is_not_awaited_is_told(self, database: Databases) -> None:
        calls = Calls(database)

        async def handle(call: HandlerCall) -> None:
            async with await psycopg.AsyncConnection.connect(database.url) as connection:
                calls.store.mark(connection, call)

        with pytest.raises(StateError, match="mark_async"):
            calls.marks_async(handle, 0)


def test_the_row_is_free_again_at_once(database: Databases) -> None:
    calls = Calls(database)
    handle = books(calls, lambda: _plain(database.url))
    for offset in range(20):
        calls.marks(handle, offset)
    assert until(lambda: database.ask("SELECT count(*) FROM holdfast_position")) == [(2,)]
