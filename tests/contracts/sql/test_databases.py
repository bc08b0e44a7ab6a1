"""SqlPositions and databases that are away, frozen, restored from a copy, without tables, or in use by others."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.adapters.cli.entry import main
from holdfast.adapters.sql import SqlPositions
from holdfast.dedup.claims import Acquired, Drop, LetGo, Mark, Wait
from holdfast.errors import (
    AccessRefused,
    MissingExtraError,
    SettingError,
    StateError,
    StoreLockedOut,
    StoreRefused,
    StoreUnavailable,
)
from tests.contracts.sql.test_positions import P, databases, mark, own
from tests.harness.engine import Bench
from tests.harness.servers.postgres import PostgresServer, ask, postgres
from tests.harness.sql_stores import Databases
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["databases", "postgres"]


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Databases]:
    """A database in the PostgreSQL of the run."""
    made = Databases(postgres.database())
    yield made
    made.close()


def copy_of(databases: Databases) -> Callable[[], None]:
    """A standby that hears nothing from now on. Call it to fail over to that: all connections break."""
    if databases.url.startswith("sqlite"):
        path = Path(databases.url.removeprefix("sqlite:///"))
        kept = path.with_suffix(".kept")
        shutil.copy(path, kept)

        def restore() -> None:
            databases.close()
            shutil.copy(kept, path)

        return restore
    rows = ask(databases.url, "SELECT * FROM holdfast_position")

    def fail_over() -> None:
        databases.close()
        with psycopg.connect(databases.url, autocommit=True) as connection:
            connection.execute("DELETE FROM holdfast_position")
            for row in rows:
                connection.execute(
                    "INSERT INTO holdfast_position VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", row
                )

    return fail_over


class TestADatabaseThatHasLostWhatItHadAcknowledged:
    def test_takes_no_mark_of_who_knows_more_and_has_it_taken_over_anew(self, databases: Databases) -> None:
        a = databases.begin(lease_s=3600.0)
        epoch = own(a).epoch
        mark(a, epoch, [0], watermark=1)
        fail_over = copy_of(databases)
        mark(a, epoch, [1, 2], watermark=3)
        fail_over()
        assert mark(a, epoch, [0, 3], watermark=4) == {3}
        assert own(a) == Acquired(2, 1, frozenset(), frozenset())
        assert mark(a, 2, [1]) == set()

    def test_also_where_the_acquire_is_lost_nor_is_its_epoch_given_again(self, databases: Databases) -> None:
        former, a = databases.begin(), databases.begin(lease_s=3600.0)
        own(former)
        fail_over = copy_of(databases)
        epoch = own(a).epoch
        mark(a, epoch, [1], watermark=0)
        fail_over()
        assert mark(a, epoch, [2]) == {2}
        assert own(a) == Acquired(epoch + 1, 0, frozenset(), frozenset())

    def test_also_where_the_position_is_lost(self, databases: Databases) -> None:
        a = databases.begin()
        fail_over = copy_of(databases)
        mark(a, own(a).epoch, [0], watermark=1)
        fail_over()
        assert mark(a, 1, [1]) == {1}
        assert own(a).watermark == 0

    def test_is_found_out_by_who_has_nothing_to_mark(self, databases: Databases) -> None:
        a = databases.begin()
        epoch = own(a).epoch
        mark(a, epoch, [0], watermark=1)
        fail_over = copy_of(databases)
        mark(a, epoch, [1], watermark=2)
        assert mark(a, epoch, [], watermark=2) == set()
        assert a.live()
        fail_over()
        mark(a, epoch, [], watermark=2)
        assert not a.live()

    def test_a_fence_goes_on_rising(self, databases: Databases) -> None:
        a = databases.begin()
        fail_over = copy_of(databases)
        [before] = a.acquire([P])
        fail_over()
        [after] = databases.begin().acquire([P])
        assert isinstance(before, Acquired)
        assert isinstance(after, Acquired)
        assert after.born_ms + after.epoch > before.born_ms + before.epoch


class TestRowsThatOthersHold:
    """Of PostgreSQL alone: SQLite locks as a whole."""

    def test_are_waited_for_while_the_others_are_taken_over(self, database: Databases) -> None:
        names = [f"orders/{n}" for n in range(10)]
        a, b = database.begin(), database.begin()
        a.acquire(names)
        with psycopg.connect(database.url) as connection:
            connection.execute("UPDATE holdfast_position SET free = free WHERE name = 'orders/4'")
            replies = b.acquire([*names, "new"])
            assert [name for name, reply in zip([*names, "new"], replies, strict=True) if reply is Wait.WAIT] == [
                "orders/4"
            ]
            assert b.acquire(["orders/4"]) == [Wait.WAIT]
        # Not at once: what is held for long is asked for less and less often.
        assert until(lambda: [each for each in b.acquire(["orders/4"]) if isinstance(each, Acquired)])[0].epoch == 2

    def test_a_transaction_that_stands_still_is_ended_by_the_server(self, database: Databases) -> None:
        frozen, b = database.store(timeout_s=0.4), database.begin()
        own(frozen.begin())
        with _held(frozen) as held:
            while b.acquire([P]) == [Wait.WAIT]:
                pass
        assert isinstance(held.error, StoreUnavailable)
        assert mark(b, 2, [0]) == set()

    def test_two_that_take_over_each_others_partitions_go_on(self, database: Databases) -> None:
        names = [f"orders/{n}" for n in range(40)]
        sessions = [database.begin(), database.begin()]
        errors: list[Exception] = []

        def work(turn: int) -> None:
            session = sessions[turn]
            try:
                for _ in range(15):
                    replies = session.acquire(names[::-1] if turn else names)
                    session.mark(
                        [
                            Mark(name, reply.epoch, 0, [turn])
                            for name, reply in zip(names, replies, strict=turn == 0)
                            if isinstance(reply, Acquired)
                        ]
                    )
                    session.let_go([LetGo(name, 0, ()) for name in names])
            except Exception as error:  # noqa: BLE001 - a thread's
                errors.append(error)

        threads = [threading.Thread(target=work, args=(turn,)) for turn in (0, 1)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors


class _held:  # noqa: N801 - reads as a word
    """A process that is frozen in the transaction of an acquire: it holds the row, and says nothing more."""

    def __init__(self, store: SqlPositions) -> None:
        self._database = store._books.database
        self._inside, self._go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        def stand_still(tx: object) -> None:
            tx.ask("SELECT 1 FROM holdfast_position FOR UPDATE")  # type: ignore[attr-defined]
            self._inside.set()
            self._go_on.wait(60.0)
            tx.ask("SELECT 1")  # type: ignore[attr-defined]

        # The watchdog would end it too: a process that is frozen has none.
        self._database._watchdog = _NoWatchdog()  # type: ignore[attr-defined]
        try:
            self._database.run(stand_still)
        except StoreUnavailable as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._inside.wait(60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on.set()
        self._thread.join()


class _NoWatchdog:
    def over(self, _: int) -> closing[_NoWatchdog]:
        return closing(self)

    def close(self) -> None: ...

    stop = close


class TestADatabaseThatIsAway:
    @pytest.mark.full
    def test_killed_frozen_and_back(self) -> None:
        with PostgresServer() as server:
            databases = Databases(server.database())
            server.execute("ALTER DATABASE test_1 SET synchronous_commit = on")  # it is killed
            store = databases.store(timeout_s=2.0)
            a = store.begin()
            epoch = own(a).epoch
            server.kill()
            with pytest.raises(StoreUnavailable):
                mark(a, epoch, [0])
            with pytest.raises(StoreUnavailable):
                a.renew()
            server.restart()
            assert mark(a, epoch, [0]) == set()
            [(backend,)] = store._books.database.run(lambda tx: tx.ask("SELECT pg_backend_pid()"))
            os.kill(backend, signal.SIGSTOP)  # it takes bytes and answers nothing
            try:
                with pytest.raises(StoreUnavailable):
                    mark(a, epoch, [1])
            finally:
                os.kill(backend, signal.SIGCONT)
            assert mark(a, epoch, [1]) == set()
            assert own(databases.begin()).watermark == 2
            databases.close()

    def test_connections_that_the_server_ends_are_made_anew(
        self, database: Databases, postgres: PostgresServer
    ) -> None:
        a = database.begin()
        epoch = own(a).epoch
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'", "postgres"
        )
        with pytest.raises(StoreUnavailable):
            mark(a, epoch, [0])
        assert mark(a, epoch, [0]) == set()

    def test_a_locked_file_is_no_answer(self, tmp_path: Path) -> None:
        databases = Databases(f"sqlite:///{tmp_path / 'positions.db'}")
        a = databases.store(timeout_s=0.1).begin()
        epoch = own(a).epoch
        with closing(sqlite3.connect(tmp_path / "positions.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                mark(a, epoch, [0])
        assert mark(a, epoch, [0]) == set()
        databases.close()

    def test_an_error_of_a_signals_handler_leaves_no_half_transaction(self, databases: Databases) -> None:
        a = databases.begin()
        epoch = own(a).epoch

        class Broken(Exception):
            pass

        def broken_off(_: object) -> None:
            raise Broken

        with pytest.raises(Broken):
            databases.stores[0]._books.database.run(broken_off)
        assert mark(a, epoch, [0]) == set()
        assert own(databases.begin()).watermark == 1


class TestWrongUse:
    def test_without_tables_it_says_how_to_make_them(self, database: Databases, tmp_path: Path) -> None:
        with pytest.raises(StoreRefused, match="holdfast sql schema postgresql"):
            database.store(create=False).connect()
        with pytest.raises(StoreRefused, match="holdfast sql schema sqlite"):
            SqlPositions.from_url(f"sqlite:///{tmp_path / 'none.db'}").connect()
        assert not (tmp_path / "none.db").exists()
        (tmp_path / "empty.db").touch()
        with pytest.raises(StoreRefused, match="no tables"):
            SqlPositions.from_url(f"sqlite:///{tmp_path / 'empty.db'}").connect()

    def test_what_the_command_prints_makes_them(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert main(["sql", "schema", "sqlite"]) == 0
        with closing(sqlite3.connect(tmp_path / "made.db")) as made:
            made.executescript(capsys.readouterr().out)
            made.commit()
        store = SqlPositions.from_url(f"sqlite:///{tmp_path / 'made.db'}")
        store.connect()
        assert store.look().endswith("layout 1")
        store.close()

    def test_and_in_a_schema_of_its_own(self, capsys: pytest.CaptureFixture[str], database: Databases) -> None:
        assert main(["sql", "schema", "--schema", "held"]) == 0
        ask(database.url, "CREATE SCHEMA held")
        ask(database.url, capsys.readouterr().out)
        assert own(database.store(create=False, schema="held").begin()).epoch == 1
        with pytest.raises(StoreRefused):
            database.store(create=False).connect()

    def test_another_layout_is_named(self, databases: Databases) -> None:
        databases.begin()
        if databases.url.startswith("sqlite"):
            with closing(sqlite3.connect(databases.url.removeprefix("sqlite:///"))) as other:
                other.execute("UPDATE holdfast_store SET layout = 7")
                other.commit()
        else:
            ask(databases.url, "UPDATE holdfast_store SET layout = 7")
        with pytest.raises(StoreRefused, match=r"layout 7.*layout 1"):
            databases.begin()

    def test_rights_that_are_missing_are_named(self, database: Databases) -> None:
        database.begin()
        ask(database.url, "CREATE ROLE app LOGIN PASSWORD 'app'")
        url = database.url.replace("holdfast:swordfish-4711", "app:app")
        for grant in (
            "SELECT, INSERT ON holdfast_position",
            "SELECT ON holdfast_store",
            "SELECT, INSERT ON holdfast_key",
        ):
            with pytest.raises(AccessRefused, match="grant this user SELECT, INSERT and UPDATE on holdfast_position"):
                SqlPositions.from_url(url).connect()
            ask(database.url, f"GRANT {grant} TO app")
        ask(database.url, "GRANT UPDATE ON holdfast_position TO app")
        store = SqlPositions.from_url(url)
        b = store.begin()
        own(b)
        ask(database.url, "REVOKE UPDATE ON holdfast_position FROM app")
        with pytest.raises(StoreLockedOut, match="grant this user"):
            mark(b, 1, [0])
        with pytest.raises(StoreLockedOut):
            store.connect()
        ask(database.url, "GRANT UPDATE ON holdfast_position TO app")
        assert mark(b, 1, [0]) == set()
        store.close()

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("mysql://u:swordfish@h/db", "postgresql://"),
            ("orders.db", "sqlite:///"),
            ("sqlite://", "name a file"),
            ("sqlite:///:memory:", "name a file"),
            ("postgresql://u:swordfish@[h/db", "percent-encoded"),
        ],
    )
    def test_a_url_that_cannot_work_is_one_sentence_without_its_password(self, url: str, said: str) -> None:
        with pytest.raises(SettingError, match=said) as raised:
            SqlPositions.from_url(url)
        assert "swordfish" not in str(raised.value)

    def test_without_psycopg_it_names_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("holdfast.adapters.sql.postgres", "holdfast.adapters.sql._psycopg"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(MissingExtraError, match=r"\[postgres\]"):
            SqlPositions.from_url("postgresql://h/db")

    def test_settings_that_cannot_work_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match="small letters"):
            SqlPositions.from_url("postgresql://h/db", schema='x"; DROP')
        with pytest.raises(SettingError, match="leave it out"):
            SqlPositions.from_url(f"sqlite:///{tmp_path / 'x.db'}", schema="held")
        with pytest.raises(SettingError, match="seconds"):
            SqlPositions.from_url("postgresql://h/db", timeout_s=0.0)

    def test_a_server_that_is_not_there_is_no_answer(self) -> None:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/"):
            SqlPositions.from_url("postgresql://u:swordfish@127.0.0.1:1/db").connect()

    def test_a_forked_child_is_told_to_begin_its_own(self, databases: Databases) -> None:
        a = databases.begin()
        epoch = own(a).epoch
        pid = os.fork()
        if pid == 0:  # the child says what went wrong by its exit code
            code = 1
            try:
                assert not a.live()
                with pytest.raises(StateError):
                    mark(a, epoch, [0])
                assert own(databases.stores[0].begin(), "another").epoch == 1
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert mark(a, epoch, [0]) == set()

    def test_a_business_key_is_refused_where_it_is_asked_for(self, tmp_path: Path) -> None:
        store = SqlPositions.from_url(f"sqlite:///{tmp_path / 'positions.db'}", create=True)
        with Bench(claims=store) as bench:
            member = bench.member(start=False)
            with pytest.raises(SettingError, match="say transaction= too"):
                member.app.handler("others", key="order_id")(lambda record: None)
            bench.members.clear()

    def test_a_source_that_claims_identities_is_refused(self, tmp_path: Path) -> None:
        class Leases:
            group = "g"
            identity = staticmethod(lambda record: "id")

        with pytest.raises(SettingError, match="RedisClaims"):
            Holdfast(
                Leases(),  # type: ignore[arg-type]
                claims=SqlPositions.from_url(f"sqlite:///{tmp_path / 'x.db'}"),
            )


def test_its_repr_shows_no_password() -> None:
    assert repr(SqlPositions.from_url("postgresql://u:swordfish@h:5433/shop")) == (
        "SqlPositions(PostgreSQL at h:5433/shop)"
    )


def test_a_reset_of_many_answers_each(databases: Databases) -> None:
    a, b = databases.begin(), databases.begin()
    names = [f"orders/{n}" for n in range(6)]
    a.acquire(names)
    b.acquire(names[::2])
    assert a.drop([Drop(name, 1, 5) for name in names]) == [False, True] * 3
