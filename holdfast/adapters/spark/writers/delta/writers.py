"""`delta_replace(table)`: appends, and replaces rows of an unfinished attempt; `delta_merge(table)`: MERGE by the key.

Attempts of a sink come one after the other, and each commit names its attempt (table.py). Therefore at most one attempt
in the table is unfinished: the last that has written. With delta_replace, the next commit, of any query and batch,
replaces that attempt's rows by its own in one step. Normally there is none, and the commit is a plain append that reads
no data. With delta_merge, repeating a merge gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark._pyspark import F
from holdfast.adapters.spark.keys import lacking, quoted
from holdfast.adapters.spark.session import LONGEST_S, changed
from holdfast.adapters.spark.writers.delta.columns import fitted
from holdfast.adapters.spark.writers.delta.table import MarkedTable, Table, app
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.dedup.spark_batches import Attempt

_FENCE = "hf_fence"


def delta_replace(table: str, *, partition_by: Sequence[str] = ()) -> DeltaReplaceWriter:
    """Append each batch to a Delta table, with the columns hf_query, hf_batch and hf_fence. Nothing is merged.

    Args:
        table: a path, or a name in the catalog; each sink needs its own. The first batch creates it.
        partition_by: the columns of partitions, if the table is created.

    Raises:
        SettingError: `table` is empty, or a pattern.
    """
    return DeltaReplaceWriter(table=table, partition_by=tuple(partition_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaReplaceWriter(MarkedTable):
    """The writer that `delta_replace` makes."""

    partition_by: tuple[str, ...] = ()
    safe: Safe = field(default="replace", init=False)

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """The number of rows whose keys no finished attempt has written."""
        return lacking(rows, self.read(rows.sparkSession, batch.sink), batch.key)

    def of_batch(self, spark: SparkSession, batch: BatchWrite, attempt: Attempt | None = None) -> DataFrame | None:
        """The rows that finished attempts at this batch have written, or only this attempt; None: there are none."""
        if not Table(spark, self.table).there:
            return None
        rows = self.read(spark, batch.sink).where(
            (F.col("hf_query") == batch.query) & (F.col("hf_batch") == batch.batch)
        )
        return rows.where(F.col(_FENCE) == attempt.fence) if attempt else rows

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Append the rows, and remove those of an unfinished attempt, in one commit. New columns are added to the
        table.

        Raises:
            BatchFenced: a later attempt has written.
            BatchRefused: a column of the table does not hold all values of the rows.
            SettingError: the session has no Delta, or another sink writes there.
        """
        table = Table(rows.sparkSession, self.table)
        # Own columns first: Delta keeps statistics only for the first columns, and finds an attempt's rows by them.
        own = rows.select(
            F.lit(batch.query).alias("hf_query"),
            F.lit(batch.batch).cast("bigint").alias("hf_batch"),
            F.lit(batch.fence).cast("bigint").alias(_FENCE),
            "*",
        )
        table.make(own, self.partition_by)
        last = table.check(batch, alone=True)
        own = fitted(own, table.columns, batch.key, batch, self.table)
        writer = own.write.format("delta").mode("append").option("mergeSchema", "true")
        if last is not None and not table.is_finished(batch.sink, last):
            writer = writer.mode("overwrite").option("replaceWhere", f"{_FENCE} IN ({last}, {batch.fence})")
        batch.check()
        with table.fenced(batch):
            writer.option("txnAppId", app(batch.sink)).option("txnVersion", batch.fence).save(table.path)

    def read(self, spark: SparkSession, sink: str) -> DataFrame:
        """The rows of the sink's finished attempts only.

        Raises:
            SettingError: there is no table yet.
        """
        table = Table(spark, self.table)
        if not table.there:
            raise SettingError("table", self.table, "is not there yet: read it when the first batch is written")
        while True:
            log = table.log(sink)
            rows = spark.read.format("delta").option("versionAsOf", log.version).load(table.path)
            if log.fence is None or table.is_finished(sink, log.fence):
                return rows
            if table.log(sink).fence == log.fence:
                return rows.where(F.col(_FENCE) != log.fence)
            # Another attempt has written since: this one may be finished, and its mark replaced by the next one's.


# DML takes a transaction identifier only from the session's confs.
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def delta_merge(
    table: str, *, matched: Literal["update", "nothing"] = "update", wait_s: float = LONGEST_S
) -> DeltaMergeWriter:
    """Merge each batch into a Delta table by the sink's key. The first batch creates the table.

    Args:
        table: a path, or a name in the catalog.
        matched: for a row whose key is in the table: "update" replaces its columns, "nothing" leaves it.
        wait_s: how long a merge waits for the merge of another sink in the same session. Sinks that run in threads
            merge one after the other; a merge that has waited so long raises WriteFailed.

    Raises:
        SettingError: a setting cannot work.
    """
    return DeltaMergeWriter(table=table, matched=matched, wait_s=wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaMergeWriter(MarkedTable):
    """The writer that `delta_merge` makes."""

    matched: str = "update"
    wait_s: float = LONGEST_S
    safe: Safe = field(default="upsert", init=False)

    def __post_init__(self) -> None:
        MarkedTable.__post_init__(self)
        if self.matched not in ("update", "nothing"):
            raise SettingError("matched", self.matched, "give 'update' or 'nothing'")
        if not self.wait_s > 0:
            raise SettingError("wait_s", self.wait_s, "give a time of more than 0 seconds")

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """The number of rows whose keys are not in the table."""
        table = Table(rows.sparkSession, self.table)
        return lacking(rows, rows.sparkSession.read.format("delta").load(table.path), batch.key)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Merge in one commit. New columns are added to the table. A column that the rows lack keeps its values, and is
        null in new rows.

        Raises:
            BatchFenced: a later attempt has written.
            BatchRefused: a column of the table does not hold all values of the rows, or would make two keys equal.
            SettingError: the session has no Delta.
            WriteFailed: another sink of the session merges for longer than `wait_s`.
        """
        spark = rows.sparkSession
        table = Table(spark, self.table)
        table.make(rows)
        table.check(batch)
        rows = fitted(rows, table.columns, batch.key, batch, self.table)
        same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in batch.key)
        update = "WHEN MATCHED THEN UPDATE SET * " if self.matched == "update" else ""
        view = "hf_" + batch.attempt.replace("-", "_")
        identified = {_APP: app(batch.sink), _VERSION: str(batch.fence)}  # only for this statement of the session
        rows.createOrReplaceTempView(view)
        try:
            with table.fenced(batch), changed(spark, identified, self.wait_s):
                batch.check()
                spark.sql(
                    f"MERGE WITH SCHEMA EVOLUTION INTO {table.name} t USING {view} s ON {same} {update}"
                    "WHEN NOT MATCHED THEN INSERT *"
                ).collect()
        finally:
            spark.catalog.dropTempView(view)
