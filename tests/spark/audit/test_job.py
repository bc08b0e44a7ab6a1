"""The audit by a real Spark, of files and of Kafka: it says what the judge says that needs none."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from holdfast.adapters.spark.audit import Audit, AuditSettings, audit, read
from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.reading import judged_files
from holdfast.tools.audit_report.tables import TABLES
from tests.spark.audit import streamed
from tests.spark.audit.planted import NAMELESS, Case, cases
from tests.spark.audit.synthetic import MIXES, moved_to, played

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

    from holdfast.tools.audit_report.columns import Table
    from tests.harness.servers.kafka import KafkaServer

    Row = dict[str, Any]

_IN_KAFKA = 4  # groups
#: Each table is a job of Spark's: all of them are written in `make test-all`.
_IN_ALL_RUNS = ["summary", "gaps", "duplicates", "ownership"]
_END_MS = 1_700_001_000_000


def put(folder: Path, case: Case, number: int) -> None:
    """Its files. A run is of one process: each case has its own."""
    folder.mkdir(parents=True)
    for name, content in case.files.items():
        of_case = content.replace(b'"run":"00000000', f'"run":"{number:08x}'.encode())
        (folder / name.replace("-00000000", f"-{number:08x}")).write_bytes(of_case)


def alike(rows: list[Row], table: Table) -> list[str]:
    """For one's eyes too: the columns in their order, the rows in some."""
    return sorted(str([row.get(name) for name in table.names]) for row in rows)


def compared(written: Path, names: Collection[str], events: Path, asked: AuditSettings) -> None:
    """Tables by Spark, and the same events as files without it."""
    judged: dict[str, list[Row]] = {name: [] for name in TABLES}
    for name, row in judged_files([str(events)], asked):
        judged[name].append(row)
    for name in names:
        table = TABLES[name]
        found = parquet.read_table(written / name)
        assert tuple(found.column_names) == table.names
        assert alike(found.to_pylist(), table) == alike(judged[name], table), name


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "session", ["quick", pytest.param("spark", marks=pytest.mark.full)]
)  # as interpreted, compiled
def test_files_and_a_topic_are_judged_as_without_spark(
    session: str, kafka: KafkaServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark: SparkSession = request.getfixturevalue(session)
    folder, rest = tmp_path / "events, in ä", tmp_path / "rest"
    folder.mkdir()
    groups = [played(f"{mix}-{seed}", seed, mix) for seed, mix in enumerate(MIXES)]
    for group in groups:  # who is silent while others are not was killed
        group.lines = moved_to(group.lines, _END_MS)
        (folder / f"{group.name}.jsonl").write_text("\n".join(group.lines) + "\n")
    (folder / "twice.jsonl.gz").write_bytes(gzip.compress("\n".join(groups[0].lines).encode()))
    planted = [each for each in cases() if each.name not in NAMELESS]
    for number, case in enumerate(planted[:: 1 if session == "spark" else 4]):
        put(folder / "planted" / str(number), case, number)
    rest.mkdir()
    topic = f"judged-{session}"
    kafka.create_topic(topic, 2)
    for group in groups[-_IN_KAFKA:]:
        streamed.send(kafka.bootstrap, topic, group.lines)
        (folder / f"{group.name}.jsonl").rename(rest / f"{group.name}.jsonl")
    asked = AuditSettings(complete=True)
    lines = read(spark, str(folder)).unionByName(read(spark, f"kafka:{kafka.bootstrap}/{topic}"))
    with audit(spark, lines, asked) as it:
        names = list(TABLES) if session == "spark" else _IN_ALL_RUNS
        Audit(tables={name: it.tables[name] for name in names}).write(str(tmp_path / "tables"))
        if session == "spark":
            gaps = Audit(tables={"gaps": it.tables["gaps"]})
            for _ in range(2):  # what was there is replaced
                gaps.write(str(tmp_path / "delta"), "delta")
    (folder / "rest").symlink_to(rest)
    compared(tmp_path / "tables", names, folder, asked)
    if session == "spark":
        in_delta = spark.read.format("delta").load(f"{tmp_path}/delta/gaps").count()
        assert in_delta == parquet.read_table(tmp_path / "tables" / "gaps").num_rows > 0


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(NAMELESS))
def test_where_nobody_knows_whose_a_file_was_spark_says_the_same(
    name: str, quick: SparkSession, tmp_path: Path
) -> None:
    for number, case in enumerate(each for each in cases() if each.name == name):
        put(tmp_path / "events" / str(number), case, number)
    (tmp_path / "events" / "dark.jsonl").write_text('{"v": 2, "group": "dark", "run": "x"}\n')
    with audit(quick, str(tmp_path / "events")) as found:
        found.write(str(tmp_path / "tables"))
    compared(tmp_path / "tables", TABLES, tmp_path / "events", AuditSettings())


def test_places_without_events_are_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file or folder"):
        read(spark, str(tmp_path / "absent"))
    with pytest.raises(SettingError, match="name folders or files"):
        read(spark)
    with pytest.raises(SettingError, match="give one kafka:"):
        read(spark, "kafka:localhost:9092")
