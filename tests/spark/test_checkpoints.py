"""Checkpoints as people treat them: deleted, put back, half deleted, shared, copied; names used again.

Whatever comes under the number of a finished batch, each key is in the sink once in the end, or the batch is refused.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from holdfast.adapters.spark import BatchRefused, BatchReport, idempotent_sink, reason, writers
from holdfast.adapters.spark.batch_status import is_replay
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import Attempt, BatchId, Finished
from holdfast.errors import KeyMissing
from tests.harness.servers.postgres import ask
from tests.spark.lake import SINK, Lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchWrite
    from holdfast.adapters.spark.values import Writer
    from tests.harness.servers.postgres import PostgresServer


class Stream:
    """Files of orders, read as a stream, one a batch, into a sink."""

    def __init__(self, spark: SparkSession, redis_url: str, folder: Path, writer: Writer, query: str | None) -> None:
        self.folder = folder
        self.reports: list[BatchReport] = []
        self._spark = spark
        self._sink = idempotent_sink(
            "orders", key="order_id", claims=redis_url, write=writer, query=query, observer=self.reports.append
        )
        self.files = 0  #: names of those that come

    def put(self, *orders: str, into: str = "in") -> None:
        """One file more."""
        (self.folder / into).mkdir(exist_ok=True)
        text = "".join(json.dumps({"order_id": each, "amount": 1}) + "\n" for each in orders)
        new = self.folder / "new"
        new.write_text(text)
        new.rename(self.folder / into / f"{self.files}.json")
        self.files += 1

    def clear(self) -> None:
        """Nobody is to read again what was read."""
        for file in (self.folder / "in").iterdir():
            file.unlink()

    def run(self, checkpoint: str = "checkpoint", into: str = "in") -> None:
        """To the end of what there is. Raises BatchRefused: the sink has ended it so."""
        stream = self._spark.readStream.schema("order_id string, amount int").option("maxFilesPerTrigger", 1)
        writer = stream.json(str(self.folder / into)).writeStream.foreachBatch(self._sink).trigger(availableNow=True)
        try:
            writer.option("checkpointLocation", str(self.folder / checkpoint)).start().awaitTermination()
        except StreamingQueryException as error:
            raise BatchRefused(reason(error) or str(error)) from error

    def keep(self, copy: str) -> None:
        shutil.copytree(self.folder / "checkpoint", self.folder / copy)

    def delete(self, *parts: str) -> None:
        for part in parts or ("",):
            shutil.rmtree(self.folder / "checkpoint" / part)


def deleted(stream: Stream) -> None:
    stream.put("a", "b")
    stream.run()
    stream.delete()
    stream.put("c")  # both files are batches again, by other numbers or not
    stream.run()


def put_back(stream: Stream) -> None:
    stream.put("a")
    stream.run()
    stream.keep("copy")
    stream.put("b")
    stream.run()
    stream.delete()
    shutil.move(stream.folder / "copy", stream.folder / "checkpoint")
    (stream.folder / "in" / "1.json").unlink()
    stream.put("b", "c")
    stream.run()


def half_deleted(stream: Stream) -> None:
    stream.put("a")
    stream.run()
    stream.delete("offsets", "commits", "sources")
    (stream.folder / "in" / "0.json").unlink()
    stream.put("a", "b", "c")
    stream.run()


def shared(stream: Stream) -> None:
    stream.put("a", into="one")
    stream.put("b", "c", into="two")
    stream.run("checkpoint", "one")
    stream.run("another", "two")


WAYS = (deleted, put_back, half_deleted, shared)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_was_touched_loses_no_key_and_doubles_none(
    spark: SparkSession,
    redis_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    way: Callable[[Stream], None],
) -> None:
    lake = writers.partition(str(tmp_path / "lake"))
    stream = Stream(spark, redis_url, tmp_path, lake, "orders")
    way(stream)
    assert sorted(row.order_id for row in lake.read(spark).collect()) == ["a", "b", "c"]
    if any(report.another for report in stream.reports):
        assert "is not the one that query orders has finished by attempt" in caplog.text
        same = way in (put_back, half_deleted)
        assert ("Both are of Spark's query" if same else "That one was of Spark's query") in caplog.text


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["postgres", "delta_merge", "delta_replace"])
def test_a_checkpoint_that_was_touched_loses_and_doubles_nothing_in_a_table(
    spark: SparkSession,
    redis_url: str,
    tmp_path: Path,
    postgres: PostgresServer,
    way: Callable[[Stream], None],
    kind: str,
) -> None:
    url, path = postgres.database(), str(tmp_path / "table")
    ask(url, "CREATE TABLE orders (order_id text PRIMARY KEY, amount int)")
    writer: Any = writers.postgres("orders", url) if kind == "postgres" else getattr(writers, kind)(path)
    way(Stream(spark, redis_url, tmp_path, writer, "orders"))
    if kind == "postgres":
        found = ask(url, "SELECT order_id FROM orders")
    else:
        rows = spark.read.format("delta").load(path) if kind == "delta_merge" else writer.read(spark, "orders")
        found = [(row.order_id,) for row in rows.collect()]
    assert sorted(order for (order,) in found) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "of_the_copy"),
    [
        ("orders", "orders"),
        pytest.param("orders", "others", marks=pytest.mark.full),
        pytest.param(None, None, marks=pytest.mark.full),  # Spark's id, which is copied with the rest
        pytest.param(None, "others", marks=pytest.mark.full),
    ],
)
def test_a_copied_checkpoint_skips_nothing_without_a_word(
    spark: SparkSession, redis_url: str, tmp_path: Path, query: str | None, of_the_copy: str | None
) -> None:
    lake = writers.partition(str(tmp_path / "lake"))

    original = Stream(spark, redis_url, tmp_path, lake, query)
    copied = Stream(spark, redis_url, tmp_path, lake, of_the_copy)
    copied.files = 100

    def run(stream: Stream, *orders: str) -> list[str]:
        stream.put(*orders)
        try:
            stream.run("checkpoint" if stream is original else "copy")
        finally:
            stream.clear()
        return sorted(row.order_id for row in lake.read(spark).collect())

    run(original, "a")
    original.keep("copy")
    run(original, "b")
    assert run(copied, "b", "c") == ["a", "b", "c"]  # batch 1 of both, by other rows
    assert [(report.batch, report.owned, report.skipped) for report in copied.reports] == [(1, 1, 1)]
    assert copied.reports[0].another == (query == of_the_copy)
    run(original, "d")
    assert run(original, "e") == ["a", "b", "c", "d", "e"]
    if query == of_the_copy:  # batch 2 of the copy, where batch 3 is finished
        with pytest.raises(BatchRefused, match=r"has finished batch 3.*give query= another name"):
            run(copied, "a", "f")
        copied = Stream(spark, redis_url, tmp_path, lake, "a-third")
        copied.files = 200
        copied.put("a", "f")  # Spark has noted that file 101 is of batch 2, and reads it again
        (tmp_path / "in" / "200.json").rename(tmp_path / "in" / "101.json")
        copied.run("copy")
        copied.clear()
    assert run(copied, "a", "f") == ["a", "b", "c", "d", "e", "f"]
    assert run(original, "g") == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_function_that_replaces_is_not_given_another_batch_under_a_number_that_is_finished(lake: Lake) -> None:
    def write(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)

    lake.put(0, ("a", 1), write=write, safe="replace")
    with pytest.raises(BatchRefused, match=r"1 of its rows have keys that are not done.*give query= another name"):
        lake.put(0, ("a", 1), ("b", 1), write=write, safe="replace")
    assert lake.put(0, ("a", 1), write=write, safe="replace").finished_before
    assert lake.put(0, ("a", 1), ("b", 1), write=write, safe="replace", query="q2").owned == 1


def test_a_row_without_a_key_is_no_part_of_a_batch_that_was_finished(lake: Lake) -> None:
    lake.put(0, ("a", 1))
    with pytest.raises(KeyMissing, match="1 rows of batch 0"):
        lake.put(0, ("a", 1), (None, 2))


def test_a_finished_batch_that_redis_has_forgotten_is_looked_up_in_the_sink(lake: Lake) -> None:
    lake.put(0, ("a", 1), ("b", 1))
    lake.store.parts().client.flushdb()
    lake.store = RedisClaims.from_url(lake.url)
    with pytest.raises(BatchRefused, match="1 of these rows are not in the sink"):
        lake.put(0, ("a", 1), ("c", 1))
    assert lake.put(0, ("b", 1), ("a", 1)).finished_before
    assert lake.read() == [("a", 1), ("b", 1)]


def test_a_batch_that_is_skipped_unseen_is_evaluated_all_the_same(lake: Lake) -> None:
    """Spark goes on from the state that an operator above the sink has of it, and that is kept by its evaluation."""
    sink = lake.sink(query="q", write=lambda rows, batch: None, safe="upsert")
    forgotten = Finished(Attempt(BatchId("orders", "q", 0), 1, "s1"), "the-query", kept=False)
    rows = lake.spark.range(1).selectExpr("raise_error('evaluated') AS order_id")
    with pytest.raises(PySparkException, match="evaluated"):
        is_replay(rows, forgotten, at=sink.at, origin="the-query", key=("order_id",), writer=sink.writer, patience_s=1)


@pytest.mark.parametrize("hash_keys", [False, True])
def test_a_batch_is_known_by_its_keys_also_when_they_have_run_out(lake: Lake, *, hash_keys: bool) -> None:
    """A key that an earlier batch had done runs out before the batch that dropped it does."""
    written: list[list[str]] = []

    def write(rows: DataFrame, batch: BatchWrite) -> None:
        written.append(sorted(row.order_id for row in rows.collect()))

    def put(batch: int, *keys: str) -> BatchReport:
        given: dict[str, Any] = {"write": write, "safe": "replace", "namespace": "prints", "hash_keys": hash_keys}
        return lake.put(batch, *((key, 1) for key in keys), **given)

    store = RedisClaims.from_url(lake.url, namespace="prints", hash_keys=hash_keys)
    put(0, "a")
    put(1, "a", "b", "b")
    RedisAdmin.of(store).forget([ClaimKey(SINK, "s:a")])
    assert put(1, "b", "a", "b").finished_before
    with pytest.raises(BatchRefused, match="1 of its rows have keys that are not done"):
        put(1, "b", "c")

    redis, attempts = store.parts().client, "{hf:prints:0}:attempts"
    for number in (each for each in redis.hkeys(attempts) if each.isdigit()):
        redis.hset(attempts, number, b"F1:past")
    assert put(1, "b", "a", "b").finished_before
    with pytest.raises(BatchRefused, match="finished that had other keys, and Redis does not remember them any more"):
        put(1, "b", "c")
    assert written == [["a"], ["b"]]
    store.close()
