"""The audit of existing events with Spark, which reads and sorts them. `holdfast.tools.audit_report.judge.whole` judges
each group, in one task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, Self

from holdfast.adapters.spark._pyspark import F, pa
from holdfast.adapters.spark.audit.events import read
from holdfast.adapters.spark.audit.writing import check_format, check_not_streamed
from holdfast.tools.audit_report.judge.overview import Overview
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.judge.unread import told
from holdfast.tools.audit_report.judge.whole import judged
from holdfast.tools.audit_report.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession

    Batches = Iterable[pa.RecordBatch]

_TOLD = "group STRING, run STRING, seq LONG, at_ms LONG, line STRING"
_FOUND = "table STRING, row STRING"
_AT_ONCE = 4096  # rows in one returned batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The findings: table's name -> data frame with the columns of `TABLES`. Evaluated when they are read or written;
    shared parts are persisted until the end of `with`."""

    tables: dict[str, DataFrame]
    _kept: list[DataFrame] = field(default_factory=list, repr=False)

    def write(self, output: str, format: Literal["parquet", "delta"] = "parquet") -> None:  # noqa: A002 - as Spark has it
        """Write each table to a folder below `output`, which is replaced.

        Raises:
            SettingError: another format, or a stream has written tables there.
        """
        check_format(format)
        check_not_streamed(next(iter(self.tables.values())), output)
        for name, rows in self.tables.items():
            options = {"overwriteSchema": "true"} if format == "delta" else {}
            rows.coalesce(1).write.format(format).options(**options).mode("overwrite").save(f"{output}/{name}")

    def close(self) -> None:
        """Unpersist the shared parts."""
        for each in self._kept:
            each.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def audit(spark: SparkSession, events: DataFrame | str | Sequence[str], settings: AuditSettings | None = None) -> Audit:
    """Judge all events.

    Args:
        spark: the session.
        events: places as for `events.read`, or a data frame from it.
        settings: settings of the report.

    Raises:
        SettingError: there are no such places.
    """
    asked = settings or AuditSettings()
    if isinstance(events, str):
        events = [events]
    lines = read(spark, *events) if isinstance(events, Sequence) else events
    # Read once: a second read of a growing topic would see more events than the first.
    heard = lines.select("value", "origin").mapInArrow(_told, _TOLD).persist()
    overview = _overview(heard)
    in_order = heard.where("seq IS NOT NULL").repartition("group").sortWithinPartitions("group", "run", "seq")
    found = in_order.select("group", "line").mapInArrow(_judging(overview, asked), _FOUND)
    silent = [(table, json.dumps(row)) for table, row in overview.silent()]
    if silent:
        found = found.unionByName(spark.createDataFrame(silent, _FOUND))
    found = found.persist()
    tables = {}
    for name, table in TABLES.items():
        row = F.from_json("row", table.ddl).alias("of")
        tables[name] = found.where(F.col("table") == name).select(row).select("of.*")
    return Audit(tables=tables, _kept=[heard, found])


def _overview(heard: DataFrame) -> Overview:
    none = F.sum(F.when(F.col("seq").isNull(), 1).otherwise(0)).alias("none")
    rows = heard.groupBy("group", "run").agg(F.max("at_ms").alias("last_ms"), none).collect()
    return Overview.of((row["group"], row["run"], row["last_ms"], row["none"]) for row in rows)


def _told(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Add group, run, number and time to each line."""
    names = ["group", "run", "seq", "at_ms", "line"]
    types = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.string()]
    for batch in batches:
        lines = zip(batch.column("value").to_pylist(), batch.column("origin").to_pylist(), strict=True)
        rows = [(*told(line, origin), line) for line, origin in lines if line and line.strip()]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        arrays = [pa.array(column, of) for column, of in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _judging(overview: Overview, asked: AuditSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def judge(batches: Batches) -> Iterator[pa.RecordBatch]:
        rows = _judged(batches, overview, asked)
        while some := list(islice(rows, _AT_ONCE)):
            columns = [pa.array(column, pa.string()) for column in zip(*some, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=["table", "row"])

    return judge


def _judged(batches: Batches, overview: Overview, asked: AuditSettings) -> Iterator[tuple[str, str]]:
    """Judge group by group; the events of a group are consecutive."""
    lines = (
        line
        for batch in batches
        for line in zip(batch.column("group").to_pylist(), batch.column("line").to_pylist(), strict=True)
    )
    for group, of_group in groupby(lines, itemgetter(0)):
        for table, row in judged(group, (json.loads(line) for _, line in of_group), overview, asked):
            yield table, json.dumps(row)
