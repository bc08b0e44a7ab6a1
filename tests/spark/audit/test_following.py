"""The audit of a stream by a real Spark: it tells what is right, once, wherever it stopped; its state stays small."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pyspark.errors import StreamingQueryException

from holdfast.adapters.spark import reason
from holdfast.adapters.spark.audit import Audit, LiveSettings, follow, stream
from holdfast.adapters.spark.audit.writing import TableFolders
from holdfast.errors import SettingError
from tests.spark.audit.endless import Endless
from tests.spark.audit.streamed import later, send, tables, wrong
from tests.spark.audit.synthetic import played

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.harness.servers.kafka import KafkaServer

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

_NOW = {"availableNow": True}
_SHORT = LiveSettings(quiet_s=5, before_s=10, after_s=10, remember_s=60)
_MIXES = ("losses-and-crashes", "crashes", "losses-and-repeats", "events")


def put(folder: Path, number: int, lines: Iterable[str]) -> None:
    """A file of events. Spark reads files by their time."""
    file = folder / f"{number}.jsonl"
    file.write_text("\n".join(lines), errors="surrogateescape")
    os.utime(file, (1_700_000_000 + number,) * 2)


def forget_since(checkpoint: Path, batch: int) -> None:
    """As if it had been killed when that batch was written and Spark had not noted it."""
    for log, first in (("commits", batch), ("offsets", batch + 1)):
        for noted in (checkpoint / log).iterdir():
            if int(noted.name.lstrip(".").partition(".")[0]) >= first:  # also what is being written: .2.<id>.tmp
                noted.unlink(missing_ok=True)


def test_what_kafka_brings_is_told_once_though_the_query_is_stopped_and_a_batch_comes_again(
    quick: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    groups = [played(f"{mix}-0", 0, mix) for mix in _MIXES]
    lines = sorted((line for group in groups for line in group.lines), key=lambda line: json.loads(line)["at_ms"])
    kafka.create_topic("followed", 2)
    send(kafka.bootstrap, "followed", [*lines, *map(later, groups)])
    output, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def start(trigger: dict[str, Any]) -> StreamingQuery:
        few = {"maxOffsetsPerTrigger": str(len(lines) // 2)}
        come = stream(quick, f"kafka:{kafka.bootstrap}/followed", options=few)
        return follow(come, output=str(output), checkpoint=str(checkpoint), trigger=trigger)

    first = start({"processingTime": "0 seconds"})
    while first.lastProgress is None:
        first.awaitTermination(1)
    first.stop()  # most likely in the middle of a batch
    second = start(_NOW)
    second.awaitTermination()
    assert wrong(tables(output), groups) == []
    forget_since(checkpoint, max(each["batchId"] for each in second.recentProgress if each["numInputRows"]))
    start(_NOW).awaitTermination()
    assert wrong(tables(output), groups) == []


def test_the_state_of_a_group_that_goes_on_stays_as_it_is(quick: SparkSession, tmp_path: Path) -> None:
    endless, folder = Endless(), tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        put(folder, number, [*endless.lines(100), "no event", '{"v": 1, "group": "endless"}', '{"cut": ', "\udcff"])
    come = stream(quick, str(folder), options={"maxFilesPerTrigger": "1"})
    output = str(tmp_path / "out")
    query = follow(come, output=output, checkpoint=str(tmp_path / "checkpoint"), settings=_SHORT, trigger=_NOW)
    query.awaitTermination()
    states = [each["stateOperators"][0] for each in query.recentProgress if each["numInputRows"]]
    assert len(states) == 4
    assert {each["numRowsTotal"] for each in states} == {2}  # the group's, and that of lines whose group nobody knows
    sizes = [each["customMetrics"]["stateOnCurrentVersionSizeBytes"] for each in states]
    assert sizes[-1] < 1.2 * sizes[0], sizes
    found = tables(tmp_path / "out")
    # Lines of the group that nobody can read were its members' words: what is missing is unknown, and not lost.
    settled = sum(row["offsets"] for row in found["gaps"] if row["verdict"] == "unknown")
    assert settled == endless.lost
    assert sum(row["repeated"] for row in found["coverage"]) == endless.repeated


def test_a_group_that_falls_silent_is_settled_and_then_forgotten(quick: SparkSession, tmp_path: Path) -> None:
    group, others, folder = played("crashes-1", 1, "crashes"), Endless("others"), tmp_path / "in"
    folder.mkdir()
    short = LiveSettings(lateness_s=0.01, quiet_s=0.01, before_s=0.01, after_s=0.01, remember_s=0.05)
    output, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def come(name: str, lines: Iterable[str]) -> int:
        (folder / name).write_text("\n".join(lines))
        read = stream(quick, str(folder))
        query = follow(read, output=output, checkpoint=checkpoint, settings=short, silence_s=0.02, trigger=_NOW)
        query.awaitTermination()
        return int(query.recentProgress[-1]["stateOperators"][0]["numRowsTotal"])

    assert come("0.jsonl", group.lines) == 1
    before = len(tables(tmp_path / "out")["ownership"])
    assert come("1.jsonl", others.lines(1)) == 2  # it may be that nobody has read meanwhile: it is waited for once more
    assert len(tables(tmp_path / "out")["ownership"]) == before
    assert come("2.jsonl", others.lines(1)) == 2
    owned = [each for each in tables(tmp_path / "out")["ownership"] if each["group"] == group.name]
    assert len(owned) > before
    assert come("3.jsonl", others.lines(1)) == 1


def test_a_batch_that_comes_again_adds_nothing_to_a_table_of_delta(quick: SparkSession, tmp_path: Path) -> None:
    tables = TableFolders(output=str(tmp_path), format="delta")
    context = quick.sparkContext
    context.setLocalProperty("sql.streaming.queryId", "q")
    try:
        for batch in (0, 1, 1):
            row = json.dumps({"group": "g", "second_ms": batch, "records": 1.5})
            tables.write(quick.createDataFrame([("intake", row)], "table string, row string"), batch)
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]  # that takes it away
    found = quick.read.format("delta").load(f"{tmp_path}/intake").select("group", "second_ms", "records")
    assert sorted(tuple(each) for each in found.collect()) == [("g", 0, 1.5), ("g", 1, 1.5)]


def test_a_stream_tells_the_same_in_delta(quick: SparkSession, tmp_path: Path) -> None:
    endless, folder = Endless(), tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        put(folder, number, endless.lines(60))

    def start(format: Literal["parquet", "delta"]) -> StreamingQuery:  # noqa: A002 - as `follow` has it
        come = stream(quick, str(folder), options={"maxFilesPerTrigger": "1"})
        output, checkpoint = str(tmp_path / format), str(tmp_path / f"{format}-checkpoint")
        query = follow(come, output=output, checkpoint=checkpoint, settings=_SHORT, format=format, trigger=_NOW)
        query.awaitTermination()
        return query

    batches = [each["batchId"] for each in start("delta").recentProgress if each["numInputRows"]]
    assert len(batches) == 2
    forget_since(tmp_path / "delta-checkpoint", batches[-1])
    start("delta")
    start("parquet")
    for name, rows in tables(tmp_path / "parquet").items():
        again = quick.read.format("delta").load(f"{tmp_path}/delta/{name}").collect()
        assert rows, name
        alike = [{field: value for field, value in row.items() if field != "batch"} for row in rows]
        assert sorted(map(str, alike)) == sorted(str(each.asDict()) for each in again), name


def test_tables_of_another_checkpoint_and_of_a_stream_are_left_alone(quick: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(Endless().lines(1)))

    def start(checkpoint: str) -> StreamingQuery:
        lines = stream(quick, str(tmp_path / "in"))
        return follow(lines, output=str(tmp_path / "out"), checkpoint=str(tmp_path / checkpoint), trigger=_NOW)

    start("one").awaitTermination()
    before = tables(tmp_path / "out")
    with pytest.raises(StreamingQueryException) as ended:
        start("two").awaitTermination()
    assert "another query has written there" in (reason(ended.value) or "")
    with pytest.raises(SettingError, match="a stream writes its tables there"):
        Audit(tables={"intake": quick.range(1)}).write(str(tmp_path / "out"))
    assert tables(tmp_path / "out") == before


def test_what_cannot_work_is_said_before_it_starts(quick: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file or folder"):
        stream(quick, str(tmp_path / "absent"))
    with pytest.raises(SettingError, match="of one folder"):
        stream(quick, str(tmp_path), str(tmp_path))
    lines = stream(quick, str(tmp_path))
    with pytest.raises(SettingError, match="more than quiet_s"):
        follow(lines, output="o", checkpoint="c", silence_s=30)
    with pytest.raises(SettingError, match="give 'parquet' or 'delta'"):
        follow(lines, output="o", checkpoint="c", format="orc")  # type: ignore[arg-type]
