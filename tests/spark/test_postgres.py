"""writers.postgres on a real PostgreSQL, a real Redis and a real Spark."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.spark import BatchFenced, BatchRefused, BatchWrite, WriteFailed, idempotent_sink, writers
from holdfast.adapters.spark.writers.postgres import merging, staging, target
from holdfast.adapters.spark.writers.postgres.at import PostgresAt
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError
from tests.harness.servers.postgres import PASSWORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchReport
    from tests.harness.servers.postgres import PostgresServer

pytestmark = pytest.mark.full

SINK = "orders-table"
_ORDERS = "order_id text PRIMARY KEY, amount int"
_ROWS = "order_id string, amount int"


class Table:
    """A sink over a table, and what it has told."""

    def __init__(self, spark: SparkSession, redis_url: str, server: PostgresServer, columns: str = _ORDERS) -> None:
        self.spark = spark
        self.redis_url = redis_url
        self.server = server
        self.url = server.database()
        self.database = self.url.rpartition("/")[2]
        self.execute(f"CREATE TABLE orders ({columns})")
        self.reports: list[BatchReport] = []
        self._fence = 1_700_000_000_000

    def execute(self, statement: str) -> list[Any]:
        return self.server.execute(statement, self.database)

    def writer(self, **given: Any) -> writers.PostgresWriter:
        settings: dict[str, Any] = {"url": self.url} | given
        return writers.postgres(settings.pop("table", "orders"), **settings)

    def put(self, batch: int, *rows: tuple[Any, ...], query: str = "q", **given: Any) -> BatchReport:
        settings: dict[str, Any] = {"write": self.writer(), "schema": _ROWS} | given
        frame = self.spark.createDataFrame(list(rows), settings.pop("schema"))
        sink = idempotent_sink(
            SINK,
            key="order_id",
            claims=self.redis_url,
            query=query,
            patience_s=1,
            observer=self.reports.append,
            **settings,
        )
        sink(frame, batch)
        return self.reports[-1]

    def attempt(self, batch: int = 0, *, query: str = "q") -> Attempt:
        """Their fences rise as they are made."""
        self._fence += 10
        return Attempt(BatchId(SINK, query, batch), 1, f"s{self._fence}", self._fence)

    def of(self, attempt: Attempt, rows: int = 0) -> BatchWrite:
        return BatchWrite.of(attempt, ("order_id",), rows)

    def write(
        self, *rows: tuple[Any, ...], by: Attempt | None = None, schema: str = _ROWS, finish: bool = True, **given: Any
    ) -> None:
        """The writer without the sink around it."""
        attempt = by or self.attempt()
        frame = self.spark.createDataFrame(list(rows), schema).coalesce(1)
        self.writer(**given).write(frame, self.of(attempt, len(rows)))
        if finish:
            self.writer(**given).confirm(self.spark, attempt)

    def finished(self, attempt: Attempt) -> bool:
        return self.writer().finished(self.spark, self.of(attempt))

    def read(self) -> list[tuple[Any, ...]]:
        return sorted(self.execute("SELECT * FROM orders"))

    def staging(self) -> list[Any]:
        return self.execute(r"SELECT tablename FROM pg_tables WHERE tablename LIKE 'hf\_%'")

    def noted(self) -> list[Any]:
        return self.execute(
            "SELECT sink, query, batch, rows, finished_at IS NOT NULL FROM holdfast_batches ORDER BY query"
        )


@pytest.fixture
def table(spark: SparkSession, redis_url: str, postgres: PostgresServer) -> Table:
    return Table(spark, redis_url, postgres)


def test_each_key_is_a_row_and_the_batch_is_noted_beside_it_whatever_redis_forgets(table: Table) -> None:
    assert table.put(0, ("a", 1), ("b", 2), ("b", 2)).owned == 2
    assert table.put(1, ("b", 3), ("c", 4)).skipped == 1
    assert table.read() == [("a", 1), ("b", 2), ("c", 4)]
    assert table.noted() == [(SINK, "q", 1, 1, True)]
    assert table.staging() == []
    store = RedisClaims.from_url(table.redis_url)
    store.parts().client.flushdb()
    store.close()
    with pytest.raises(BatchRefused, match="1 of these rows are not in the sink"):
        table.put(1, ("b", 3), ("x", 5))
    assert table.put(1, ("b", 3), ("c", 4)).finished_before
    assert table.put(2, ("a", 6)).attempt == 3  # of a count that has begun anew, and its fence is higher
    assert table.read() == [("a", 6), ("b", 2), ("c", 4)]


def test_what_was_written_and_not_finished_is_written_again_with_the_rows_of_the_next_try(table: Table) -> None:
    assert not table.finished(table.attempt())
    table.write(("a", 1), ("gone", 1), finish=False)
    assert table.noted() == [(SINK, "q", 0, 2, False)]
    assert not table.finished(table.attempt())
    table.write(("a", 2), ("late", 2))
    assert table.finished(table.attempt())
    table.write(by=table.attempt(1))  # a batch of which nothing is to be written
    table.write(("gone", 3), by=table.attempt(0, query="q2"))
    assert table.read() == [("a", 2), ("gone", 3), ("late", 2)]
    assert table.noted() == [(SINK, "q", 1, 0, True), (SINK, "q2", 0, 1, True)]


def test_batch_numbers_that_begin_anew_are_refused(table: Table) -> None:
    table.write(("a", 1), by=table.attempt(5))
    behind = table.attempt(4)
    with pytest.raises(BatchRefused, match=r"knows batch 5 of query q\. Its checkpoint was deleted or put back"):
        table.finished(behind)
    with pytest.raises(BatchRefused, match="knows batch 5 of query q"):
        table.write(("a", 2), by=behind)
    assert table.read() == [("a", 1)]


def test_a_row_whose_key_is_there_may_stay_as_it_is(table: Table) -> None:
    table.write(("a", 1))
    table.write(("a", 2), ("b", 2), on_conflict="nothing")
    assert table.read() == [("a", 1), ("b", 2)]
    table.write(("a", 3))
    assert table.read() == [("a", 3), ("b", 2)]


def test_two_sinks_may_write_to_one_table_and_each_has_a_row_of_its_own_for_its_batches(table: Table) -> None:
    other = idempotent_sink("other", key="order_id", claims=table.redis_url, query="q", write=table.writer())
    table.put(0, ("a", 1), ("b", 1))
    other(table.spark.createDataFrame([("b", 2), ("c", 2)], _ROWS), 0)
    table.put(1, ("d", 1))
    assert table.read() == [("a", 1), ("b", 2), ("c", 2), ("d", 1)]
    assert sorted(table.noted()) == sorted([(SINK, "q", 1, 1, True), ("other", "q", 0, 2, True)])


def test_what_a_zombie_writes_late_is_refused(table: Table) -> None:
    frozen = table.attempt(query="old")
    table.write(("a", 2))
    with pytest.raises(BatchFenced, match=r"knows a later attempt, a\d+-s"):
        table.write(("a", 1), ("x", 1), by=frozen)
    assert table.read() == [("a", 2)]
    assert table.staging() == []


def test_a_zombie_that_has_copied_already_is_refused_in_the_transaction(table: Table) -> None:
    frozen = table.of(table.attempt(), rows=1)
    rows = table.spark.createDataFrame([("a", 1)], _ROWS).coalesce(1)
    at = table.writer().at
    with at.connected() as connection:
        into = target.look(connection, "orders", rows.columns, frozen.key)
        stage = staging.Stage.of(into, frozen)
        staging.make(connection, stage, into)
    staged = staging.fill(rows, at, stage, into, 4)
    assert staged.rows == 1
    table.write(("a", 2))
    assert table.staging() == []  # the next attempt has removed it
    with pytest.raises(BatchFenced), at.connected() as connection:
        merging.merge(connection, into, stage, staged, frozen, update=True)
    assert table.read() == [("a", 2)]


def test_a_driver_that_is_frozen_in_its_transaction_holds_nobody_up(table: Table) -> None:
    table.write()  # makes the table of batches
    frozen = table.of(table.attempt())

    def freeze() -> None:
        with table.writer(timeout_s=1).at.connected() as connection:
            into = target.look(connection, "orders", ["order_id"], frozen.key)
            stage = staging.Stage.of(into, frozen)
            merging.merge(connection, into, stage, staging.Staged([], 0), frozen, update=True)
            table.write(("a", 1))  # waits for the lock, until the server has ended that transaction

    with pytest.raises(WriteFailed, match="the driver stood still in its transaction, which is undone"):
        freeze()
    assert table.read() == [("a", 1)]


def test_nor_one_that_is_frozen_while_it_makes_the_table_of_batches(table: Table) -> None:
    def freeze() -> None:
        with table.writer(timeout_s=1).at.connected() as connection:
            merging.prepare(connection, "public")
            table.write(("a", 1))

    with pytest.raises(WriteFailed, match="the driver stood still in its transaction, which is undone"):
        freeze()
    assert table.read() == [("a", 1)]


def test_rows_of_all_types_arrive_as_they_are(spark: SparkSession, redis_url: str, postgres: PostgresServer) -> None:
    columns = (
        "order_id text PRIMARY KEY, n bigint, d numeric(10,2), f double precision, b bytea, t timestamptz, day date, "
        "flag boolean, tags text[], fields jsonb, pairs jsonb, ref uuid"
    )
    schema = (
        "order_id string, n bigint, d decimal(10,2), f double, b binary, t timestamp, day date, "
        "flag boolean, tags array<string>, fields struct<x:int,y:string>, pairs map<string,int>, ref string"
    )
    when, uuid = dt.datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=dt.UTC), "5f3f4b1e-8b1a-4d35-9e7e-0c6c3e7a1f00"
    text = "tab\t, \\N, \"quotes\", 'x', line\nend, ünïcode"
    rows = [
        (
            text,
            1 << 62,
            Decimal("12.30"),
            0.1,
            b"\x00\xff",
            when,
            when.date(),
            True,
            ["a", None, "c,d"],
            (1, "z"),
            {"k": 1},
            uuid,
        ),
        ("none", *[None] * 11),
    ]
    table = Table(spark, redis_url, postgres, columns)
    table.write(*rows, schema=schema)
    [full, none] = sorted(table.read(), reverse=True)
    assert none == rows[1]
    assert full[:9] == rows[0][:9]
    assert (full[9], full[10], str(full[11])) == ({"x": 1, "y": "z"}, {"k": 1}, uuid)


def test_times_inside_of_json_are_whole(spark: SparkSession, redis_url: str, postgres: PostgresServer) -> None:
    columns = {
        "fields": "named_struct('at', timestamp'2020-01-01 00:00:00.123456', 'local', timestamp_ntz'2020-01-01 00:00')",
        "list": "array(named_struct('at', timestamp'2020-01-01 00:00:00.000001'))",
        "pairs": "map('at', timestamp'0001-01-01 00:00:00.5')",
    }
    table = Table(spark, redis_url, postgres, "order_id text PRIMARY KEY, fields jsonb, list json, pairs jsonb")
    attempt = table.attempt()
    rows = spark.range(1).selectExpr("'a' AS order_id", *(f"{of} AS {name}" for name, of in columns.items()))
    table.writer().write(rows, table.of(attempt, 1))
    assert table.read() == [
        (
            "a",
            {"at": "2020-01-01T00:00:00.123456Z", "local": "2020-01-01T00:00:00.000000"},
            [{"at": "2020-01-01T00:00:00.000001Z"}],
            {"at": "0001-01-01T00:00:00.500000Z"},
        )
    ]


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        ("cast(X'ff4242' AS string)", "text", r"value of type (large_)?string that .*UnicodeDecodeError"),
        ("date'+10001-01-01'", "date", "value of type date32.*OverflowError"),
    ],
)
def test_a_value_that_python_does_not_have_is_said_in_one_sentence(
    spark: SparkSession, redis_url: str, postgres: PostgresServer, value: str, kind: str, says: str
) -> None:
    table = Table(spark, redis_url, postgres, f"order_id text PRIMARY KEY, v {kind}")
    rows = spark.range(1).selectExpr("'a' AS order_id", f"{value} AS v")
    with pytest.raises(WriteFailed, match=rf"column 'v' has a {says}") as failed:
        table.writer().write(rows, table.of(table.attempt(), 1))
    assert "BB" not in str(failed.value)
    assert table.staging() == []


def test_names_may_be_of_any_characters(spark: SparkSession, redis_url: str, postgres: PostgresServer) -> None:
    """Also of those that psycopg looks for in a statement that has parameters, and those of a format."""
    names = ["vat %s", "100%", "%(a)b", "{}", '"x"', "Ünï code"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    table = Table(spark, redis_url, postgres, "order_id text PRIMARY KEY")
    table.execute('CREATE SCHEMA "5% {}"')
    columns = ", ".join(f"{name} int" for name in quoted)
    table.execute(f'CREATE TABLE "5% {{}}"."%orders" ("the %key" text PRIMARY KEY, {columns})')
    writer = table.writer(table="5% {}.%orders")
    for amount in (1, 2):
        attempt = table.attempt(amount)
        rows = spark.createDataFrame([("a", *[amount] * 6)], ["the %key", *names])
        batch = BatchWrite.of(attempt, ("the %key",), 1)
        writer.write(rows, batch)
        writer.confirm(spark, attempt)
        assert writer.finished(spark, batch)
        assert writer.lacking(rows, batch) == 0
    assert table.execute('SELECT * FROM "5% {}"."%orders"') == [("a", *[2] * 6)]


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        (_ORDERS, {"table": "absent"}, "has no such table .* create it, with a unique index"),
        ("order_id text, amount int", {}, r'CREATE UNIQUE INDEX CONCURRENTLY ON "orders" \("order_id"\)'),
        ("order_id text, amount int, UNIQUE (order_id, amount)", {}, "a unique index on exactly the sink's key"),
        ("order_id text PRIMARY KEY", {}, "has no column 'amount' .it has: order_id"),
        ("order_id text PRIMARY KEY, amount int GENERATED ALWAYS AS (1) STORED", {}, "drop it before the sink"),
        (_ORDERS, {"url": "spark.holdfast.absent"}, "has no conf of that name"),
    ],
)
def test_a_table_that_does_not_fit_is_said(
    spark: SparkSession, redis_url: str, postgres: PostgresServer, columns: str, given: dict[str, Any], says: str
) -> None:
    table = Table(spark, redis_url, postgres, columns)
    with pytest.raises(SettingError, match=says):
        table.write(("a", 1), **given)


def test_rows_that_the_table_refuses_end_the_batch_with_a_remedy_and_nothing_is_written(
    spark: SparkSession, redis_url: str, postgres: PostgresServer
) -> None:
    table = Table(spark, redis_url, postgres, "order_id text PRIMARY KEY, amount int NOT NULL")
    with pytest.raises(WriteFailed, match=r'null value in column "amount" .*: fill the column before the sink'):
        table.write(("a", 1), ("b", None))
    assert table.read() == table.staging() == []
    with pytest.raises(WriteFailed, match="a value does not fit its column: cast it"):
        table.write(("a", "x"), schema="order_id string, amount string")
    table.write(("a", 1))
    assert table.read() == [("a", 1)]


@pytest.mark.parametrize("wrong", ["password", "port"])
def test_a_server_that_is_not_reached_is_said_and_no_password_is_shown(
    table: Table, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    caplog.set_level(logging.DEBUG)
    url = table.url.replace(PASSWORD, "hunter2-secret")
    if wrong == "port":
        url = url.replace(f":{table.server.port}/", ":1/")
    with pytest.raises(WriteFailed, match=r"no connection to PostgreSQL at 127\.0\.0\.1:") as raised:
        table.write(("a", 1), url=url)
    assert "start the query again" in str(raised.value).partition("\n")[0]
    assert "hunter2" not in "".join([str(raised.value), repr(raised.value.__cause__), caplog.text])


def test_a_conf_of_the_session_may_hold_the_url_and_no_plan_shows_it(table: Table) -> None:
    table.spark.conf.set("spark.holdfast.secret.postgres", table.url)
    plans: list[str] = []
    writer = table.writer(url="spark.holdfast.secret.postgres")

    def write(rows: DataFrame, batch: BatchWrite) -> None:
        plans.append(rows._jdf.queryExecution().toString())
        writer.write(rows, batch)

    assert table.put(0, ("a", 1), write=write, safe="transaction").owned == 1
    assert PASSWORD not in plans[0]


def test_a_server_that_is_gone_without_a_word_is_noticed_within_the_time_out(
    postgres: PostgresServer,
) -> None:
    url = postgres.database()
    asked = "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"
    for given, expected in ((url, ["6", "2", "3", "12000"]), (f"{url}?tcp_user_timeout=7", ["6", "2", "3", "7"])):
        with PostgresAt(url=given, timeout_s=12.0).connected() as connection:
            said = connection.info.get_parameters()
        assert [said[each] for each in asked] == expected


def test_a_writer_pickles_and_shows_no_password() -> None:
    writer = writers.postgres("orders", "postgresql://user:hunter2@localhost/db")
    assert pickle.loads(pickle.dumps(writer)) == writer  # noqa: S301 - our own
    assert "hunter2" not in repr(writer)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"table": "a.b.c"}, "'schema.table'"),
        ({"on_conflict": "append"}, "'update' or 'nothing'"),
        ({"connections": 0}, "at least 1"),
        ({"timeout_s": 0}, "at least 1"),
        ({"url": "mysql://user:hunter2@host/db"}, "postgresql://user:password@host"),
        ({"url": "postgresql://user:hunter2@hunter2@host/db"}, "percent-encoded"),
        ({"url": "postgresql://user:hunter2@host:hunter2/db?hunter2"}, "percent-encoded"),
        ({"url": ""}, "give PostgreSQL's URL"),
    ],
)
def test_settings_that_cannot_work_are_refused_where_they_are_written(given: dict[str, Any], says: str) -> None:
    settings: dict[str, Any] = {"table": "orders", "url": "postgresql://localhost/db"} | given
    with pytest.raises(SettingError, match=says) as raised:
        writers.postgres(**settings)
    assert "hunter2" not in str(raised.value)
