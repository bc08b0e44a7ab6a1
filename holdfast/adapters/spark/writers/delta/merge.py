"""`delta_merge(table)`: MERGE by the sink's key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark.confs import changed
from holdfast.adapters.spark.keys import lacking, quoted
from holdfast.adapters.spark.writers.delta.table import MarkedTable, Table, app
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.adapters.spark.values import BatchWrite, Safe

# DML takes a transaction identifier from the session alone.
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def delta_merge(table: str, *, matched: Literal["update", "nothing"] = "update") -> DeltaMergeWriter:
    """Merge each batch into a Delta table, by the sink's key. The table is created with the first batch.

    Args:
        table: a path, or a name in the catalog.
        matched: what happens to a row whose key is there: "update" replaces its columns, "nothing" leaves it.

    Raises:
        SettingError: a setting cannot work.
    """
    return DeltaMergeWriter(table=table, matched=matched)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaMergeWriter(MarkedTable):
    """Made by `delta_merge`."""

    matched: str = "update"
    safe: Safe = field(default="upsert", init=False)

    def __post_init__(self) -> None:
        MarkedTable.__post_init__(self)
        if self.matched not in ("update", "nothing"):
            raise SettingError("matched", self.matched, "give 'update' or 'nothing'")

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """Rows whose keys the table does not have."""
        table = Table(rows.sparkSession, self.table)
        return lacking(rows, rows.sparkSession.read.format("delta").load(table.path), batch.key)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Merge, in one commit.

        Raises:
            BatchFenced: a later attempt has written.
            SettingError: the session has no Delta.
        """
        spark = rows.sparkSession
        table = Table(spark, self.table)
        table.make(rows)
        table.check(batch)
        same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in batch.key)
        update = "WHEN MATCHED THEN UPDATE SET * " if self.matched == "update" else ""
        view = "hf_" + batch.attempt.replace("-", "_")
        identified = {_APP: app(batch.sink), _VERSION: str(batch.fence)}  # what else the session writes is not ours
        rows.createOrReplaceTempView(view)
        try:
            with table.fenced(batch), changed(spark, identified):
                spark.sql(
                    f"MERGE INTO {table.name} t USING {view} s ON {same} {update}WHEN NOT MATCHED THEN INSERT *"
                ).collect()
        finally:
            spark.catalog.dropTempView(view)
