"""Writes each attempt's files into a folder of its own; marks say which attempts count.

    <path>/hf_query=<query>/hf_batch=<batch>/hf_attempt=<attempt>/...   the files of an attempt
    <path>/_holdfast/<query>/<batch // 1000>/<batch>.<attempt>         empty: the attempt is finished; see marks.py
    <path>/_holdfast/_sinks/<name>                                     empty: the sink that owns the lake; see owner.py

This is no table format: it has no list of files and no schema, and rewrites nothing. Delta is one.

Redis decides which attempts are finished. A mark is a copy of that decision, for readers, and for a Redis that has lost
its data. It is set after the decision; if the driver dies in between, the sink's next batch sets it. A reader then sees
the batch later, but never twice. Files that a former driver still writes are in its own folder, without a mark.

A driver may be stopped between a check and the following removal, and go on when its successor has finished. Therefore
an attempt removes only folders that are *older* than itself and have no mark. An older attempt never gets a mark any
more: if it was finished before this one began, its mark was set first (`confirm`); all others were fenced by the begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark._pyspark import AnalysisException, types
from holdfast.adapters.spark.keys import lacking
from holdfast.adapters.spark.writers.files import Files, check_path
from holdfast.adapters.spark.writers.marks import Mark, Marks
from holdfast.adapters.spark.writers.owner import require_own, require_plain
from holdfast.dedup.spark_batches import fence_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, DataFrameReader, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.dedup.spark_batches import Attempt

_MARKS = "_holdfast"  # Spark's readers skip names that begin with "_"
_FOLDERS = "hf_query=*/hf_batch=*/hf_attempt=*"
#: Columns that a reader takes from the names of folders.
_OWN = types.StructType().add("hf_query", "string").add("hf_batch", "long").add("hf_attempt", "string")
#: Override the session's confs: a reader that skips files would show a part of a batch.
_ALL_OR_NOTHING = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


def partition(
    path: str,
    *,
    format: Literal["parquet", "orc"] = "parquet",  # noqa: A002 - as Spark has it
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> PartitionWriter:
    """Write each batch into a folder of its own, on any file system that Spark supports.

    Args:
        path: the folder of the lake; each sink needs its own.
        format: "parquet" or "orc".
        partition_by: columns for folders below the batch's. `read` returns them as text.
        options: options of Spark's writer.

    Raises:
        SettingError: the path is empty or a pattern, or the format is another one.
    """
    return PartitionWriter(path=path, format=format, partition_by=tuple(partition_by), options=dict(options or {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """The writer that `partition` makes."""

    path: str
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    safe: Safe = field(default="replace", init=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise SettingError("path", self.path, "give the folder of the sink")
        check_path("path", self.path)
        if self.format not in ("parquet", "orc"):
            raise SettingError("format", self.format, "give 'parquet' or 'orc'")

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Write an attempt's folder, and remove the folders of earlier unfinished attempts of the batch.

        Raises:
            SettingError: a column has a name that the lake uses itself; or the lake belongs to another sink, or was
                compacted by an earlier version.
        """
        for name in rows.schema.names:
            if name.lower() in _OWN.names:
                raise SettingError("rows", name, "the lake has a column of that name by itself: rename it, or drop it")
        files = self._files(rows.sparkSession)
        require_own(files, self._marks_folder, batch.sink, self.path)
        folder = f"{self.path}/hf_query={batch.query}/hf_batch={batch.batch}"
        self._remove(files, f"{folder}/hf_attempt=*", batch.fence, self._marks(files).of(batch.query, batch.batch))
        writer = rows.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(f"{folder}/hf_attempt={batch.attempt}")

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether some attempt of the batch has a mark.

        Raises:
            SettingError: the lake is another sink's, or was compacted by an earlier version.
        """
        files = self._files(spark)
        require_own(files, self._marks_folder, batch.sink, self.path)
        return bool(self._marks(files).of(batch.query, batch.batch))

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """The number of rows whose keys no finished attempt has written."""
        spark = rows.sparkSession
        keys = types.StructType([rows.schema[name] for name in batch.key])
        paths = self._paths(self._marks(self._files(spark)).all())
        there = self._reader(spark).schema(keys).load(paths) if paths else rows.limit(0)
        return lacking(rows, there, batch.key)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the attempt's mark, if its folder exists."""
        files = self._files(spark)
        of = attempt.of
        mark = Mark(of.query, of.batch, attempt.name)
        if files.found(f"{self.path}/{mark.folder}"):
            self._marks(files).add(mark)

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of finished attempts only, with the columns hf_query, hf_batch and hf_attempt.

        The result has the columns of all batches, for which Spark opens each file; a column that a batch lacks is null
        there. Columns of `partition_by` are text, as the names of their folders.

        Raises:
            SettingError: there is no row of a finished batch yet; or the lake was compacted by an earlier version.
            Spark's own error: a column has two types, or files have another format or another `partition_by`.
        """
        files = self._files(spark)
        require_plain(files, self._marks_folder, self.path)
        rows = self._rows(spark, self._marks(files).all())
        if rows is None:
            raise SettingError("path", self.path, "holds no finished batch yet: read it when the first one is written")
        return rows

    def of_batch(self, spark: SparkSession, batch: BatchWrite, attempt: Attempt | None = None) -> DataFrame | None:
        """The rows that finished attempts at this batch have written, or only this attempt; None: there are none."""
        files = self._files(spark)
        marks = self._marks(files).of(batch.query, batch.batch)
        wanted = [mark for mark in marks if attempt is None or mark.attempt == attempt.name]
        return self._rows(spark, [mark for mark in wanted if files.found(f"{self.path}/{mark.folder}")])

    def orphans(self, spark: SparkSession) -> list[str]:
        """The folders of unfinished attempts, including one that is being written."""
        files = self._files(spark)
        there = files.found(f"{self.path}/{_FOLDERS}")
        return sorted(set(there) - self._folders(files, self._marks(files).all()))

    def require_own(self, spark: SparkSession, sink: str) -> None:
        """Check the lake's owner. Raises SettingError: another sink's, or compacted by an earlier version."""
        require_own(self._files(spark), self._marks_folder, sink, self.path)

    def sweep(self, spark: SparkSession, fence: int) -> list[str]:
        """Remove orphans that are older than this fence, which `IdempotentSink.remove_orphans` has taken. Returns their
        folders."""
        return self._remove(self._files(spark), f"{self.path}/{_FOLDERS}", fence)

    def _remove(self, files: Files, folders: str, fence: int, marks: set[Mark] | None = None) -> list[str]:
        """Remove those of the folders that have no mark and are older than the fence. Returns them. `marks` None: read
        all marks."""
        older = [each for each in files.found(folders) if (fence_of(_attempt(each)) or fence) < fence]
        if not older:
            return []
        left = sorted(set(older) - self._folders(files, self._marks(files).all() if marks is None else marks))
        for folder in left:
            files.remove(folder)
        return left

    def _rows(self, spark: SparkSession, marks: Iterable[Mark]) -> DataFrame | None:
        """The rows of these attempts; None: they have no file."""
        paths, reader = self._paths(marks), self._reader(spark)
        if not paths:
            return None
        try:
            merged = reader.option("mergeSchema", "true").load(paths).schema
        except AnalysisException as error:
            if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":  # no rows, and with `partition_by` no file then
                return None
            raise
        # From hf_query on, columns come from names of folders. Spark would guess their types, and turn "007" into 7.
        first = merged.names.index(_OWN.names[0])
        text = [types.StructField(name, types.StringType()) for name in merged.names[first + len(_OWN) :]]
        return reader.schema(types.StructType([*merged.fields[:first], *_OWN, *text])).load(paths)

    def _paths(self, marks: Iterable[Mark]) -> list[str]:
        return sorted(f"{self.path}/{mark.folder}" for mark in marks)

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.format(self.format).option("basePath", self.path).options(**_ALL_OR_NOTHING)

    def _folders(self, files: Files, marks: set[Mark]) -> set[str]:
        root = files.full(self.path)
        return {f"{root}/{mark.folder}" for mark in marks}

    @property
    def _marks_folder(self) -> str:
        return f"{self.path}/{_MARKS}"

    def _marks(self, files: Files) -> Marks:
        return Marks(files, self._marks_folder)

    def _files(self, spark: SparkSession) -> Files:
        return Files(spark, self.options)


def _attempt(folder: str) -> str:
    return folder.rpartition("hf_attempt=")[2]
