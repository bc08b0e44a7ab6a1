"""Lakes whose many files are put together by a real Spark. Step by step, by the files alone: test_compaction_files."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrameWriter

from holdfast.adapters.spark import BatchRefused, writers
from holdfast.adapters.spark.attempt_session import AttemptSession
from holdfast.adapters.spark.writers.compaction import Compaction
from holdfast.adapters.spark.writers.files import Files
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import BatchId, Begun
from holdfast.errors import SettingError
from tests.spark.frozen import Frozen

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.dedup.redis_session import RedisSession
    from tests.spark.lake import Lake

#: Of each batch: its columns, and rows, which the columns before have to be read with.
_BATCHES: tuple[tuple[str, list[tuple[Any, ...]]], ...] = (
    ("order_id string, day string, at struct<x: int>", [("a", "2024-01-01", (1,)), ("b", "2024-01-02", None)]),
    ("order_id string, note string, day string", [("c", "n", None)]),
    ("order_id string, day string, at struct<x: int, y: int>", [("d", "2024-01-02", (1, 2)), (None, "bad", None)]),
    ("order_id string, day string", [("e", "2024-01-01")]),
)


def files(path: Path) -> int:
    return len([each for each in path.glob("hf_query=*/**/*.*") if not each.name.startswith((".", "_"))])


@pytest.mark.parametrize("form", ["parquet", pytest.param("orc", marks=pytest.mark.full)])
def test_a_lake_reads_the_same_after_its_files_were_put_together(lake: Lake, tmp_path: Path, form: Any) -> None:
    path = tmp_path / "other"
    lake.writer = writers.partition(str(path), format=form, partition_by=("day",))
    bad = writers.partition(f"{path}-bad")
    sink = lake.sink(query="q", bad_rows=bad)
    for batch, (schema, rows) in enumerate(_BATCHES):
        sink(lake.spark.createDataFrame(rows, schema), batch)

    def read() -> list[tuple[Any, ...]]:
        rows = lake.writer.read(lake.spark).select(
            "order_id", "day", "note", "at", "hf_query", "hf_batch", "hf_attempt"
        )
        return sorted((tuple(row) for row in rows.collect()), key=str)

    before, kept, many = lake.writer.read(lake.spark), read(), files(path)
    [done, of_bad] = sink.compact(lake.spark)
    assert (done.attempts, len(done.parts), done.removed) == (3, 1, ())  # the last batch stays as it is
    assert (of_bad.attempts, of_bad.parts) == (0, ())  # nothing to put together with
    assert read() == kept
    assert before.count() == 5  # who has looked before goes on
    sink(lake.spark.createDataFrame([("a", "2024-01-03"), ("f", "2024-01-03")], "order_id string, day string"), 4)
    assert (lake.reports[-1].owned, lake.reports[-1].skipped) == (1, 1)
    [again, _] = sink.compact(lake.spark, grace_s=0)
    assert (again.attempts, len(again.removed)) == (1, 3)
    [idle, _] = sink.compact(lake.spark, grace_s=0)
    assert (idle.attempts, len(idle.removed)) == (0, 2)  # the part of the first, and the attempt of the second
    assert sink.compact(lake.spark, grace_s=0)[0].removed == ()
    assert [row for row in read() if row[0] != "f"] == kept
    assert files(path) < many
    assert lake.writer.orphans(lake.spark) == []
    assert sink.remove_orphans(lake.spark) == []
    assert [row.order_id for row in lake.writer.read(lake.spark).where("hf_batch = 1").collect()] == ["c"]
    with pytest.raises(BatchRefused, match="column 'note' is int here and string in"):
        sink(lake.spark.createDataFrame([("g", "2024-01-03", 1)], "order_id string, day string, note int"), 5)


def test_a_batch_whose_files_were_put_together_is_known_when_it_comes_again(lake: Lake) -> None:
    for batch in range(4):
        lake.put(batch, (f"k{batch}", batch))
    for _ in range(2):
        lake.sink().compact(lake.spark, grace_s=0)
    assert lake.put(3, ("k3", 3)).finished_before
    lake.store.parts().client.flushdb()  # numbers begin anew, and the lake alone knows
    lake.store = RedisClaims.from_url(lake.url)
    assert lake.put(1, ("k1", 1)).finished_before
    with pytest.raises(BatchRefused, match="1 of these rows are not in the sink"):
        lake.put(2, ("k2", 2), ("new", 2))
    lake.sink().compact(lake.spark, grace_s=0)
    assert lake.read() == [(f"k{batch}", batch) for batch in range(4)]


def test_a_lake_whose_columns_nobody_has_noted_is_put_together(lake: Lake, tmp_path: Path) -> None:
    lake.put(0, ("a", 1))
    lake.sink(query="q")(lake.spark.createDataFrame([("b", "n")], "order_id string, note string"), 1)
    lake.put(2, ("c", 1))
    shutil.rmtree(tmp_path / "lake" / "_holdfast" / "_schemas")
    lake.sink().compact(lake.spark)
    rows = lake.writer.read(lake.spark).select("order_id", "amount", "note", "hf_batch").orderBy("order_id")
    assert [tuple(row) for row in rows.collect()] == [("a", 1, None, 0), ("b", None, "n", 1), ("c", 1, None, 2)]


def test_a_column_that_comes_while_a_compaction_begins_keeps_its_values(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Compaction.look

    def late(work: Compaction) -> bool:
        for batch in (1, 2):
            lake.sink(query="q")(
                lake.spark.createDataFrame([(f"k{batch}", "n")], "order_id string, note string"), batch
            )
        return look(work)

    lake.put(0, ("k0", 1))
    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "look", late)
        [done] = lake.sink().compact(lake.spark)
    assert done.attempts == 2
    rows = lake.writer.read(lake.spark).select("order_id", "amount", "note").orderBy("order_id")
    assert [tuple(row) for row in rows.collect()] == [("k0", 1, None), ("k1", None, "n"), ("k2", None, "n")]


def test_a_query_goes_on_beside_compactions(lake: Lake) -> None:
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for batch in range(8):
                lake.put(batch, (f"k{batch}", batch), (f"k{batch - 1}", batch))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive():
        lake.sink(patience_s=30).compact(lake.spark, grace_s=0)
    writing.join()
    assert errors == []
    lake.sink().compact(lake.spark, grace_s=0)
    assert [key for key, _ in lake.read()] == sorted({"k-1", *(f"k{batch}" for batch in range(8))})


#: More than a compaction has. The one of the quick run stands before its finish.
_STEPS, _QUICK = 40, 17


@pytest.mark.parametrize(
    "before", [pytest.param(n, marks=() if n == _QUICK else pytest.mark.full) for n in range(_STEPS)]
)
def test_a_compaction_that_was_frozen_and_goes_on_after_its_successors_does_no_harm(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    for batch in range(4):
        lake.put(batch, (f"k{batch}", batch))
        if batch == 2:
            lake.sink().compact(lake.spark)
    zombie = Frozen(lambda: lake.sink().compact(lake.spark, grace_s=0), before)
    zombie.watch(monkeypatch, RedisBatches, "begin", "finish", "give_up")
    zombie.watch(
        monkeypatch, Files, "found", "remove", "remove_if_empty", "touch", "write", "text", "size", "modified_ms"
    )
    zombie.watch(monkeypatch, DataFrameWriter, "save")
    sessions: list[AttemptSession] = []
    new = AttemptSession._new

    def noted(session: AttemptSession) -> RedisSession:
        sessions.append(session)
        return new(session)

    monkeypatch.setattr(AttemptSession, "_new", noted)
    zombie.stand()
    for each in sessions:  # a frozen process renews nothing
        each.session.abandon()
        RedisBatches.of(lake.store).give_up(each.session.id)
    lake.put(4, ("k4", 4))
    for _ in range(2):
        lake.sink(patience_s=30).compact(lake.spark, grace_s=0)
    assert lake.read() == [(f"k{batch}", batch) for batch in range(5)]
    zombie.go_on()
    assert before != _QUICK or zombie.steps[before] == "RedisBatches.finish", zombie.steps
    assert lake.read() == [(f"k{batch}", batch) for batch in range(5)], zombie.steps
    lake.put(5, ("k5", 5), ("k0", 5))
    lake.sink(patience_s=30).compact(lake.spark, grace_s=0)
    assert lake.read() == [(f"k{batch}", batch) for batch in range(6)], zombie.steps


def test_what_cannot_be_put_together_is_refused(lake: Lake) -> None:
    lake.put(0, ("a", 1))
    with pytest.raises(SettingError, match="is no lake"):
        lake.sink(write=lambda *_: None, safe="upsert").compact(lake.spark)
    with pytest.raises(SettingError, match="at least 0"):
        lake.sink().compact(lake.spark, grace_s=-1)
    with pytest.raises(SettingError, match="at least 1"):
        lake.sink().compact(lake.spark, file_mb=0)
    other = writers.partition(lake.writer.path, partition_by=("amount",))
    with pytest.raises(SettingError, match=r"give what .* has: format='parquet', partition_by=\(\)"):
        lake.sink(write=other).compact(lake.spark)
    begun = RedisBatches.of(lake.store).begin(BatchId("orders-lake/lake", "another", 0), lake.store.begin(30.0))
    assert isinstance(begun, Begun)
    with pytest.raises(BatchRefused, match="for query another, which writes"):
        lake.sink().compact(lake.spark)
