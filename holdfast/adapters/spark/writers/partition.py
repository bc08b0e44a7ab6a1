"""Files in a folder of their own for each attempt, and marks that say which attempts count.

    <path>/hf_query=<query>/hf_batch=<batch>/hf_attempt=<attempt>/...   what an attempt has written
    <path>/_holdfast/<query>/<batch // 1000>/<batch>.<attempt>         empty: that attempt is finished; see marks.py
    <path>/_holdfast/_schemas/<attempt>                                which columns there are: see layout.py
    <path>/_holdfast/_compacted/...                                    what was put together since: see counting.py

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

from holdfast.adapters.spark._pyspark import F
from holdfast.adapters.spark.keys import lacking
from holdfast.adapters.spark.writers.compaction import Compacted, Compaction
from holdfast.adapters.spark.writers.counting import Counting, Manifests, Standing, name_of
from holdfast.adapters.spark.writers.files import Files, check_path
from holdfast.adapters.spark.writers.layout import ATTEMPT, OWN, RESERVED, Layout, Loading, fitted, forget, known
from holdfast.adapters.spark.writers.marks import Mark
from holdfast.adapters.spark.writers.owner import require_own
from holdfast.dedup.spark_batches import fence_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.dedup.spark_batches import Attempt

_MARKS = "_holdfast"  # Spark's readers pass over names that begin with "_"
_FOLDERS = "hf_query=*/hf_batch=*/hf_attempt=*"
_PARTS = "hf_query=*/hf_batch=*/hf_attempt=c*"  # see counting.py


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
        SettingError: no path, or one that is a pattern; or a format that is not one of these.
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
        check_path("path", self.path)
        if self.format not in ("parquet", "orc"):
            raise SettingError("format", self.format, "give 'parquet' or 'orc'")

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Write an attempt's folder; what earlier attempts of the batch have left unfinished is removed.

        Raises:
            BatchRefused: a column has another type than in the lake. Nothing is written.
            SettingError: a column has a name of the lake's own; or the lake is another sink's.
        """
        files = self._files(rows.sparkSession)
        require_own(files, self._marks, batch.sink, self.path)
        self._fit(files, rows, batch)
        folder = self._batch(batch.query, batch.batch)
        marks = self._counting(files).marks.of(batch.query, batch.batch)
        self._remove(files, f"{folder}/hf_attempt=*", batch.fence, marks)
        writer = rows.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(f"{folder}/hf_attempt={batch.attempt}")

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether some attempt of the batch has a mark, or had one until it was put together with others.

        Raises:
            SettingError: the lake is another sink's.
        """
        files = self._files(spark)
        require_own(files, self._marks, batch.sink, self.path)
        marks, inside, _ = self._counting(files).of(batch.query, batch.batch)
        return bool(marks or inside)

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """Rows whose keys no finished attempt has written."""
        return lacking(rows, self.read(rows.sparkSession), batch.key)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the attempt's mark, if its folder is there."""
        files = self._files(spark)
        of = attempt.of
        mark = Mark(of.query, of.batch, attempt.name)
        if files.found(f"{self.path}/{mark.folder}"):
            self._counting(files).marks.add(mark)

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of finished attempts, and nothing else; with the columns hf_query, hf_batch and hf_attempt.

        It has all columns that any of them has; where a batch came without one, it is null.

        Raises:
            SettingError: nothing is finished yet.
        """
        files = self._files(spark)
        standing = self._counting(files).all()
        if not standing.marks and not standing.parts:
            raise SettingError("path", self.path, "holds no finished batch yet: read it when the first one is written")
        return self._loading(spark).rows(standing, known(files, self._marks))

    def of_batch(self, spark: SparkSession, batch: BatchWrite, attempt: Attempt | None = None) -> DataFrame | None:
        """The rows that finished attempts at that batch have written, or that one of them; None: nothing."""
        files = self._files(spark)
        marks, inside, parts = self._counting(files).of(batch.query, batch.batch)
        alone, together = (
            [mark for mark in each if attempt is None or mark.attempt == attempt.name] for each in (marks, inside)
        )
        there = [mark for mark in alone if files.found(f"{self.path}/{mark.folder}")]
        if not there and not together:
            return None
        standing = Standing(frozenset(there), parts if together else ())
        rows = self._loading(spark).rows(standing, known(files, self._marks))
        return rows.where(F.col(ATTEMPT).isin([mark.attempt for mark in (*there, *together)]))

    def orphans(self, spark: SparkSession) -> list[str]:
        """Folders of attempts that are not finished, the one that is being written included."""
        files = self._files(spark)
        there = set(files.found(f"{self.path}/{_FOLDERS}"))
        return sorted(there - self._finished(files) - self._parts(files, unfinished=False))

    def require_own(self, spark: SparkSession, sink: str) -> None:
        """Raises SettingError: the lake is another sink's."""
        require_own(self._files(spark), self._marks, sink, self.path)

    def sweep(self, spark: SparkSession, fence: int) -> list[str]:
        """Remove orphans that are older than this fence: for `IdempotentSink.remove_orphans`, whose own it is. And what
        a compaction has written that nobody knows any more: it stood still for longer than the grace."""
        files = self._files(spark)
        forgotten = set(files.found(f"{self.path}/{_PARTS}"))  # a part is never there before its manifest
        forgotten -= self._parts(files, unfinished=True)
        for folder in sorted(forgotten):
            files.remove(folder)
        return sorted([*forgotten, *self._remove(files, f"{self.path}/{_FOLDERS}", fence)])

    def compact(
        self, spark: SparkSession, attempt: Attempt, finish: Callable[[], None], *, grace_s: float, file_mb: int
    ) -> Compacted:
        """Put the files of many attempts together: for `IdempotentSink.compact`, whose attempt it is.

        Args:
            spark: a session.
            attempt: that nobody else has begun.
            finish: raises where another one has begun since.
            grace_s: for how long what was replaced stays.
            file_mb: what a file is to have.

        Raises:
            SettingError: the lake has another format or `partition_by`.
        """
        files = self._files(spark)
        size = file_mb * 1_000_000
        work = Compaction(files, self.path, self._marks, name_of(attempt), grace_s=grace_s, small=size)
        something = work.look()
        # After the look: queries go on, and a column that came meanwhile would be missing in the copy.
        layout = known(files, self._marks)
        if layout and (layout.format, layout.partition_by) != (self.format, self.partition_by):
            raise SettingError(
                "write",
                f"format={self.format!r}, partition_by={self.partition_by!r}",
                f"give what {self.path} has: format={layout.format!r}, partition_by={layout.partition_by!r}",
            )
        if not something:
            return Compacted(path=self.path)
        work.write(lambda sources, to: self._loading(spark).copy(sources, layout, to, size))
        finish()
        work.mark()
        return work.remove()

    def compacted(self, spark: SparkSession, attempt: Attempt) -> None:
        """Redis knows this attempt at a compaction as finished: so it counts, if its driver came to that."""
        Manifests(self._files(spark), self._marks).finish(name_of(attempt))

    def _fit(self, files: Files, rows: DataFrame, batch: BatchWrite) -> None:
        spark, marks = rows.sparkSession, self._marks
        for name in rows.schema.names:
            if name.lower() in RESERVED:
                raise SettingError("rows", name, "the lake has a column of that name by itself: rename it, or drop it")
        old = known(files, marks, batch.fence)
        if (
            old is None and any(self._counting(files).all()) and known(files, marks) is None
        ):  # an earlier version noted none
            columns = self.read(spark).drop(*OWN.names, *self.partition_by).schema
            old = Layout(format=self.format, partition_by=self.partition_by, columns=columns)
        own = Layout(format=self.format, partition_by=self.partition_by, columns=rows.schema)
        sensitive = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
        wanted = fitted(old, own, batch, self.path, case_sensitive=sensitive)
        if wanted != old:
            forget(files, marks, batch.fence)  # each try of a batch that fails would leave one
            files.write(f"{marks}/_schemas/{batch.attempt}", wanted.json(batch))

    def _remove(self, files: Files, folders: str, fence: int, marks: set[Mark] | None = None) -> list[str]:
        """Of these folders those without a mark, of attempts older than that fence. None: all marks are looked at."""
        older = [each for each in files.found(folders) if (fence_of(_attempt(each)) or fence) < fence]
        if not older:
            return []
        left = sorted(set(older) - (self._finished(files) if marks is None else self._folders(files, marks)))
        for folder in left:
            files.remove(folder)
        return left

    def _parts(self, files: Files, *, unfinished: bool) -> set[str]:
        """All that compactions know of, those that do not hold any more too."""
        root, manifests = files.full(self.path), Manifests(files, self._marks)
        finished, begun = manifests.known()
        known = [*finished, *begun] if unfinished else finished
        return {f"{root}/{part.folder}" for each in known for part in each.parts}

    def _finished(self, files: Files) -> set[str]:
        return self._folders(files, self._counting(files).marks.all())

    def _folders(self, files: Files, marks: set[Mark]) -> set[str]:
        root = files.full(self.path)
        return {f"{root}/{mark.folder}" for mark in marks}

    def _batch(self, query: str, batch: int) -> str:
        return f"{self.path}/hf_query={query}/hf_batch={batch}"

    @property
    def _marks(self) -> str:
        return f"{self.path}/{_MARKS}"

    def _files(self, spark: SparkSession) -> Files:
        return Files(spark, self.options)

    def _counting(self, files: Files) -> Counting:
        return Counting(files, self._marks)

    def _loading(self, spark: SparkSession) -> Loading:
        return Loading(
            spark=spark, path=self.path, format=self.format, partition_by=self.partition_by, options=self.options
        )


def _attempt(folder: str) -> str:
    return folder.rpartition("hf_attempt=")[2]
