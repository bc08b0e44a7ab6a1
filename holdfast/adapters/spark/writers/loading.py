"""The rows of a lake, by Spark: read as `PartitionWriter.read` has them, and copied from many files into few."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import types
from holdfast.adapters.spark.keys import column

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.writers.counting import Standing
    from holdfast.adapters.spark.writers.schemas import Layout

ATTEMPT, _BATCH = "hf_attempt", "hf_batch"
#: What the names of the folders say of each row.
OWN = types.StructType().add("hf_query", "string").add(_BATCH, "long").add(ATTEMPT, "string")
#: Columns of a part, whose folder has the names of the part itself.
_INSIDE = {"hf_of_batch": _BATCH, "hf_of_attempt": ATTEMPT}
_PART = types.StructType().add("hf_of_batch", "long").add("hf_of_attempt", "string")
#: Whatever the session says: rows that are left out of a copy are gone when the files are.
_ALL_OR_NOTHING = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Of one lake, by one session."""

    spark: SparkSession
    path: str
    format: str
    partition_by: tuple[str, ...]
    options: dict[str, str]

    def rows(self, standing: Standing, layout: Layout | None) -> DataFrame:
        """Of these attempts and parts, at least one, in which a row says its own batch and attempt.

        Args:
            standing: where they are.
            layout: the columns; None: whatever any file has.
        """
        return self._joined(*self._frames(standing, layout))

    @staticmethod
    def _joined(alone: DataFrame | None, together: DataFrame | None) -> DataFrame:
        if together is None:
            return alone  # type: ignore[return-value] # there is one of them
        own = together.drop(_BATCH, ATTEMPT).withColumnsRenamed(_INSIDE)
        return own if alone is None else alone.unionByName(own, allowMissingColumns=True)

    def copy(self, sources: Standing, layout: Layout | None, to: str, size: int) -> None:
        """Write their rows into the folder of a part, in files of about so many bytes."""
        frames = self._frames(sources, layout)
        files = max(1, math.ceil(sum(_bytes(each) for each in frames if each is not None) / size))
        names = {own: inside for inside, own in _INSIDE.items()}
        rows = self._joined(*frames).drop("hf_query").withColumnsRenamed(names)
        # Batches side by side, so that who asks for some of them opens few files.
        by = [column(name) for name in (*self.partition_by, names[_BATCH])]
        writer = rows.repartitionByRange(files, *by).write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(to)

    def _frames(self, standing: Standing, layout: Layout | None) -> tuple[DataFrame | None, DataFrame | None]:
        return (
            self._read([mark.folder for mark in standing.marks], layout, OWN),
            self._read([part.folder for part in standing.parts], layout, types.StructType([*_PART, *OWN])),
        )

    def _read(self, folders: list[str], layout: Layout | None, own: types.StructType) -> DataFrame | None:
        if not folders:
            return None
        reader = self.spark.read.format(self.format).option("basePath", self.path).options(**_ALL_OR_NOTHING)
        paths = sorted(f"{self.path}/{folder}" for folder in folders)
        if layout is None:
            return reader.option("mergeSchema", "true").load(paths)
        return reader.schema(types.StructType([*layout.columns, *own])).load(paths)


def _bytes(rows: DataFrame) -> int:
    """Of all their files, as Spark has listed them to read them."""
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - pyspark has no public way to it
    return int(plan.stats().sizeInBytes())
