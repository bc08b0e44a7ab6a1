"""What goes wrong around a batch: executors, leases, stops, callbacks; and names and types that are not plain."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from holdfast.adapters.spark import BatchFenced, BatchRefused, BatchReport, idempotent_sink, require_kafka, writers
from holdfast.adapters.spark import session as of_spark
from holdfast.errors import ClientUnusable, SettingError
from tests.harness.servers.redis import RedisServer
from tests.spark.lake import SINK, Lake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.adapters.spark import BatchWrite
    from holdfast.adapters.spark.values import Safe, Writer
    from holdfast.dedup.spark_batches import Attempt


def lose_what_was_persisted(spark: SparkSession) -> None:
    """As when the executors die that hold it."""
    spark.catalog.clearCache()


@pytest.mark.parametrize("when", ["before", "after"])
def test_claims_that_are_lost_with_an_executor_lose_and_double_nothing(lake: Lake, when: str) -> None:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        if when == "before":
            lose_what_was_persisted(lake.spark)
        lake.writer.write(rows, batch)
        if when == "after":  # the attempt is finished by the time at which they are asked again, to settle
            lose_what_was_persisted(lake.spark)

    lake.put(0, ("a", 1), ("b", 1), write=write, safe="replace")
    assert lake.put(1, ("a", 2), ("b", 2), ("c", 2)).skipped == 2
    assert lake.read() == [("a", 1), ("b", 1), ("c", 2)]


def test_claims_lost_with_an_executor_while_redis_is_away_fail_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        lose_what_was_persisted(spark)
        server.kill()
        try:
            lake.writer.write(rows, batch)
        finally:
            server.restart()

    with RedisServer(aof=True) as server:
        lake = Lake(spark, server.url, tmp_path / "lake")
        lake.put(0, ("a", 1))
        with pytest.raises(PySparkException, match="claims were lost with an executor"):
            lake.put(1, ("a", 2), ("b", 1), write=write, safe="replace")
        assert lake.put(1, ("a", 2), ("b", 1)).owned == 1
        assert lake.read() == [("a", 1), ("b", 1)]
        lake.store.close()


def test_a_lease_that_is_lost_in_the_middle_of_the_write_is_seen_by_the_finish(lake: Lake) -> None:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)
        lake.store.parts().client.delete("{hf:holdfast:0}:sessions")

    with pytest.raises(BatchFenced, match="was silent for longer than lease_s"):
        lake.put(0, ("a", 1), write=write, safe="replace")
    assert lake.put(0, ("a", 2)).owned == 1
    assert lake.read() == [("a", 2)]


def test_a_stop_in_the_middle_of_the_write_lets_the_keys_go_at_once(lake: Lake) -> None:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.put(0, ("a", 1), write=write, safe="replace")
    assert lake.put(3, ("a", 2), query="other", patience_s=1).taken_over == 1
    assert lake.read() == [("a", 2)]


def test_an_observer_that_fails_is_logged_and_the_batch_counts(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: BatchReport) -> None:
        raise LookupError(report.batch)

    lake.sink(query="q", observer=fail)(lake.rows(("a", 1)), 0)
    assert "the observer failed on BatchReport" in caplog.text
    assert lake.put(1, ("a", 2)).skipped == 1


def test_a_function_for_skips_may_end_the_query(lake: Lake) -> None:
    def fail(report: BatchReport) -> None:
        raise LookupError(report.batch)

    lake.put(0, ("a", 1))
    with pytest.raises(LookupError):
        lake.put(0, ("a", 1), on_skip=fail)


@pytest.mark.parametrize("setting", ["observer", "on_skip"])
def test_a_function_that_nothing_would_await_is_refused(lake: Lake, setting: str) -> None:
    async def told(report: BatchReport) -> None:
        raise LookupError(report.batch)

    given: dict[str, Any] = {setting: told}
    with pytest.raises(SettingError, match=rf"{setting}=.*nothing awaits it"):
        lake.sink(query="q", **given)


def test_a_replay_with_other_rows_does_not_free_the_keys_that_it_lacks(lake: Lake) -> None:
    class DiesBeforeSettle(Exception):
        pass

    class Writer:
        safe = "replace"

        def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
            return False

        def write(self, rows: DataFrame, batch: BatchWrite) -> None:
            lake.writer.write(rows, batch)

        def confirm(self, spark: SparkSession, attempt: Any) -> None:
            lake.writer.confirm(spark, attempt)
            raise DiesBeforeSettle

    with pytest.raises(DiesBeforeSettle):
        lake.put(0, ("a", 1), ("b", 1), write=Writer())
    assert lake.put(0, ("a", 1), ("other", 1)).another
    assert lake.put(1, ("a", 2), ("b", 2)).skipped == 2
    assert lake.read() == [("a", 1), ("b", 1), ("other", 1)]


def test_a_batch_of_nothing_counts(lake: Lake) -> None:
    report = lake.put(0)
    assert (report.rows, report.owned, report.finished_before) == (0, 0, False)
    assert lake.put(0).finished_before


def test_columns_with_odd_names_are_keys_and_values(lake: Lake) -> None:
    rows = lake.spark.createDataFrame(
        [("a", 1, "x", 1), ("a", 1, "y", 2), ("a", 2, "z", 3)],
        "`order id` string, `no:` int, `Größe {x}` string, `when` int",
    )
    written: list[Any] = []
    sink = lake.sink(
        query="q",
        key=("order id", "no:"),
        keep=("last", "when"),
        write=lambda rows, batch: written.extend(rows.collect()),
        safe="upsert",
    )
    sink(rows, 0)
    assert sorted(map(tuple, written)) == [("a", 1, "y", 2), ("a", 2, "z", 3)]
    sink(rows, 1)
    assert lake.reports[-1].skipped == 2


@pytest.mark.parametrize(
    ("type_name", "remedy"),
    [
        ("decimal(10,0)", "take cast(order_id AS string)"),
        ("date", "take cast(order_id AS string)"),
        ("timestamp", "take unix_micros(order_id)"),  # as bigint two orders of one second would be one
        ("timestamp_ntz", "take cast(order_id AS string)"),
        ("boolean", "take cast(order_id AS string)"),
        ("float", "take cast(order_id AS string)"),
        ("struct<id: string>", "make its fields columns"),
        ("array<string>", "take to_json(order_id)"),
        ("string collate UTF8_LCASE", "take collate(order_id, 'UTF8_BINARY')"),
    ],
)
def test_a_type_that_makes_no_key_is_refused_before_anything_runs_and_the_remedy_keeps_two_keys_two(
    lake: Lake, type_name: str, remedy: str
) -> None:
    with pytest.raises(SettingError, match=f"makes no key: before the sink, {re.escape(remedy)}"):
        lake.sink(query="q")(lake.spark.createDataFrame([], f"order_id {type_name}"), 0)


def test_bytes_are_a_key_if_they_are_the_only_one(lake: Lake) -> None:
    def rows(*keys: bytes) -> DataFrame:
        return lake.spark.createDataFrame([(key, 1) for key in keys], "order_id binary, amount int")

    lake.sink(query="q", write=lambda rows, batch: rows.collect(), safe="upsert")(rows(b"\xff\x00", b"a"), 0)
    assert lake.reports[-1].owned == 2
    assert lake.put(1, ("a", 1)).skipped == 1  # bytes that are text are that text
    with pytest.raises(SettingError, match="makes no key"):
        lake.sink(query="q", key=("order_id", "amount"))(rows(b"a"), 2)


@pytest.mark.parametrize("name", ["", "..", "_lake", "a/b", "a b", "a:b"])
def test_a_name_that_would_be_another_folder_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="begins with one of the first two"):
        idempotent_sink(name, key="k", claims="redis://localhost", write=writers.partition("/lake"))
    with pytest.raises(SettingError, match="begins with one of the first two"):
        idempotent_sink("s", query=name, key="k", claims="redis://localhost", write=writers.partition("/lake"))


def test_a_sink_called_outside_of_a_stream_asks_for_a_name(lake: Lake) -> None:
    with pytest.raises(
        SettingError, match=r"query=None: no id of the query is known: .* Give query='a name that stays'"
    ):
        lake.sink()(lake.rows(("a", 1)), 0)


def test_a_sink_with_functions_of_a_script_pickles_as_spark_does_it() -> None:
    told: list[BatchReport] = []
    sink = idempotent_sink(
        SINK,
        key="k",
        claims="redis://localhost",
        write=lambda rows, batch: None,
        safe="upsert",
        observer=told.append,
        on_skip=lambda report: None,
    )
    again = cloudpickle.loads(cloudpickle.dumps(sink))  # type: ignore[no-untyped-call]
    assert (again.name, again.at, again.key) == (sink.name, sink.at, sink.key)


class Orders:
    """A stream of files, and queries on it that go on from one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "0.json").write_text('{"order_id": "a", "amount": 1}\n{"order_id": "b", "amount": 2}\n')
        self._stream = spark.readStream.schema("order_id string, amount int").json(str(folder / "in"))

    def start(self, function: Any) -> StreamingQuery:
        writer = self._stream.writeStream.foreachBatch(function).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()


class Held:
    """A writer that waits for a word before it writes."""

    safe: Safe = "replace"

    def __init__(self, writer: Writer) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self._writer = writer

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        self.entered.set()
        assert self.go_on.wait(200)
        self._writer.write(rows, batch)

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        return self._writer.finished(spark, batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        self._writer.confirm(spark, attempt)


def test_a_query_stopped_in_the_middle_of_a_batch_goes_on_where_it_was(lake: Lake, tmp_path: Path) -> None:
    orders = Orders(lake.spark, tmp_path)
    held = Held(lake.writer)
    query = orders.start(lake.sink(write=held))
    assert held.entered.wait(200)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    while query.isActive:
        stopping.join(0.05)
    held.go_on.set()  # Python's function goes on after Spark has let go of it; it may even come to its end
    stopping.join()
    orders.start(lake.sink()).awaitTermination()
    assert lake.read() == [("a", 1), ("b", 2)]


def test_two_sinks_in_one_batch_are_two_fences(lake: Lake, tmp_path: Path) -> None:
    other = writers.partition(str(tmp_path / "other"))
    first, second = lake.sink(), lake.sink("other", write=other)
    broken = [True]

    def both(rows: DataFrame, batch_id: int) -> None:
        first(rows, batch_id)
        if broken:
            raise BatchRefused(f"broken {broken.pop()}")
        second(rows, batch_id)

    orders = Orders(lake.spark, tmp_path)
    with pytest.raises(PySparkException, match="broken True"):
        orders.start(both).awaitTermination()
    orders.start(both).awaitTermination()
    assert [(report.sink, report.owned, report.finished_before) for report in lake.reports] == [
        (SINK, 2, False),
        (SINK, 0, True),
        ("other", 2, False),
    ]
    assert lake.read() == [("a", 1), ("b", 2)]
    assert other.read(lake.spark).count() == 2


@pytest.fixture
def python(lake: Lake) -> Iterator[Any]:
    """What Spark starts its Python workers with; put back afterwards."""
    context: Any = lake.spark.sparkContext
    version, command = context.pythonVer, context.pythonExec
    yield context
    context.pythonVer, context.pythonExec = version, command


def test_workers_of_another_python_are_said(lake: Lake, python: Any) -> None:
    python.pythonVer = "3.9"
    with pytest.raises(ClientUnusable, match=r"need this driver's Python, 3\.\d+, .*: set PYSPARK_PYTHON"):
        lake.put(0, ("a", 1))
    python.pythonExec = "/no/such/python"
    with pytest.raises(ClientUnusable, match=r"need this driver's Python, 3\.\d+, .*: set PYSPARK_PYTHON"):
        lake.put(0, ("a", 1))


def test_workers_without_holdfast_are_said(lake: Lake, python: Any, tmp_path: Path) -> None:
    without = tmp_path / "python"
    without.write_text(f"""#!/bin/sh
exec {python.pythonExec} -c 'import runpy, sys
sys.modules["holdfast"] = None
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)' "$@"
""")
    without.chmod(0o755)
    python.pythonExec = str(without)
    with pytest.raises(ClientUnusable, match=r"cannot import holdfast: pip install 'holdfast-mq\[spark\]'"):
        lake.put(0, ("a", 1))


def test_an_error_of_what_is_above_the_sink_stays_what_it_was(lake: Lake) -> None:
    rows = lake.rows(("a", 1)).selectExpr("order_id", "cast(raise_error('of the application') as int) as amount")
    with pytest.raises(PySparkException, match="of the application"):
        lake.sink(query="q")(rows, 0)


def test_a_connector_that_is_missing_is_said_with_where_to_get_it(spark: SparkSession) -> None:
    with pytest.raises(ClientUnusable, match=r"has no connector 'kafka-of-nobody': add .*spark-sql-kafka-0-10_2.13"):
        require_kafka(spark, format="kafka-of-nobody")


def test_a_look_for_workers_has_an_end_where_they_get_no_turn(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cluster without executors keeps the job waiting, and the error that made us look would never be told."""
    monkeypatch.setattr(of_spark, "_PATIENCE_S", 0.5)
    through = str(tmp_path / "through")

    def stands_still(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(60)
        Path(through).touch()
        yield from batches

    assert of_spark._worker_failure(lake.spark, stands_still) is None
    assert not Path(through).exists()
