"""Which columns a lake has, how its files are laid out, and its rows by Spark.

    <path>/_holdfast/_schemas/<attempt>     JSON: the columns with that attempt, and how its files are laid out

All columns that its finished attempts have brought: else a reader had to open every file for it. An attempt that brings
new columns writes one before its rows. Like the rows, it counts once the attempt has its mark: of those that do, the
last one holds. So a driver of the past that writes its own late changes nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import types
from holdfast.adapters.spark.keys import column
from holdfast.adapters.spark.values import BatchRefused
from holdfast.adapters.spark.writers.counting import Counting
from holdfast.adapters.spark.writers.marks import Mark
from holdfast.dedup.spark_batches import fence_of

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite
    from holdfast.adapters.spark.writers.counting import Standing
    from holdfast.adapters.spark.writers.files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The common layout of a lake's files."""

    format: str
    partition_by: tuple[str, ...]
    columns: types.StructType

    def json(self, batch: BatchWrite) -> str:
        """The layout as it lies there: with its batch, whose mark says whether it counts."""
        return json.dumps(
            {
                "query": batch.query,
                "batch": batch.batch,
                "format": self.format,
                "partition_by": self.partition_by,
                "columns": self.columns.jsonValue(),
            }
        )


def known(files: Files, marks: str, below: int | None = None) -> Layout | None:
    """The layout of the lake; None: nobody has noted it.

    Args:
        files: the lake's.
        marks: their folder.
        below: as the attempt with this fence finds it.
    """
    there = {fence_of(each.rpartition("/")[2]) or 0: each for each in files.found(f"{marks}/_schemas/*")}
    for fence in sorted(there, reverse=True):
        if below is not None and fence >= below:
            continue
        attempt = there[fence].rpartition("/")[2]
        try:
            found = json.loads(files.text(there[fence]))
        except (ValueError, FileNotFoundError):
            continue  # cut off in the middle, or removed by a later attempt: its own never came to its rows
        if Counting(files, marks).has(Mark(found["query"], found["batch"], attempt)):
            columns = types.StructType.fromJson(found["columns"])
            return Layout(format=found["format"], partition_by=tuple(found["partition_by"]), columns=columns)
    return None


def forget(files: Files, marks: str, below: int) -> None:
    """Remove what attempts with a lower fence have noted that did not finish: they never do any more."""
    for path in files.found(f"{marks}/_schemas/*"):
        attempt = path.rpartition("/")[2]
        if (fence_of(attempt) or below) >= below:
            continue
        try:
            found = json.loads(files.text(path))
        except FileNotFoundError:
            continue  # another driver of the past was quicker
        except ValueError:
            found = None
        if found is None or not Counting(files, marks).has(Mark(found["query"], found["batch"], attempt)):
            files.remove(path)


def fitted(old: Layout | None, new: Layout, batch: BatchWrite, path: str, *, case_sensitive: bool) -> Layout:
    """The layout with what is new. Columns may come and go; what is there keeps its type.

    Raises:
        BatchRefused: a column has another type than in the lake, or the files another layout.
    """
    where = f"batch {batch.batch} of sink {batch.sink!r} was not written"
    if old is None:
        old = Layout(format=new.format, partition_by=new.partition_by, columns=types.StructType())
    for what, then, now in (("format", old.format, new.format), ("partition_by", old.partition_by, new.partition_by)):
        if then != now:
            raise BatchRefused(
                f"{where}: {path} has {what}={then!r}, and the writer says {now!r}: give it another path"
            )
    try:
        columns = _struct(old.columns, new.columns, "", case_sensitive)
    except _Differs as differs:
        name, then_is, now_is = differs.args
        raise BatchRefused(
            f"{where}: column {name!r} is {now_is} here and {then_is} in {path}, and readers could not read both: cast "
            "it before the sink, or give the writer another path"
        ) from None
    return Layout(format=new.format, partition_by=new.partition_by, columns=columns)


class _Differs(Exception):
    """args: the column, its type in the lake, and here."""


def _merged(old: types.DataType, new: types.DataType, name: str, case_sensitive: bool) -> types.DataType:
    if isinstance(old, types.StructType) and isinstance(new, types.StructType):
        return _struct(old, new, f"{name}.", case_sensitive)
    if isinstance(old, types.ArrayType) and isinstance(new, types.ArrayType):
        return types.ArrayType(_merged(old.elementType, new.elementType, f"{name}[]", case_sensitive))
    if isinstance(old, types.MapType) and isinstance(new, types.MapType):
        return types.MapType(
            _merged(old.keyType, new.keyType, f"{name}'s keys", case_sensitive),
            _merged(old.valueType, new.valueType, f"{name}[]", case_sensitive),
        )
    if old != new:
        raise _Differs(name, old.simpleString(), new.simpleString())
    return old


def _struct(old: types.StructType, new: types.StructType, prefix: str, case_sensitive: bool) -> types.StructType:
    """Nullable throughout, since a column may be missing in any file."""

    def same(name: str) -> str:
        return name if case_sensitive else name.lower()

    fields = {same(field.name): (field.name, field.dataType) for field in old.fields}
    for field in new.fields:
        name, there = fields.get(same(field.name), (field.name, field.dataType))
        fields[same(field.name)] = name, _merged(there, field.dataType, prefix + field.name, case_sensitive)
    return types.StructType([types.StructField(name, kind) for name, kind in fields.values()])


ATTEMPT, _BATCH = "hf_attempt", "hf_batch"
#: What the names of the folders say of each row.
OWN = types.StructType().add("hf_query", "string").add(_BATCH, "long").add(ATTEMPT, "string")
#: Columns of a part, whose folder has the names of the part itself.
_INSIDE = {"hf_of_batch": _BATCH, "hf_of_attempt": ATTEMPT}
_PART = types.StructType().add("hf_of_batch", "long").add("hf_of_attempt", "string")
#: A reader takes these from the folders, whatever is in the files: rows of another lake would lose theirs unseen.
RESERVED = frozenset([*OWN.names, *_PART.names])
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
