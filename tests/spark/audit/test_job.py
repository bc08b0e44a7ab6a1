"""The audit over groups with planted faults, all in one pass of a real Spark: it finds each of them, and no other."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from holdfast.adapters.spark.audit import Audit, audit, read
from holdfast.errors import SettingError
from holdfast.plugin.audit.tables import TABLES
from tests.spark.audit import streamed
from tests.spark.audit.synthetic import MIXES, Group, moved_to, played, stood_still

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer

    Row = dict[str, Any]

_RUN = ("run", "started_ms", "ended_ms", "ended", "complete", "handled", "unreported")
_OWNED = ("partition", "run", "trigger", "from_ms", "to_ms", "ended_by", "position", "said", "first", "next", "records")
_IN_KAFKA = 6  # groups
_IN_DELTA = ("gaps",)
_ENDS = ("done", "left", "alive")
_SEEDS = 3
_END_MS = 1_700_001_000_000


class Judged:
    """Groups, and the tables of their audit."""

    def __init__(self, spark: SparkSession, kafka: KafkaServer, folder: Path) -> None:
        self.groups = [
            played(f"{mix}-{seed}", seed, mix, _ENDS[seed % len(_ENDS)]) for mix in MIXES for seed in range(_SEEDS)
        ]
        self.still, self.still_at_ms = stood_still("still")
        for group in (*self.groups, self.still):
            if group is not self.still:  # who is silent while others are not was killed
                group.lines = moved_to(group.lines, _END_MS)
            (folder / f"{group.name}.jsonl").write_text("\n".join(group.lines) + "\n")
        one, two = self.groups[:2]
        (folder / f"{one.name}.jsonl.gz").write_bytes(gzip.compress((folder / f"{one.name}.jsonl").read_bytes()))
        with (folder / f"{two.name}.jsonl").open("a") as file:  # of a later version, and cut
            file.write(two.lines[-1].replace('"v": 1', '"v": 99') + "\n")
            file.write(two.lines[-1][: two.lines[-1].index('"seq"')])  # it still says whose it was
        kafka.create_topic("judged", 2)
        for group in self.groups[-_IN_KAFKA:]:
            streamed.send(kafka.bootstrap, "judged", group.lines)
            (folder / f"{group.name}.jsonl").unlink()
        events = read(spark, str(folder)).unionByName(read(spark, f"kafka:{kafka.bootstrap}/judged"))
        with audit(spark, events) as found:
            found.write(str(folder / "tables"))
            some = Audit(tables={name: found.tables[name] for name in _IN_DELTA})
            for _ in range(2):  # what was there is replaced
                some.write(str(folder / "delta"), "delta")
        self.in_delta = {name: spark.read.format("delta").load(f"{folder}/delta/{name}").count() for name in _IN_DELTA}
        self.tables: dict[str, list[Row]] = {}
        for name, table in TABLES.items():
            rows = parquet.read_table(folder / "tables" / name)
            assert tuple(rows.column_names) == table.names
            self.tables[name] = rows.to_pylist()

    def of(self, table: str, group: Group) -> list[Row]:
        return [each for each in self.tables[table] if each["group"] == group.name]

    def records(self, row: Row, group: Group) -> set[tuple[str, int]]:
        """Those in a range: the log has holes."""
        log = group.logs[int(row["partition"])]
        return {(row["partition"], offset) for offset in log if row["first"] <= offset < row["next"]}


@pytest.fixture(scope="module")
def judged(spark: SparkSession, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return Judged(spark, kafka, tmp_path_factory.mktemp("audit"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("verdict", ["lost", "unknown", "left", "pending"])
def test_each_gap_gets_its_verdict_and_there_is_no_other(judged: Judged, verdict: str) -> None:
    for group in judged.groups:
        rows = [each for each in judged.of("gaps", group) if each["verdict"] == verdict]
        found = set().union(*(judged.records(each, group) for each in rows))
        assert found == getattr(group.truth, verdict), group.name


def test_each_repetition_is_found_with_its_cause_and_there_is_no_other(judged: Judged) -> None:
    for group in judged.groups:
        found: dict[tuple[str, int], tuple[int, Counter[str | None]]] = {}
        for row in judged.of("duplicates", group):
            for record in judged.records(row, group):
                found.setdefault(record, (row["executions"], Counter()))[1][row["cause"]] += row["repeats"]
        assert found == group.truth.repeated(), group.name


def test_each_key_that_was_executed_twice_is_found(judged: Judged) -> None:
    for group in judged.groups:
        found = {each["key"]: each["executions"] for each in judged.of("duplicate_keys", group)}
        assert found == {key: times for key, times in group.truth.keys.items() if times > 1}, group.name
        sent_twice = {each["key"] for each in judged.of("duplicate_keys", group) if each["cause"] != "repeat"}
        assert sent_twice == {key for key in found if key.startswith("twice-")}, group.name


def test_the_summary_says_the_same(judged: Judged) -> None:
    for group in judged.groups:
        [row] = judged.of("summary", group)
        assert row["handled"] == sum(each.told for all_ in group.truth.executed.values() for each in all_), group.name
        assert row["killed"] == group.truth.killed, group.name
        assert (row["lost"] > 0) == bool(group.truth.lost), group.name
        assert row["unreadable"] == 2


def test_events_that_come_twice_count_once(judged: Judged) -> None:
    [row] = judged.of("summary", judged.groups[0])
    assert row["events"] == len(judged.groups[0].lines)


def test_tables_may_be_those_of_delta(judged: Judged) -> None:
    assert judged.in_delta == {name: len(judged.tables[name]) for name in _IN_DELTA}


def test_members_say_how_they_ended_and_what_is_missing_of_them(judged: Judged) -> None:
    for group in judged.groups:
        members = judged.of("members", group)
        assert sum(each["ended"] == "killed" for each in members) == group.truth.killed, group.name
        lossy = group.name.startswith(("events", "drops"))
        assert any(not each["complete"] and each["ended"] == "clean" for each in members) <= lossy, group.name
        if lossy and group.truth.unknown:
            assert sum(each["missing"] + each["dropped"] for each in members), group.name


def test_a_stream_of_the_same_events_comes_to_the_same(judged: Judged) -> None:
    for group in judged.groups:
        if group.name.endswith("-2"):
            continue  # it goes on: here it is pending; there it is silent for so long that it was killed
        batch = {name: judged.of(name, group) for name in judged.tables}
        stream = streamed.without_spark(group)
        for verdict in ("lost", "unknown"):
            assert streamed.gaps(stream, group, verdict) == streamed.gaps(batch, group, verdict), (group.name, verdict)
        assert streamed.repeats(stream, group) == streamed.repeats(batch, group), group.name
        [summary] = batch["summary"]
        summed = streamed.sums(stream["summary"], streamed.SUMMED)
        if summary["over"] and not summary["left"]:
            assert summed == {name: summary[name] for name in streamed.SUMMED}, group.name
        for row in batch["coverage"]:
            parts = [each for each in stream["coverage"] if each["partition"] == row["partition"]]
            assert streamed.sums(parts, streamed.COVERED) == {name: row[name] for name in streamed.COVERED}, group.name
            last = {name: parts[-1][name] for name in ("begin", "position", "end", "lag")}
            assert last == {name: row[name] for name in last}, group.name
        for name, columns in (
            ("members", ("run", "ended", "complete", "handled", "unreported")),
            ("ownership", _OWNED),
        ):
            told = Counter(tuple(each[column] for column in columns) for each in stream[name])
            assert told == Counter(tuple(each[column] for column in columns) for each in batch[name]), group.name


def test_a_standstill_is_as_long_as_it_was(judged: Judged) -> None:
    group, at_ms = judged.still, judged.still_at_ms
    ended = sorted({each.at_ms for all_ in group.truth.executed.values() for each in all_})
    still_ms = min(each for each in ended if each > at_ms) - max(each for each in ended if each <= at_ms)
    row = next(each for each in judged.of("rebalances", group) if each["began_ms"] == at_ms)
    assert row["moved"] == 2
    assert abs(row["stop_ms"] - still_ms) <= 100
    pauses = [each for each in judged.of("pauses", group) if each["rebalance"] == row["rebalance"]]
    assert [each["waiting"] for each in pauses] == [True, True]
    assert all(abs(each["pause_ms"] - still_ms) <= 200 for each in pauses)
    assert all(0 < each["recovered_ms"] < 8_000 for each in pauses)


def test_a_spike_of_intake_is_seen_against_the_rate_before(judged: Judged) -> None:
    row = next(each for each in judged.of("rebalances", judged.still) if each["began_ms"] == judged.still_at_ms)
    assert 2.4 < row["peak_ratio"] < 3.6
    assert 24 < row["steady_per_s"] < 36


def test_places_without_events_are_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file or folder"):
        read(spark, str(tmp_path / "absent"))
    with pytest.raises(SettingError, match="name folders or files"):
        read(spark)
    with pytest.raises(SettingError, match="give one kafka:"):
        read(spark, "kafka:localhost:9092")
