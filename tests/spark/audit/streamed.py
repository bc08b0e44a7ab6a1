"""What a stream has told of a group, brought together: by offsets, and in sums."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyarrow import dataset

from holdfast.tools.audit_report.judge.live import LiveGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.spark.audit.synthetic import Group

    Row = dict[str, Any]

#: Columns of `coverage` and `summary` of which a stream tells what has become more.
COVERED = ("handled", "skipped_key", "skipped_position", "dead_lettered", "failed", "lost", "unknown", "repeated")
SUMMED = (
    "members", "events", "missing", "dropped", "partitions", "handled", "skipped", "dead_lettered", "lost", "unknown",
    "left", "crash", "hand_over", "redelivery", "reset", "moved",
)  # fmt: skip


def send(bootstrap: str, topic: str, lines: Iterable[str]) -> None:
    """As `KafkaEvents` does: the key is the run."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for line in lines:
        producer.produce(topic, key=json.loads(line)["run"], value=line)
    assert producer.flush(60) == 0


def later(group: Group) -> str:
    """An event of one who looks on: it tells that time has passed."""
    last = json.loads(group.lines[-1])
    stamp = {"kind": "progress", "run": "later", "seq": 0, "at_ms": group.now + 100_000}
    return json.dumps(last | stamp | {"partitions": []})


def tables(output: Path) -> dict[str, list[Row]]:
    """Rows of all batches."""
    names = [each.name for each in output.iterdir() if not each.name.startswith("_")]
    return {name: dataset.dataset(output / name, partitioning="hive").to_table().to_pylist() for name in names}


def wrong(found: Mapping[str, Sequence[Row]], groups: Sequence[Group]) -> list[str]:
    """What is not as it was, of groups whose last event was `later`: a row that is missing, or told twice."""
    said = []
    for group in groups:
        mine = {name: [row for row in rows if row["group"] == group.name] for name, rows in found.items()}
        told = sum(each.told for all_ in group.truth.executed.values() for each in all_)
        pairs: dict[str, tuple[object, object]] = {
            verdict: (gaps(mine, group, verdict), Counter(getattr(group.truth, verdict)))
            for verdict in ("lost", "unknown")
        }
        repeated = {record: causes for record, (_, causes) in group.truth.repeated().items()}
        pairs["repeated"] = repeats(mine, group), repeated
        pairs["coverage"] = sums(mine["coverage"], ["handled"]), {"handled": told}
        expected = {"handled": told, "events": len(group.lines) + 1}
        pairs["summary"] = sums(mine["summary"], list(expected)), expected
        said += [f"{group.name}: {name}: {is_} for {be}" for name, (is_, be) in pairs.items() if is_ != be]
    return said


def without_spark(group: Group, at_once: int = 40) -> dict[str, list[Row]]:
    """Tables' rows."""
    live, tables = LiveGroup(group.name), dict[str, list[Any]]()
    events = [json.loads(line) for line in group.lines]
    rows = []
    for first in range(0, len(events), at_once):
        live.feed(events[first : first + at_once])
        rows += live.settle()
    for table, row in rows + live.silence():
        tables.setdefault(table, []).append(row)
    return tables


def records(row: Row, group: Group) -> list[tuple[str, int]]:
    """Those in a range: the log has holes."""
    log = group.logs[int(row["partition"])]
    return [(row["partition"], offset) for offset in log if row["first"] <= offset < row["next"]]


def gaps(tables: Mapping[str, Sequence[Row]], group: Group, *verdicts: str) -> Counter[tuple[str, int]]:
    """Records with one of these, and how often it was told."""
    rows = [row for row in tables.get("gaps", ()) if row["verdict"] in verdicts]
    return Counter(record for row in rows for record in records(row, group))


def repeats(tables: Mapping[str, Sequence[Row]], group: Group) -> dict[tuple[str, int], Counter[str]]:
    """Executions too many of a record, by cause."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for row in tables.get("duplicates", ()):
        for record in records(row, group):
            found.setdefault(record, Counter())[row["cause"]] += row["repeats"]
    return found


def sums(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, int]:
    """Of each column."""
    return {name: sum(row[name] for row in rows) for name in columns}
