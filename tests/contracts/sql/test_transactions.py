"""Transactions of handlers: an effect in the store's database and its record's mark are both there, or neither."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.dedup.claims import Acquired, LetGo, Mark, Wait
from holdfast.dedup.transactions import Conflict
from holdfast.errors import FormerOwner, HandlerHung, StateError, StoreUnavailable
from tests.contracts.sql.test_databases import copy_of, database
from tests.contracts.sql.test_positions import P, databases, mark, own
from tests.harness.servers.postgres import postgres
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.sql import SqlPositions
    from holdfast.adapters.sql.transactions import SqlTransaction
    from holdfast.dedup.claims import ClaimSession
    from tests.harness.sql_stores import Databases, Unheard

__all__ = ["database", "databases", "postgres"]


class Process:
    """One that owns the position, and adds offsets to the table of effects."""

    def __init__(self, databases: Databases, **settings: Any) -> None:
        self.store: SqlPositions = databases.store(**settings)
        self.store.connect()
        databases.ask("CREATE TABLE IF NOT EXISTS effects (at BIGINT NOT NULL)")
        self.session: ClaimSession = self.store.begin(0.0)
        self.epoch = own(self.session).epoch
        self._mark = "?" if databases.url.startswith("sqlite") else "%s"

    def begin(self, *offsets: int) -> SqlTransaction:
        tx = self.store.transaction(P, self.epoch, offsets)
        assert tx is not None, f"{offsets} are done"
        for offset in offsets:
            if offset not in tx.done:
                self.add(tx, offset)
        return tx

    def add(self, tx: SqlTransaction, offset: int) -> None:
        tx.connection.execute(f"INSERT INTO effects VALUES ({self._mark})", (offset,))  # noqa: S608 - a placeholder

    def run(self, *offsets: int) -> None:
        self.begin(*offsets).commit()

    def unheard(self) -> Unheard:
        from tests.harness.sql_stores import Unheard  # noqa: PLC0415 - its store is replaced

        books = self.store._books
        books.database = found = Unheard(books.database)
        return found


def effects(databases: Databases) -> list[int]:
    return sorted(at for (at,) in databases.ask("SELECT at FROM effects"))


def next_owner(databases: Databases) -> Acquired:
    return own(databases.begin())


class TestEffectAndMark:
    def test_are_both_there_after_a_commit(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        a.run(7)
        assert effects(databases) == [0, 7]
        assert next_owner(databases) == Acquired(2, 1, frozenset({7}), frozenset())

    def test_are_neither_there_after_an_error(self, databases: Databases) -> None:
        a, error = Process(databases), ValueError()
        assert a.begin(0).failed(error) is error
        assert effects(databases) == []
        a.run(0)
        assert effects(databases) == [0]

    def test_are_neither_there_after_a_crash(self, databases: Databases) -> None:
        a = Process(databases)
        a.begin(0)._opened.close()
        assert next_owner(databases) == Acquired(2, 0, frozenset(), frozenset())
        assert effects(databases) == []

    def test_a_batch_is_one_transaction(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0, 1, 2)
        assert next_owner(databases).watermark == 3

    def test_of_a_batch_the_records_that_are_done_are_not_handled_again(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(1)
        tx = a.begin(0, 1, 2)
        assert set(tx.done) == {1}
        tx.commit()
        assert effects(databases) == [0, 1, 2]

    def test_begin_while_the_loop_waits_for_the_row_of_another_partition(self, databases: Databases) -> None:
        a, asked, let_go = Process(databases), threading.Event(), threading.Event()
        database = a.store._books.database
        run = database.run

        def waits(work: Any, **options: Any) -> Any:
            if not options.get("apart"):
                asked.set()
                assert let_go.wait(PATIENCE_S)
            return run(work, **options)

        database.run = waits  # type: ignore[method-assign]
        loop = threading.Thread(target=lambda: a.session.acquire(["g/another/1/0"]))
        loop.start()
        assert asked.wait(PATIENCE_S)
        worker = threading.Thread(target=lambda: a.run(0), daemon=True)
        worker.start()
        until(lambda: effects(databases) == [0])
        let_go.set()
        worker.join()
        loop.join()

    def test_tell_whether_a_handler_works_in_one(self, databases: Databases) -> None:
        a = Process(databases)
        told = [a.store.runs(P, [0])]
        tx = a.begin(0, 1)
        told += [a.store.runs(P, [1]), a.store.runs(P, [2]), a.store.runs("g/another/1/0", [0])]
        tx.commit()
        told += [a.store.runs(P, [0])]
        assert told == [False, True, False, False, False]

    def test_what_is_done_is_not_begun(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        mark(a.session, a.epoch, [5])
        assert a.store.transaction(P, a.epoch, [0, 5]) is None

    def test_the_loop_has_nothing_to_write_for_it(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        before = databases.ask("SELECT * FROM holdfast_position")
        assert mark(a.session, a.epoch, [0], watermark=1) == set()
        assert databases.ask("SELECT * FROM holdfast_position") == before

    def test_marks_of_the_loop_and_of_transactions_add_up(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        mark(a.session, a.epoch, [2, 4], watermark=0)
        a.run(1)
        mark(a.session, a.epoch, [9], watermark=8)
        a.run(12)
        assert next_owner(databases) == Acquired(2, 8, frozenset({9, 12}), frozenset())

    def test_rows_do_not_grow(self, databases: Databases) -> None:
        a = Process(databases)
        for offset in range(300):
            a.run(offset)
        [(rows, most)] = databases.ask("SELECT count(*), max(length(done)) FROM holdfast_position")
        assert rows == 2
        assert most < 10


class TestANextOwner:
    def test_waits_for_a_transaction_that_is_open_and_has_its_mark(self, databases: Databases) -> None:
        a, b = Process(databases), databases.begin()
        tx = a.begin(0)
        assert b.acquire([P]) == [Wait.WAIT]
        tx.commit()
        assert own(b).watermark == 1

    def test_waits_for_none_that_it_did_not_see_begin(self, database: Databases) -> None:
        """A further row is made while an acquire waits for the first one: a read that has begun does not see it."""
        a, b = Process(database), database.begin()
        statements, replies = a.store._books.statements, list[Any]()
        with psycopg.connect(database.url) as other:
            making = statements.adding(P, a.store._books.held[P].owner, 1)
            other.execute(making.text.replace("?", "%s").encode(), making.parameters)
            taking = threading.Thread(target=lambda: replies.extend(b.acquire([P])))
            taking.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            until(lambda: database.ask(waiting) != [(0,)] or replies, "the acquire does not wait for the row")
            # As the transaction in that row would, in the moment after.
            other.execute(b"UPDATE holdfast_position SET watermark = 1, begun = true WHERE stripe = 1")
        taking.join()
        reply = replies[0] if isinstance(replies[0], Acquired) else own(b)
        assert reply.watermark == 1

    def test_has_fenced_the_former_one(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        next_owner(databases)
        with pytest.raises(FormerOwner):
            a.begin(1)
        assert effects(databases) == [0]
        assert mark(a.session, a.epoch, [1]) == {1}

    def test_is_not_kept_by_who_lets_go_while_its_transaction_runs(self, databases: Databases) -> None:
        a = Process(databases, timeout_s=0.4)
        if databases.url.startswith("sqlite"):
            pytest.skip("a transaction has the whole file")
        tx, b = a.begin(0), databases.begin(lease_s=3600.0)
        a.session.let_go([LetGo(P, a.epoch, [0])])
        tx.commit()
        assert own(b).watermark == 1


class TestSeveralAtOnce:
    """Of PostgreSQL: SQLite has one transaction at a time."""

    def test_wait_for_no_other_nor_does_the_loop(self, database: Databases) -> None:
        a = Process(database)
        open_ = [a.begin(offset) for offset in range(5)]
        mark(a.session, a.epoch, [7])
        for tx in reversed(open_):
            tx.commit()
        assert effects(database) == [0, 1, 2, 3, 4]
        assert next_owner(database) == Acquired(2, 5, frozenset({7}), frozenset())
        assert database.ask("SELECT count(*) FROM holdfast_position") == [(6,)]

    def test_by_threads_each_effect_is_there_once(self, database: Databases) -> None:
        a, errors = Process(database), list[BaseException]()

        def work(first: int) -> None:
            try:
                for offset in range(first, 200, 4):
                    a.run(offset)
                    mark(a.session, a.epoch, [offset])
            except BaseException as error:  # noqa: BLE001 - a thread's
                errors.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors
        assert effects(database) == list(range(200))
        assert next_owner(database) == Acquired(2, 200, frozenset(), frozenset())

    def test_of_two_that_the_database_undoes_the_error_says_so(self, database: Databases) -> None:
        a = Process(database)
        database.ask("CREATE TABLE accounts (name text PRIMARY KEY)")
        database.ask("INSERT INTO accounts VALUES ('a'), ('b')")
        first, second, met = a.begin(0), a.begin(1), threading.Barrier(2)
        ends: list[BaseException | None] = []

        def work(tx: SqlTransaction, names: Sequence[str]) -> None:
            try:
                tx.connection.execute("SELECT 1 FROM accounts WHERE name = %s FOR UPDATE", names[:1])
                met.wait(30.0)
                tx.connection.execute("SELECT 1 FROM accounts WHERE name = %s FOR UPDATE", names[1:])
                tx.commit()
                ends.append(None)
            except psycopg.Error as error:
                ends.append(tx.failed(error))

        threads = [
            threading.Thread(target=work, args=(tx, names)) for tx, names in ((first, ("a", "b")), (second, ("b", "a")))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [type(end) for end in ends if end is not None] == [Conflict]
        assert len(effects(database)) == 1
        [left] = {0, 1}.difference(effects(database))
        a.run(left)
        assert effects(database) == [0, 1]


class TestACommitWithoutAnAnswer:
    def test_that_was_made_counts_as_made(self, databases: Databases) -> None:
        a = Process(databases)
        a.unheard().lose_commit = "after"
        a.run(0)
        assert a.store.transaction(P, a.epoch, [0]) is None
        a.run(1)
        assert effects(databases) == [0, 1]

    def test_that_was_not_made_is_to_be_run_again(self, databases: Databases) -> None:
        a = Process(databases)
        a.unheard().lose_commit = "before"
        with pytest.raises(StoreUnavailable):
            a.run(0)
        a.run(0)
        assert effects(databases) == [0]

    @pytest.mark.parametrize("lose", ["before", "after"])
    def test_is_found_out_before_its_records_run_again_and_others_go_on(self, databases: Databases, lose: str) -> None:
        a = Process(databases)
        unheard = a.unheard()
        unheard.lose_commit = lose
        tx = a.begin(0, 1)
        unheard.deaf = True
        with pytest.raises(StoreUnavailable):
            tx.commit()
        with pytest.raises(StoreUnavailable):
            a.begin(0)
        unheard.deaf = False
        a.run(5)
        if lose == "after":
            assert a.store.transaction(P, a.epoch, [0]) is None
        a.run(0, 1, 2)
        assert effects(databases) == [0, 1, 2, 5]
        assert next_owner(databases) == Acquired(2, 3, frozenset({5}), frozenset())

    def test_is_found_out_where_the_server_ends_the_connection(self, database: Databases) -> None:
        a = Process(database)
        tx = a.begin(0)
        [(backend,)] = tx.connection.execute("SELECT pg_backend_pid()").fetchall()
        database.ask(f"SELECT pg_terminate_backend({backend}, 10000)")
        with pytest.raises(StoreUnavailable):
            tx.commit()
        a.run(0)
        assert effects(database) == [0]

    def test_is_waited_for_while_the_server_has_it(self, database: Databases) -> None:
        a, b = Process(database, timeout_s=1.0), database.begin()
        for other in [a.begin(10), a.begin(11)]:
            other.commit()
        unheard = a.unheard()
        unheard.lose_commit = "before"
        tx = a.begin(0)
        # The server has lost the client, and does not know it yet.
        kept, tx._opened._of.close = tx._opened._of, lambda: None  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable):
            tx.commit()
        a.store._books.held[P]._idle.reverse()  # another row's turn, which nothing holds
        with pytest.raises(StoreUnavailable):
            a.begin(0)
        assert b.acquire([P]) == [Wait.WAIT]
        kept.connection.execute("COMMIT")  # it has had the COMMIT after all
        assert a.store.transaction(P, a.epoch, [0]) is None
        assert effects(database) == [0, 10, 11]
        kept.connection.close()

    def test_tells_the_loop_that_the_database_is_away_until_it_answers(self, databases: Databases) -> None:
        a = Process(databases)
        unheard = a.unheard()
        unheard.lose_commit = "before"
        with pytest.raises(StoreUnavailable):
            a.run(0)
        unheard.deaf = True
        with pytest.raises(StoreUnavailable):
            mark(a.session, a.epoch, [], watermark=0)
        unheard.deaf = False
        assert mark(a.session, a.epoch, [], watermark=0) == set()


class TestADatabaseThatHasLostCommits:
    def test_runs_exactly_these_again(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        fail_over = copy_of(databases)
        a.run(1)
        fail_over()
        databases.ask("DELETE FROM effects WHERE at = 1")
        with pytest.raises(FormerOwner):
            a.begin(2)
        a.epoch = own(a.session).epoch
        a.run(1)
        a.run(2)
        assert effects(databases) == [0, 1, 2]

    def test_is_found_out_by_a_transaction_in_another_row(self, database: Databases) -> None:
        """Its watermark would cover what another row has lost."""
        a = Process(database)
        for tx in [a.begin(0), a.begin(1)]:
            tx.commit()
        fail_over = copy_of(database)
        a.run(2)
        fail_over()
        a.store._books.held[P]._idle.reverse()  # the other row's turn
        with pytest.raises(FormerOwner):
            a.begin(3)
        assert next_owner(database).watermark == 2

    def test_is_found_out_by_a_mark_of_the_loop(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        fail_over = copy_of(databases)
        a.run(1)
        fail_over()
        assert mark(a.session, a.epoch, [3], watermark=2) == {3}
        assert own(a.session).watermark == 1

    def test_is_found_out_by_who_has_nothing_to_mark(self, databases: Databases) -> None:
        a = Process(databases)
        a.run(0)
        fail_over = copy_of(databases)
        a.run(1)
        fail_over()
        a.session.mark([Mark(P, a.epoch, 0, [])])
        assert not a.session.live()


class TestAHandlerThatIsGivenUp:
    def test_commits_no_more(self, databases: Databases) -> None:
        a = Process(databases)
        tx = a.begin(0)
        assert a.store.abandon(P, a.epoch, [0])
        with pytest.raises(HandlerHung):
            tx.commit()
        assert effects(databases) == []
        mark(a.session, a.epoch, [0], watermark=1)  # its dead letter was sent
        assert next_owner(databases).watermark == 1

    def test_begins_no_more(self, databases: Databases) -> None:
        a = Process(databases)
        assert a.store.abandon(P, a.epoch, [0])
        with pytest.raises(HandlerHung):
            a.begin(0)
        a.run(0)
        assert effects(databases) == [0]

    def test_gives_its_row_free_where_it_waits(self, database: Databases) -> None:
        a, b, ends = Process(database), database.begin(), list[BaseException | None]()
        tx = a.begin(0)

        def hang() -> None:
            try:
                tx.connection.execute("SELECT pg_sleep(60)")
            except psycopg.Error as error:
                ends.append(tx.failed(error))

        hanging = threading.Thread(target=hang)
        hanging.start()
        assert a.store.abandon(P, a.epoch, [0])
        hanging.join(30.0)
        assert [type(end) for end in ends] == [HandlerHung]
        del b


class TestATransactionThatIdles:
    def test_is_ended_by_the_server_and_counts_as_the_handlers_failure(self, database: Databases) -> None:
        a, b = Process(database, transaction_idle_s=0.3), database.begin()
        tx = a.begin(0)
        until(lambda: b.acquire([P]) != [Wait.WAIT], "the frozen process keeps the partition")
        time.sleep(0.01)
        with pytest.raises((TimeoutError, FormerOwner)):
            tx.commit()
        assert effects(database) == []
        own_again = Process(database, transaction_idle_s=0.3)
        idle = own_again.begin(0)
        until(lambda: database.ask("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == [(0,)])
        with pytest.raises(psycopg.Error) as raised:
            own_again.add(idle, 1)
        assert isinstance(idle.failed(raised.value), TimeoutError)


class TestWrongUse:
    def test_a_handler_that_commits_itself_is_told(self, databases: Databases) -> None:
        a = Process(databases)
        tx = a.begin(0)
        tx.connection.execute("COMMIT")
        with pytest.raises(StateError, match="ended its transaction itself"):
            tx.commit()
        assert a.store.transaction(P, a.epoch, [0]) is None  # it has committed the mark with it

    def test_so_is_one_that_rolls_back_and_returns(self, databases: Databases) -> None:
        a = Process(databases)
        tx = a.begin(0)
        tx.connection.execute("ROLLBACK")
        with pytest.raises(StateError, match="ended its transaction itself"):
            tx.commit()
        a.run(0)
        assert effects(databases) == [0]

    def test_so_is_one_that_closes_the_connection(self, databases: Databases) -> None:
        a = Process(databases)
        tx = a.begin(0)
        tx.connection.close()
        with pytest.raises(StateError, match="ended its transaction itself"):
            tx.commit()
        tx, error = a.begin(0), ValueError()
        tx.connection.close()
        assert tx.failed(error) is error
        a.run(0)
        assert effects(databases) == [0]

    def test_an_error_of_the_database_that_a_handler_swallows_is_told(self, database: Databases) -> None:
        a = Process(database)
        tx = a.begin(0)
        with pytest.raises(psycopg.Error):
            tx.connection.execute("SELECT 1 / 0")
        with pytest.raises(StateError, match="savepoint"):
            tx.commit()
        a.run(0)
        assert effects(database) == [0]

    def test_so_is_one_that_commits_by_its_driver(self, databases: Databases) -> None:
        a = Process(databases)
        tx = a.begin(0)
        tx.connection.commit()
        with pytest.raises(StateError, match="ended its transaction itself"):
            tx.commit()
        assert effects(databases) == [0]
        assert a.store.transaction(P, a.epoch, [0]) is None

    def test_what_a_constraint_says_at_the_commit_is_the_handlers_error(self, database: Databases) -> None:
        a = Process(database)
        database.ask("ALTER TABLE effects ADD UNIQUE (at) DEFERRABLE INITIALLY DEFERRED")
        a.run(0)
        tx = a.begin(1)
        a.add(tx, 0)
        with pytest.raises(psycopg.errors.UniqueViolation):
            tx.commit()
        a.run(1)
        assert effects(database) == [0, 1]


def test_a_connection_that_the_server_has_closed_meanwhile_is_made_anew(database: Databases) -> None:
    a = Process(database)
    a.run(0)
    database.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'holdfast' AND datname = current_database()"
    )
    a.run(1)
    assert effects(database) == [0, 1]


def test_a_transaction_is_read_committed_and_bounded_whatever_the_user_has_by_default(database: Databases) -> None:
    a = Process(database)
    role = "ALTER ROLE holdfast SET default_transaction_isolation = 'serializable'"
    database.ask(role)
    try:
        a.store.close()
        tx = a.begin(0)
        shown = [
            tx.connection.execute(f"SHOW {name}").fetchone()[0] for name in ("transaction_isolation", "lock_timeout")
        ]
        tx.commit()
    finally:
        database.ask("ALTER ROLE holdfast RESET default_transaction_isolation")
    assert shown == ["read committed", "0"]


@pytest.mark.parametrize("prepare", [False, True])
def test_statements_are_prepared_only_where_the_user_says_so(database: Databases, *, prepare: bool) -> None:
    a = Process(database, prepare=prepare)
    for offset in range(12):
        a.run(offset)
    tx = a.begin(12)
    [(count,)] = tx.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    tx.failed(ValueError())
    a.run(12)
    assert (count > 0) is prepare
    assert effects(database) == list(range(13))
