"""Writes rows of a stream into tables. A repeated batch finds its rows there already.

    <output>/<table>/batch=<number>/rows.parquet    the rows of one batch: appears complete, and is never changed
    <output>/_writing/batch=<number>/...            files being written, or left by a driver that was killed
    <output>/_holdfast/<query>                      empty: the query that owns the output

A reader never sees a part of a file, or a file that vanishes for a moment. If a query is started again while the
function of the previous run still writes (Spark does not stop it), both write the same rows under the same name.

`idempotent_sink` is not used here. It asks a store for written keys, since a replay may have other rows, and since
others may write the same keys. Here a replay has the same rows, and no other program writes, so the batch's number is
enough, and the audit needs no Redis. Delta keeps that number in its own log (`txnVersion`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.adapters.spark._pyspark import ClassicDataFrame, F
from holdfast.adapters.spark.session import query_of
from holdfast.adapters.spark.writers.files import Files, check_path
from holdfast.errors import SettingError
from holdfast.tools.audit_report.tables import SUMMARY, TABLES

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.tools.audit_report.columns import Table

_MARKS, _WRITING = "_holdfast", "_writing"  # Spark's readers skip names that begin with "_"


def check_format(format: str) -> None:  # noqa: A002 - as Spark has it
    """Raises SettingError: another format."""
    if format not in ("parquet", "delta"):
        raise SettingError("format", format, "give 'parquet' or 'delta'")


def check_not_streamed(rows: DataFrame, output: str) -> None:
    """Check a folder before its tables are replaced.

    Raises:
        SettingError: a stream has written them, and could not write them again; or the path is a pattern.
    """
    check_path("output", output)
    if isinstance(rows, ClassicDataFrame) and Files(rows.sparkSession).found(f"{output}/{_MARKS}/*"):
        remedy = "a stream writes its tables there, and would lose them: name another folder, or follow its topic"
        raise SettingError("output", output, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolders:
    """The folders of the tables.

    Raises:
        SettingError: another format, or a path that is a pattern.
    """

    output: str
    format: str

    def __post_init__(self) -> None:
        check_format(self.format)
        check_path("output", self.output)

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a batch, for foreachBatch. Columns: `table`, and `row` as JSON.

        Raises:
            SettingError: the folder belongs to another query.
        """
        query = self._require_own_folder(rows)
        rows.persist()  # read once for each table; and evaluated completely, which the query's state needs
        try:
            [[names]] = rows.agg(F.collect_set("table")).collect()
            for name in sorted(names):
                of_table = F.from_json("row", TABLES[name].ddl)
                found = rows.where(F.col("table") == name).select(of_table.alias("of")).select("of.*")
                self._write(found.coalesce(1), TABLES[name], query, batch)
            self._remove_older_files(Files(rows.sparkSession), batch)
        finally:
            rows.unpersist()

    def _write(self, rows: DataFrame, table: Table, query: str, batch: int) -> None:
        path = f"{self.output}/{table.name}"
        if self.format == "delta":
            once = {"txnAppId": f"holdfast-audit/{query}/{table.name}", "txnVersion": str(batch)}
            rows.write.format("delta").options(**once).mode("append").save(path)
            return
        passing, files = f"{self.output}/{_WRITING}/batch={batch}/{table.name}-{uuid4().hex}", Files(rows.sparkSession)
        rows.write.option("maxRecordsPerFile", "0").parquet(passing)
        [part] = files.found(f"{passing}/part-*")  # one task has written
        files.move(part, f"{path}/batch={batch}/rows.parquet")
        files.remove(passing)

    def _remove_older_files(self, files: Files, batch: int) -> None:
        """Remove files of earlier batches: a former run of the query may still write this one."""
        for each in files.found(f"{self.output}/{_WRITING}/batch=*"):
            if int(each.rpartition("=")[2]) < batch:
                files.remove(each)

    def _require_own_folder(self, rows: DataFrame) -> str:
        """Check that the folder is this query's, since batch numbers are unique only within a query. Returns its id.
        Raises SettingError."""
        query, files = query_of(rows, None), Files(rows.sparkSession)
        marks = [each.rsplit("/", 1)[-1] for each in files.found(f"{self.output}/{_MARKS}/*")]
        theirs = query not in marks if marks else bool(files.found(f"{self.output}/{SUMMARY.name}"))
        if theirs:
            remedy = (
                "another query has written there, or this one with a checkpoint that is gone, or an audit that is no "
                "stream: rows would count twice. Name another folder, or remove this one"
            )
            raise SettingError("output", self.output, remedy)
        if not marks:
            files.touch(f"{self.output}/{_MARKS}/{query}")
        return query
