"""What the columns of a real PostgreSQL make of keys and values. Without a Spark: a task's rows are Arrow's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import types

from holdfast.adapters.spark import BatchFenced, BatchRefused, BatchWrite, WriteFailed, writers
from holdfast.adapters.spark.writers.postgres import kinds, merging, staging, target
from holdfast.dedup.spark_batches import Attempt, BatchId
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.postgres import PostgresServer

pytestmark = pytest.mark.full

_TEXT, _WHOLE = types.StringType(), types.LongType()
_ARROW: dict[types.DataType, pa.DataType] = {_TEXT: pa.string(), _WHOLE: pa.int64()}
_UUID = "a0938eac-5cdb-48be-ae34-8800c7e7450d"


class Keys:
    """A table of keys, written batch by batch. A batch: how many rows the table has afterwards."""

    def __init__(self, url: str, kind: str, of: types.DataType = _TEXT) -> None:
        self._ask(
            url, f"DROP TABLE IF EXISTS k, holdfast_batches; CREATE TABLE k (k {kind} NOT NULL, v text, UNIQUE (k))"
        )
        self.url = url
        self.at = writers.postgres("k", url, timeout_s=1).at
        self._of = of
        self._batch = 0

    @staticmethod
    def _ask(url: str, statement: str) -> list[Any]:
        own = "-c statement_timeout=0 -c default_transaction_read_only=off"
        with psycopg.connect(url, autocommit=True, options=own) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def put(self, *keys: object, note: str = "") -> int:
        self._batch += 1
        fence = 1_700_000_000_000 + self._batch
        batch = BatchWrite.of(Attempt(BatchId("s", "q", self._batch), 1, f"s{fence}", fence), ("k",), len(keys))
        into = self._target()
        with self.at.connected() as connection:
            merging.prepare(connection, into.schema)
            stage = staging.Stage.of(into, batch)
            staging.make(connection, stage, into)
        rows = pa.record_batch({"k": pa.array(keys, _ARROW[self._of]), "v": pa.array([note] * len(keys))})
        try:
            staged = staging.Staged([1], staging.copied(self.at, stage, into, 1, [rows]))
            with self.at.connected() as connection:
                merging.merge(connection, into, stage, staged, batch, update=True)
        finally:
            staging.remove(self.at, into.schema, "s", below=batch.fence + 1)
        [(found,)] = self._ask(self.url, "SELECT count(*) FROM k")
        return int(found)

    def lacking(self, *keys: object) -> int:
        rows = pa.record_batch({"k": pa.array(keys, _ARROW[self._of])})
        return staging.absent(self.at, self._target(), rows)

    def _target(self) -> target.Target:
        with self.at.connected() as connection:
            looked = target.look(connection, "k", ["k", "v"], ["k"])
        return replace(looked, raw=kinds.canonical("k", types.StructField("k", self._of), looked.columns["k"]))


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    made = postgres.database()
    database = made.rpartition("/")[2]
    for statement in (
        "CREATE EXTENSION citext",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN any_case AS citext",
        "CREATE DOMAIN price AS numeric(6,2)",
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    ):
        postgres.execute(statement, database)
    return made


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("uuid", _UUID, _UUID.upper()),
        ("uuid", _UUID, _UUID.replace("-", "")),
        ("citext", "a", "A"),
        ("any_case", "a", "A"),
        ("char(5)", "a", "a "),
        ("varchar(3)", "abc", "abc "),
        ("int", "7", "07"),
        ("bigint", "7", " 7"),
        ("numeric", "1.5", "1.50"),
        ("numeric(6,2)", "1", "1.004"),
        ("price", "1.5", "1.501"),
    ],
)
def test_two_keys_that_are_one_in_the_column_are_never_written_as_one(
    url: str, kind: str, one: str, other: str
) -> None:
    keys = Keys(url, kind)
    assert keys.put(one) == 1
    for again in ([other], [one, other]):
        with pytest.raises(
            BatchRefused, match=r"1 of its keys are written otherwise than column 'k' \(\w+\) of public"
        ):
            keys.put(*again)
    assert keys.lacking(one) == 0
    assert keys.lacking(other) == 1
    assert keys.put(one) == 1


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("text", ("a", "A", "a ", "ä")),
        ("varchar", ("a", "A", "a ")),
        ("varchar(9)", ("a", "A")),
        ("char(9)", ("a", "A", "a b")),
        ("citext", ("a", "b")),
        ("mood", ("sad", "ok")),
        ("numeric", ("1.5", "-2", "0")),
    ],
)
def test_keys_that_are_two_in_the_column_are_written(url: str, kind: str, written: tuple[str, ...]) -> None:
    keys = Keys(url, kind)
    assert keys.put(*written) == keys.put(*written) == len(written)
    assert keys.lacking(*written) == 0


@pytest.mark.parametrize("kind", ["int", "bigint", "numeric", "price", "text", "varchar(9)", "citext"])
def test_whole_numbers_are_keys_in_each_column_that_keeps_them_apart(url: str, kind: str) -> None:
    keys = Keys(url, kind, _WHOLE)
    assert keys.put(7, -8) == keys.put(7, -8) == 2
    assert keys.lacking(7, 9) == 1


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("interval", _TEXT),
        ("timestamptz", _TEXT),
        ("jsonb", _TEXT),
        ("float8", _TEXT),
        ("text COLLATE any_case", _TEXT),
        ("float8", _WHOLE),
        ("real", _WHOLE),
        ("boolean", _WHOLE),
        ("numeric(6,-2)", _WHOLE),
    ],
)
def test_a_column_whose_equal_values_have_several_texts_takes_no_keys(url: str, kind: str, of: types.DataType) -> None:
    with pytest.raises(SettingError, match=r"two (keys|texts) for one"):
        Keys(url, kind, of).put(*([1] if of is _WHOLE else ["1"]))


def test_an_index_that_takes_two_keys_for_one_is_refused_where_the_column_does_not(url: str) -> None:
    keys = Keys(url, "text")
    Keys._ask(url, "CREATE UNIQUE INDEX ON k (k COLLATE any_case)")
    with pytest.raises(SettingError, match="a unique index on the key has a collation that takes two texts for one"):
        keys.put("a")


def test_a_text_with_a_nul_is_refused_by_the_name_of_its_column(url: str) -> None:
    with pytest.raises(WriteFailed, match="column 'v' has a text with a NUL"):
        Keys(url, "text").put("a", note="x\0y")


def _field(of: types.DataType) -> types.StructField:
    return types.StructField("v", of)


@pytest.mark.parametrize(
    ("of", "kind", "holds"),
    [
        (types.TimestampType(), "date", False),
        (types.TimestampNTZType(), "time", False),
        (types.TimestampType(), "timestamp", True),
        (types.DateType(), "timestamp", True),
        (types.DecimalType(10, 3), "numeric(10,2)", False),
        (types.DecimalType(10, 2), "numeric(12,3)", True),
        (types.DecimalType(10, 2), "price", True),
        (types.DecimalType(10, 3), "price", False),
        (types.DecimalType(20, 0), "float8", False),
        (types.ArrayType(types.DecimalType(10, 3)), "numeric(10,2)[]", False),
        (types.ArrayType(types.TimestampType()), "timestamptz[]", True),
        (types.DoubleType(), "real", False),
        (types.DoubleType(), "numeric(10,2)", False),
        (types.DoubleType(), "numeric", True),
        (types.LongType(), "float8", False),
        (types.LongType(), "numeric(20,-2)", False),
        (types.IntegerType(), "float8", True),
        (types.IntegerType(), "real", False),
        (types.LongType(), "int", True),  # what is too large is an error of the server's
        (types.StringType(), "numeric(10,2)", True),  # a text is read as PostgreSQL reads it
    ],
)
def test_a_column_that_would_round_or_cut_values_is_refused(
    url: str, of: types.DataType, kind: str, holds: bool
) -> None:
    Keys._ask(url, f"DROP TABLE IF EXISTS v; CREATE TABLE v (k text PRIMARY KEY, v {kind})")
    with writers.postgres("v", url).at.connected() as connection:
        into = target.look(connection, "v", ["v"], ["k"]).columns["v"]
    if holds:
        kinds.check_holds("v", _field(of), into)
        return
    with pytest.raises(SettingError, match="does not hold all of its values: cast it before the sink"):
        kinds.check_holds("v", _field(of), into)


@pytest.fixture
def set_by_default(url: str, postgres: PostgresServer) -> Iterator[Callable[[str], None]]:
    """Settings of the whole database."""
    database, names = url.rpartition("/")[2], []

    def put(setting: str) -> None:
        names.append(setting.partition(" ")[0])
        postgres.execute(f"ALTER DATABASE {database} SET {setting}")

    yield put
    for name in names:
        postgres.execute(f"ALTER DATABASE {database} RESET {name}")


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_zombie_is_refused_whatever_isolation_the_database_has_by_default(
    url: str, set_by_default: Callable[[str], None], isolation: str
) -> None:
    """It waits for the sink's lock while another query's attempt writes: it must see what that has written."""
    keys = Keys(url, "text")
    keys.put("a")
    set_by_default(f"default_transaction_isolation TO '{isolation}'")
    into = keys._target()
    later = BatchWrite.of(Attempt(BatchId("s", "q2", 0), 1, "s-later", 1_800_000_000_000), ("k",), 0)
    zombie = BatchWrite.of(Attempt(BatchId("s", "q3", 0), 1, "s-zombie", 1_750_000_000_000), ("k",), 0)
    nothing = (staging.Stage.of(into, zombie), staging.Staged([], 0))
    with keys.at.connected() as slow:
        slow.execute("SELECT 1")  # under another isolation it would have seen by now all that it ever sees
        with keys.at.connected() as connection:
            merging.merge(connection, into, *nothing, later, update=True)
        with pytest.raises(BatchFenced, match="knows a later attempt"):
            merging.merge(slow, into, *nothing, zombie, update=True)


@pytest.mark.parametrize(
    "setting",
    ["default_transaction_read_only TO on", "statement_timeout TO '20ms'", "lock_timeout TO '1ms'"],
)
def test_a_batch_is_written_whatever_the_database_allows_by_default(
    url: str, set_by_default: Callable[[str], None], setting: str
) -> None:
    keys = Keys(url, "text")
    set_by_default(setting)
    with keys.at.connected() as connection:
        connection.execute("SELECT pg_sleep(0.05)")
    assert keys.put("a") == 1


def test_a_batch_is_on_disk_before_it_counts_where_the_database_answers_earlier_by_default(
    url: str, set_by_default: Callable[[str], None]
) -> None:
    keys = Keys(url, "text")
    keys.put("a")
    for by_default, then in (("off", "on"), ("local", "local")):
        set_by_default(f"synchronous_commit TO {by_default}")
        into = keys._target()
        batch = BatchWrite.of(Attempt(BatchId("s", "q", 1), 1, "s-later", 1_800_000_000_000), ("k",), 0)
        with keys.at.connected() as connection:
            nothing = (staging.Stage.of(into, batch), staging.Staged([], 0))
            merging.merge(connection, into, *nothing, batch, update=True)
            assert connection.execute("SHOW synchronous_commit").fetchone() == (then,)


def test_a_table_that_is_locked_is_waited_for_as_long_as_is_said_and_the_holder_is_named(url: str) -> None:
    keys = Keys(url, "text")
    keys.put("a")
    with psycopg.connect(url, application_name="an-alter") as other:
        other.execute("LOCK TABLE k IN ACCESS EXCLUSIVE MODE")
        says = r"holds the table or the sink for long: .*an-alter, idle in transaction"
        with pytest.raises(WriteFailed, match=says):
            keys.put("b")
        with pytest.raises(WriteFailed, match=says):
            keys.lacking("b")
    with psycopg.connect(url, application_name="an-audit") as other:
        other.execute("LOCK TABLE holdfast_batches IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(WriteFailed, match="an-audit"), keys.at.connected() as connection:
            merging.confirm(connection, "public", "s", "q", "a1-s")


def test_queries_that_ended_long_ago_are_forgotten_once_there_are_many(url: str) -> None:
    keys = Keys(url, "text")
    keys.put("a")
    Keys._ask(
        url,
        "INSERT INTO holdfast_batches SELECT 's', 'old' || n, 0, 'a1-s', 1, 1, now(), now() - interval '1 year' "
        "FROM generate_series(1, 200) n",
    )
    Keys._ask(url, "UPDATE holdfast_batches SET finished_at = now() WHERE query = 'old7'")
    Keys._ask(url, "UPDATE holdfast_batches SET sink = 'another' WHERE query = 'old8'")
    assert keys.put("b") == 2
    assert Keys._ask(url, "SELECT query FROM holdfast_batches ORDER BY 1") == [("old7",), ("old8",), ("q",)]
