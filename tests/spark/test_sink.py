"""The sink on a real Spark and a real Redis: batches handed to it as foreachBatch would, and one stream."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from holdfast.adapters.spark import BatchFenced, BatchRefused, BatchReport, drop_done, idempotent_sink, reason, writers
from holdfast.adapters.spark.keys import with_key
from holdfast.adapters.spark.marking import Keep, _one_row_per_key
from holdfast.adapters.spark.tasks import NAME
from holdfast.dedup.claims import ClaimKey, Verdict
from holdfast.dedup.redis_layout import Layout
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import BatchId, Begun
from holdfast.errors import KeyMissing, SettingError, StoreUnavailable
from tests.harness.servers.redis import RedisServer
from tests.spark.lake import SINK, Lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

    from holdfast.adapters.spark import BatchWrite


def test_each_key_is_written_once_whatever_batch_it_comes_in(lake: Lake) -> None:
    first = lake.put(0, ("a", 1), ("b", 2), ("b", 2))
    second = lake.put(1, ("b", 3), ("c", 4))
    assert (first.rows, first.owned, first.copies, first.skipped) == (3, 2, 1, 0)
    assert (second.rows, second.owned, second.copies, second.skipped) == (2, 1, 0, 1)
    assert lake.read() == [("a", 1), ("b", 2), ("c", 4)]
    assert lake.store.parts().client.hlen("{hf:holdfast:0}:sessions") == 0  # nothing is left of it


def test_a_finished_batch_is_skipped_loudly(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.put(0, ("a", 1))
    skipped: list[BatchReport] = []
    report = lake.put(0, ("a", 1), on_skip=skipped.append)
    assert report.finished_before
    assert skipped == [report]
    assert "batch 0 of sink orders-lake is skipped" in caplog.text
    with pytest.raises(BatchRefused, match="was skipped"):
        lake.put(0, ("a", 1), on_skip="raise")
    assert lake.read() == [("a", 1)]


def test_batch_numbers_that_begin_anew_are_refused_and_a_new_query_goes_on(lake: Lake) -> None:
    lake.put(7, ("a", 1))
    with pytest.raises(BatchRefused, match="checkpoint was deleted or put back"):
        lake.put(0, ("a", 1), ("b", 1))
    assert lake.put(0, ("a", 1), ("b", 1), query="q2").skipped == 1
    assert lake.read() == [("a", 1), ("b", 1)]


def test_a_write_that_fails_is_done_again_with_the_rows_of_the_next_try(lake: Lake) -> None:
    class Broken(Exception):
        pass

    def fail(rows: DataFrame, batch: BatchWrite) -> None:
        lake.writer.write(rows, batch)
        raise Broken

    with pytest.raises(Broken):
        lake.put(0, ("a", 1), ("gone", 1), write=fail, safe="replace")
    assert len(lake.writer.orphans(lake.spark)) == 1
    report = lake.put(0, ("a", 2), ("late", 2))
    assert (report.attempt, report.owned, report.taken_over) == (2, 2, 1)
    assert lake.read() == [("a", 2), ("late", 2)]
    assert lake.writer.orphans(lake.spark) == []
    assert lake.put(1, ("gone", 3)).owned == 1


def test_an_attempt_whose_place_was_taken_does_not_count(lake: Lake) -> None:
    def slow(rows: DataFrame, batch: BatchWrite) -> None:
        lake.put(batch.batch, ("a", 2))  # the query was started again meanwhile
        lake.writer.write(rows, batch)

    with pytest.raises(BatchFenced, match="another run of query q"):
        lake.put(0, ("a", 1), write=slow, safe="replace")
    assert lake.put(1, ("a", 3)).skipped == 1


def test_what_a_zombie_writes_late_is_an_orphan_that_readers_do_not_see(lake: Lake) -> None:
    late: list[Callable[[], None]] = []

    def keep(rows: DataFrame, batch: BatchWrite) -> None:
        own = lake.rows(("a", 1))
        late.append(lambda: lake.writer.write(own, batch))
        raise BatchRefused("stands still")

    with pytest.raises(BatchRefused, match="stands still"):
        lake.put(0, ("a", 1), write=keep, safe="replace", query="old")
    lake.put(0, ("a", 2))
    late[0]()
    assert lake.read() == [("a", 2)]
    assert len(lake.sink().remove_orphans(lake.spark)) == 1
    assert lake.writer.orphans(lake.spark) == []
    assert lake.read() == [("a", 2)]


def test_what_is_no_lake_has_no_orphans(lake: Lake) -> None:
    with pytest.raises(SettingError, match="is no lake"):
        lake.sink(write=lambda *_: None, safe="upsert").remove_orphans(lake.spark)


def test_another_query_that_lives_has_the_sink_and_is_named(lake: Lake) -> None:
    session = lake.store.begin(600.0)
    batches = RedisBatches.of(lake.store)
    assert isinstance(batches.begin(BatchId(SINK, "other", 4), session), Begun)
    with pytest.raises(BatchRefused, match=r"waited .* for query other, which writes its batch 4"):
        lake.put(0, ("a", 1))
    with pytest.raises(BatchRefused, match="query other"):
        lake.sink().remove_orphans(lake.spark)
    batches.give_up(session.id)
    assert lake.put(0, ("a", 1)).owned == 1


def test_keys_are_shared_with_consumers_that_are_not_spark(lake: Lake) -> None:
    lake.by_a_consumer("done", finish=True)
    assert lake.put(0, ("done", 1), ("a", 1)).skipped == 1
    assert lake.asked_by_a_consumer("a") is Verdict.DONE
    lake.by_a_consumer("busy", finish=False)
    with pytest.raises(BatchRefused, match="1 of its keys are in the hands of other consumers"):
        lake.put(1, ("busy", 1), ("b", 1))
    assert lake.asked_by_a_consumer("b") is Verdict.NEW  # given up at once


def test_spark_makes_the_same_digests_as_other_consumers(spark: SparkSession) -> None:
    layout = Layout("n", 1, hash_keys=True)
    rows = spark.createDataFrame(
        [("é|1", 7, b"raw"), ("", -1, b"\xff"), (None, 2**40, None)], "a string, b bigint, c binary"
    )
    expected = {
        ("a",): ["s:é|1", None, None],
        ("b",): ["n:7", "n:-1", "n:1099511627776"],
        ("c",): ["s:raw", "x:ff", None],
        ("a", "b"): ['s:["é|1",7]', None, None],
    }
    for columns, keys in expected.items():
        found = with_key(with_key(rows, columns, "key"), columns, "digest", scope="sink ü").collect()
        assert [row.key for row in found] == keys
        for row in found:
            if row.key is not None:
                [(_, name)] = layout.places([ClaimKey("sink ü", row.key)])
                assert bytes(row.digest) == name


def test_a_namespace_of_digests_is_shared_too(lake: Lake) -> None:
    lake.store.close()
    lake.store = RedisClaims.from_url(lake.url, namespace="digests", hash_keys=True)
    given: dict[str, Any] = {"namespace": "digests", "hash_keys": True}
    lake.by_a_consumer("done", finish=True)
    report = lake.put(0, ("done", 1), ("a", 1), ("a", 2), ("b", 1), **given)
    assert (report.owned, report.skipped, report.copies) == (2, 1, 1)
    assert lake.asked_by_a_consumer("a") is Verdict.DONE
    assert lake.put(1, ("b", 2), ("c", 2), **given).skipped == 1


def test_a_driver_that_died_between_finish_and_mark_has_written(lake: Lake) -> None:
    lake.put(0, ("a", 1))
    [mark] = Path(lake.writer.path, "_holdfast").glob("*/0/0.a*")  # Hadoop puts a checksum beside it
    mark.unlink()
    assert lake.sink().remove_orphans(lake.spark) == []  # it is no orphan
    assert lake.read() == [("a", 1)]
    mark.unlink()
    assert lake.put(1, ("a", 2), ("b", 2)).owned == 1  # the next batch puts it back
    assert lake.read() == [("a", 1), ("b", 2)]


def test_a_redis_that_was_emptied_does_not_write_a_finished_batch_again(lake: Lake) -> None:
    lake.put(0, ("a", 1))
    lake.store.parts().client.flushdb()
    lake.store = RedisClaims.from_url(lake.url)
    assert lake.put(0, ("a", 1)).finished_before
    assert lake.put(0, ("a", 1)).finished_before  # and Redis knows again
    assert lake.read() == [("a", 1)]


@pytest.mark.parametrize(("keep", "amount"), [(("first", "amount"), 1), (("last", "amount"), 3)])
def test_keep_says_which_row_of_a_key_wins(lake: Lake, keep: tuple[str, str], amount: int) -> None:
    lake.put(0, ("a", 2), ("a", 3), ("a", None), ("a", 1), ("b", None), keep=keep)
    assert [(row.order_id, row.amount) for row in lake.writer.read(lake.spark).orderBy("order_id").collect()] == [
        ("a", amount),
        ("b", None),
    ]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("array<int>", [1], [2]),
        ("struct<x: array<struct<y: string>>>", ([("1",)],), ([("2",)],)),
        ("map<string, int>", {"x": 1}, {"x": 2}),
    ],
)
def test_of_rows_that_differ_in_what_they_hold_the_same_one_is_kept_in_whatever_order_they_come(
    lake: Lake, kind: str, one: object, other: object
) -> None:
    def kept(*held: object) -> list[Row]:
        rows = lake.spark.createDataFrame([(b"a", each) for each in held], f"{NAME} binary, held {kind}")
        return _one_row_per_key(rows.coalesce(1), Keep()).collect()

    assert kept(one, other) == kept(other, one)


def test_of_the_copies_of_a_key_that_is_done_none_is_written(lake: Lake) -> None:
    lake.put(0, ("a", 1), ("b", 1))
    report = lake.put(1, ("a", 2), ("a", 3), ("c", 4), ("c", 4), ("c", 4), ("b", 2), ("d", 5))
    assert (report.rows, report.owned, report.copies, report.skipped) == (7, 2, 3, 2)
    assert lake.read() == [("a", 1), ("b", 1), ("c", 4), ("d", 5)]


def test_jobs_of_a_batch_say_in_sparks_ui_what_they_are(lake: Lake) -> None:
    told: list[str | None] = []

    def write(rows: DataFrame, batch: BatchWrite) -> None:
        told.append(rows.sparkSession.sparkContext.getLocalProperty("spark.job.description"))

    lake.spark.sparkContext.setJobDescription("of the application")
    lake.put(0, ("a", 1), ("a", 2), write=write, safe="upsert")
    told.append(lake.spark.sparkContext.getLocalProperty("spark.job.description"))
    lake.spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert told == ["holdfast: batch 0 of sink orders-lake, attempt 1: 1 of 2 rows written", "of the application"]


def test_several_columns_make_one_key_and_a_number_is_not_its_text(lake: Lake) -> None:
    assert lake.put(0, ("a", 1), ("a", 2), key=("order_id", "amount")).owned == 2
    assert lake.put(1, ("a", 2), ("a", 3), key=("order_id", "amount")).owned == 1
    assert lake.put(2, ("4711", 4711), key="amount").owned == 1
    assert lake.put(3, ("4711", 4711)).owned == 1


def test_rows_without_a_key_are_refused_before_anything_is_written(lake: Lake) -> None:
    with pytest.raises(KeyMissing, match="3 rows of batch 0 of sink 'orders-lake' have no key"):
        lake.put(0, (None, 1), (None, 2), ("", 1), ("a", 1))
    assert lake.asked_by_a_consumer("a") is Verdict.NEW


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": "id"}, "no such column .they have: order_id, amount"),
        ({"keep": ("last", "when")}, "no such column"),
        ({"claims": "spark.holdfast.absent"}, "has no conf of that name"),
    ],
)
def test_a_setting_that_does_not_fit_the_rows_is_said(lake: Lake, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        lake.put(0, ("a", 1), **settings)


def test_names_with_dots_are_written_and_refused_where_rows_go_through_python(lake: Lake) -> None:
    rows = lake.spark.createDataFrame([("a", 1), ("a", 1)], "`order.id` string, `n.` int")
    lake.sink(query="q", key="order.id")(rows, 0)
    assert [tuple(row)[:2] for row in lake.writer.read(lake.spark).collect()] == [("a", 1)]
    with pytest.raises(SettingError, match="rename the column"):
        lake.sink(query="q", key=("order.id", "n."))(rows, 1)
    with pytest.raises(SettingError, match="rename the column"):
        drop_done(rows, key="order.id", claims=lake.url, scope=SINK)


def test_a_column_of_a_type_that_makes_no_key_is_said(lake: Lake) -> None:
    sink = idempotent_sink(SINK, key="ratio", claims=lake.url, write=lake.writer, query="q")
    with pytest.raises(SettingError, match=r"type double makes no key: before the sink, take cast\(ratio AS string\)"):
        sink(lake.spark.createDataFrame([(0.5,)], "ratio double"), 0)


def test_a_redis_that_dies_in_the_middle_of_a_batch_ends_it_and_the_next_try_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    class DiesAfterBegin:
        safe = "replace"

        def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
            server.kill()
            return False

    with RedisServer(aof=True) as server:
        lake = Lake(spark, server.url, tmp_path / "lake")
        with pytest.raises(StoreUnavailable) as raised:
            lake.put(0, ("a", 1), write=DiesAfterBegin())
        assert str(raised.value).startswith(
            "batch 0 of sink 'orders-lake' was not written, and is when the query is started again: no answer from"
        )
        with pytest.raises(StoreUnavailable, match="no answer from the Redis"):
            lake.put(0, ("a", 1))
        server.restart()
        assert lake.put(0, ("a", 1), ("b", 1)).owned == 2
        assert lake.read() == [("a", 1), ("b", 1)]
        lake.store.close()


def test_the_stream_gets_an_id_from_spark_and_ends_with_our_sentence(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"order_id": "a", "amount": 1}\n{"order_id": "a", "amount": 1}\n')

    def run(**settings: Any) -> str:
        sink = idempotent_sink(SINK, claims=lake.url, write=lake.writer, observer=lake.reports.append, **settings)
        stream = lake.spark.readStream.schema("order_id string, amount int").json(str(tmp_path / "in"))
        writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return str(query.id)

    with pytest.raises(StreamingQueryException) as raised:
        run(key="orderid")
    said = "key='orderid': the rows have no such column (they have: order_id, amount)"
    assert reason(raised.value) == said
    assert f"sink {SINK}: {said}" in caplog.messages
    query = run(key="order_id")
    assert (lake.reports[0].query, lake.reports[0].owned, lake.reports[0].copies) == (query, 1, 1)
    assert lake.read() == [("a", 1)]


def test_drop_done_leaves_what_nobody_has_done(lake: Lake) -> None:
    lake.put(0, ("a", 1))
    lake.by_a_consumer("b", finish=True)
    lake.by_a_consumer("c", finish=False)
    rows = lake.rows(("a", 1), ("b", 1), ("c", 1), ("d", 1), ("d", 2), (None, 1))
    left = drop_done(rows, key="order_id", claims=lake.url, scope=SINK)
    assert sorted(str(row.order_id) for row in left.collect()) == ["None", "c", "d", "d"]


def test_a_conf_of_the_session_may_hold_the_url(lake: Lake) -> None:
    lake.spark.conf.set("spark.holdfast.secret.claims", lake.url)
    assert lake.put(0, ("a", 1), claims="spark.holdfast.secret.claims").owned == 1


@pytest.mark.parametrize("safe", [None, "append"])
def test_a_function_that_does_not_say_why_it_may_write_again_is_refused(safe: Any) -> None:
    with pytest.raises(SettingError, match="a function that appends doubles rows"):
        idempotent_sink(SINK, key="k", claims="redis://localhost", write=lambda rows, batch: None, safe=safe)


def test_a_sink_pickles_and_shows_no_password() -> None:
    url = "redis://user:hunter2@localhost:6379/0"
    sink = idempotent_sink(SINK, key="k", claims=url, write=writers.partition("/lake"))
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301 - our own
    assert "hunter2" not in repr(sink)
