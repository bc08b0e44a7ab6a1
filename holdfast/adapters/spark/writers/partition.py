"""Files in a folder of their own for each attempt, and marks that say which attempts count.

    <path>/hf_query=<query>/hf_batch=<batch>/hf_attempt=<attempt>/...   what an attempt has written
    <path>/_holdfast/<query>/<batch // 1000>/<batch>.<attempt>         empty: that attempt is finished; see marks.py
    <path>/_holdfast/_schemas/<attempt>                                which columns there are: see schemas.py

Redis decides what is finished; a mark is its copy, for readers, and for a Redis that has lost its data. It is made
after that decision, and should the driver die just then, by the next batch of the sink: a reader sees the batch
later, and never twice. What a driver of the past still writes lies in its own folder, without a mark.

A driver may stand still between any look and the removal that follows, and go on when its successor has finished. So an
attempt removes only what is *older* than itself and has no mark. Older ones never get one any more: what was finished
before it began had its mark set first (`confirm`), and everything else was fenced by its begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark._pyspark import types
from holdfast.adapters.spark.keys import lacking
from holdfast.adapters.spark.writers import schemas
from holdfast.adapters.spark.writers.files import Files
from holdfast.adapters.spark.writers.marks import Mark, Marks
from holdfast.dedup.batches import fence_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.dedup.batches import Attempt

_MARKS = "_holdfast"  # Spark's readers pass over names that begin with "_"
#: What the names of the folders say of each row.
_OWN = types.StructType().add("hf_query", "string").add("hf_batch", "long").add("hf_attempt", "string")
_FOLDERS = "hf_query=*/hf_batch=*/hf_attempt=*"


def partition(
    path: str,
    *,
    format: Literal["parquet", "orc"] = "parquet",  # noqa: A002 - as Spark has it
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> PartitionWriter:
    """Write each batch into a folder of its own, on whatever file system Spark can reach.

    Args:
        path: of the sink alone.
        format: "parquet" or "orc".
        partition_by: columns, below the batch's folder.
        options: of Spark's writer.

    Raises:
        SettingError: no path, or a format that is not one of these.
    """
    return PartitionWriter(path=path, format=format, partition_by=tuple(partition_by), options=dict(options or {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """Made by `partition`."""

    path: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    safe: Safe = field(default="replace", init=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise SettingError("path", self.path, "give the folder of the sink")
        if self.format not in ("parquet", "orc"):
            raise SettingError("format", self.format, "give 'parquet' or 'orc'")

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Write an attempt's folder; what earlier attempts of the batch have left unfinished is removed.

        Raises:
            BatchRefused: a column has another type than in the lake. Nothing is written.
        """
        files = Files(rows.sparkSession)
        self._fit(files, rows, batch)
        folder = self._batch(batch.query, batch.batch)
        self._remove(files, f"{folder}/hf_attempt=*", batch.fence, self._marks(files).of(batch.query, batch.batch))
        writer = rows.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(f"{folder}/hf_attempt={batch.attempt}")

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether some attempt of the batch has a mark."""
        return bool(self._marks(Files(spark)).of(batch.query, batch.batch))

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """Rows whose keys no finished attempt has written."""
        return lacking(rows, self.read(rows.sparkSession), batch.key)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the attempt's mark, if its folder is there."""
        files = Files(spark)
        of = attempt.of
        if files.found(f"{self._batch(of.query, of.batch)}/hf_attempt={attempt.name}"):
            self._marks(files).add(Mark(of.query, of.batch, attempt.name))

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of finished attempts, and nothing else; with the columns hf_query, hf_batch and hf_attempt.

        It has all columns that any of them has; where a batch came without one, it is null.

        Raises:
            SettingError: nothing is finished yet.
        """
        files = Files(spark)
        folders = self._finished(files)
        if not folders:
            raise SettingError("path", self.path, "holds no finished batch yet: read it when the first one is written")
        reader = spark.read.format(self.format).option("basePath", self.path)
        layout = schemas.known(files, f"{self.path}/{_MARKS}")
        if layout is None:
            return reader.option("mergeSchema", "true").load(sorted(folders))
        own = types.StructType([*layout.columns.fields, *_OWN.fields])
        return reader.schema(own).load(sorted(folders))

    def of_batch(self, spark: SparkSession, batch: BatchWrite, attempt: Attempt | None = None) -> DataFrame | None:
        """What finished attempts at that batch have written, or that one of them; None: nothing."""
        files = Files(spark)
        marks = self._marks(files).of(batch.query, batch.batch)
        counting = {mark for mark in marks if attempt is None or mark.attempt == attempt.name}
        folders = [each for each in sorted(self._folders(files, counting)) if files.found(each)]
        if not folders:
            return None
        return spark.read.format(self.format).option("basePath", self.path).load(folders)

    def orphans(self, spark: SparkSession) -> list[str]:
        """Folders of attempts that are not finished, the one that is being written included."""
        files = Files(spark)
        return sorted(set(files.found(f"{self.path}/{_FOLDERS}")) - self._finished(files))

    def sweep(self, spark: SparkSession, fence: int) -> list[str]:
        """Remove orphans that are older than this fence: for `IdempotentSink.remove_orphans`, whose own it is."""
        return self._remove(Files(spark), f"{self.path}/{_FOLDERS}", fence)

    def _fit(self, files: Files, rows: DataFrame, batch: BatchWrite) -> None:
        spark, marks = rows.sparkSession, f"{self.path}/{_MARKS}"
        old = schemas.known(files, marks, batch.fence)
        if (
            old is None and self._finished(files) and schemas.known(files, marks) is None
        ):  # an earlier version noted none
            columns = self.read(spark).drop(*_OWN.names, *self.partition_by).schema
            old = schemas.Layout(format=self.format, partition_by=self.partition_by, columns=columns)
        own = schemas.Layout(format=self.format, partition_by=self.partition_by, columns=rows.schema)
        sensitive = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
        fitted = schemas.fitted(old, own, batch, self.path, case_sensitive=sensitive)
        if fitted != old:
            files.write(f"{marks}/_schemas/{batch.attempt}", fitted.json(batch))

    def _remove(self, files: Files, folders: str, fence: int, marks: set[Mark] | None = None) -> list[str]:
        """Of these folders those without a mark, of attempts older than that fence. None: all marks are looked at."""
        older = [each for each in files.found(folders) if (fence_of(_attempt(each)) or fence) < fence]
        if not older:
            return []
        left = sorted(set(older) - (self._finished(files) if marks is None else self._folders(files, marks)))
        for folder in left:
            files.remove(folder)
        return left

    def _finished(self, files: Files) -> set[str]:
        return self._folders(files, self._marks(files).all())

    def _folders(self, files: Files, marks: set[Mark]) -> set[str]:
        root = files.full(self.path)
        return {f"{root}/hf_query={query}/hf_batch={batch}/hf_attempt={attempt}" for query, batch, attempt in marks}

    def _batch(self, query: str, batch: int) -> str:
        return f"{self.path}/hf_query={query}/hf_batch={batch}"

    def _marks(self, files: Files) -> Marks:
        return Marks(files, f"{self.path}/{_MARKS}")


def _attempt(folder: str) -> str:
    return folder.rpartition("hf_attempt=")[2]
