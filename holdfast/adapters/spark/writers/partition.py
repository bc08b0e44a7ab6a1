"""Files in a folder of their own for each attempt, and marks that say which attempts count.

    <path>/hf_query=<query>/hf_batch=<batch>/hf_attempt=<attempt>/...   what an attempt has written
    <path>/_holdfast/<query>/<batch>/<attempt>                         empty: that attempt is finished

Redis decides what is finished; a mark is its copy, for readers, and for a Redis that has lost its data. It is made
after that decision, and should the driver die just then, by the next batch of the sink: a reader sees the batch
later, and never twice. An attempt first removes what earlier ones of its batch have left; what a driver of the past
still writes after that lies in its own folder, without a mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark.writers.files import Files
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.dedup.batches import Attempt

_MARKS = "_holdfast"  # Spark's readers pass over names that begin with "_"


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
        """Write an attempt's folder; earlier attempts of the batch are removed."""
        files = Files(rows.sparkSession)
        folder = self._batch(batch.query, batch.batch)
        files.remove(folder)
        writer = rows.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(f"{folder}/hf_attempt={batch.attempt}")

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether some attempt of the batch has a mark."""
        return bool(Files(spark).found(f"{self._marks(batch.query, batch.batch)}/*"))

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the attempt's mark, if its folder is there."""
        files = Files(spark)
        of = attempt.of
        if files.found(f"{self._batch(of.query, of.batch)}/hf_attempt={attempt.name}"):
            files.touch(f"{self._marks(of.query, of.batch)}/{attempt.name}")

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of finished attempts, and nothing else; with the columns hf_query, hf_batch and hf_attempt.

        Raises:
            SettingError: nothing is finished yet.
        """
        folders = self._finished(Files(spark))
        if not folders:
            raise SettingError("path", self.path, "holds no finished batch yet: read it when the first one is written")
        return spark.read.format(self.format).option("basePath", self.path).load(sorted(folders))

    def orphans(self, spark: SparkSession) -> list[str]:
        """Folders of attempts that are not finished, the one that is being written included."""
        files = Files(spark)
        return sorted(set(files.found(f"{self.path}/hf_query=*/hf_batch=*/hf_attempt=*")) - self._finished(files))

    def sweep(self, spark: SparkSession) -> list[str]:
        """Remove orphans: for `IdempotentSink.remove_orphans`, which sees to it that nobody else is at work."""
        files, folders = Files(spark), self.orphans(spark)
        for folder in folders:
            files.remove(folder)
        return folders

    def _finished(self, files: Files) -> set[str]:
        folders = set()
        for mark in files.found(f"{self.path}/{_MARKS}/*/*/*"):
            query, batch, attempt = mark.rsplit("/", 3)[-3:]
            folders.add(files.full(f"{self._batch(query, int(batch))}/hf_attempt={attempt}"))
        return folders

    def _batch(self, query: str, batch: int) -> str:
        return f"{self.path}/hf_query={query}/hf_batch={batch}"

    def _marks(self, query: str, batch: int) -> str:
        return f"{self.path}/{_MARKS}/{query}/{batch}"
