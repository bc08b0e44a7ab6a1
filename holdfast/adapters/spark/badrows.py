"""`bad_rows=`: writes rows without a key instead of ending the query.

They go to a lake of their own, or among the other rows, with a column for the fault of the key. An attempt writes them
before it finishes, and they count once it has: bad rows of an unfinished attempt are replaced, or have no mark. They
have no key to look up, so none is dropped as done. For a replay by the same query, their number is compared; if the
query that has finished the batch is not known, their content is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, types
from holdfast.adapters.spark.keys import column, with_key
from holdfast.adapters.spark.tasks import NAME
from holdfast.adapters.spark.writers import DeltaReplaceWriter, PartitionWriter, PostgresWriter
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Writer
    from holdfast.dedup.spark_batches import Attempt

#: The column for the fault, in a lake of bad rows.
_WHY = "hf_bad_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """The setting `bad_rows`, made by `bad_rows_of`.

    Args:
        main: the sink's writer.
        lake: the lake of bad rows; None: they go among the other rows.
        why: the column for the fault of the key.
    """

    main: Writer
    lake: PartitionWriter | None
    why: str

    def check(self, rows: DataFrame) -> None:
        """Check the column's name. Raises SettingError: the rows have a column of the same name, by Spark's rules for
        case, which would be overwritten."""
        sensitive = rows.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
        columns = rows.columns if sensitive else [name.lower() for name in rows.columns]
        if (self.why if sensitive else self.why.lower()) in columns:
            raise SettingError("bad_rows", self.why, "the rows have such a column already: rename it, or name another")

    def without(self, rows: DataFrame) -> DataFrame:
        """From rows with the column NAME: those with a key, ready to be written."""
        good = rows.where(F.col(NAME).isNotNull())
        return good if self.lake else good.withColumn(self.why, F.lit(None).cast("string"))

    def alone(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        """From rows with the column NAME: those without a key, with the fault."""
        return rows.where(F.col(NAME).isNull()).drop(NAME).withColumn(self.why, _why(rows, key))

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Mark the attempt's bad rows as finished. Called before the sink's own writer confirms, so that a batch that
        is marked there has its bad rows marked too."""
        if self.lake:
            self.lake.confirm(spark, attempt)

    def left(
        self,
        rows: DataFrame,
        key: Sequence[str],
        now: int,
        batch: BatchWrite,
        attempt: Attempt | None = None,
        *,
        same: bool | None,
    ) -> int:
        """How many bad rows would be lost if the batch were skipped as a replay.

        Args:
            rows: the batch.
            key: the columns of the business key.
            now: the number of its bad rows.
            batch: the batch, whose number is finished.
            attempt: the attempt that has finished it; None: any.
            same: whether the same Spark query has finished it; None: not known.
        """
        if not now or same is False:
            return now  # those of another query may be other rows, even if their number is equal
        there = self._there(rows.sparkSession, batch, attempt)
        if same:
            return 0 if there is None else max(0, now - there.count())
        if there is None or not set(rows.columns) <= set(there.columns):
            return now
        _, bad = with_and_without_key(rows, key)
        return int(_comparable(bad, rows.columns).exceptAll(_comparable(there, rows.columns)).count())

    @property
    def tells(self) -> bool:
        """Whether the written bad rows can be read again, and distinguished from other rows."""
        return isinstance(self.lake or self.main, PartitionWriter | DeltaReplaceWriter)

    def _there(self, spark: SparkSession, batch: BatchWrite, attempt: Attempt | None) -> DataFrame | None:
        """The bad rows that were written with the batch; None: this writer cannot read them."""
        writer = self.lake or self.main
        if not isinstance(writer, PartitionWriter | DeltaReplaceWriter):
            return None
        rows = writer.of_batch(spark, batch, attempt)
        if rows is None or self.why not in rows.columns:
            return spark.createDataFrame([], types.StructType())
        return rows.where(column(self.why).isNotNull())


def with_and_without_key(rows: DataFrame, key: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """(rows with a key, rows without one)."""
    named = with_key(rows, key, NAME)
    return named.where(F.col(NAME).isNotNull()).drop(NAME), named.where(F.col(NAME).isNull()).drop(NAME)


def _comparable(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows in a form that Spark can compare: maps and variants become JSON."""

    def one(name: str) -> Column:
        kind = rows.schema[name].dataType.simpleString()
        return F.to_json(F.struct(column(name))) if "map<" in kind or "variant" in kind else column(name)

    return rows.select(*map(one, names))


def bad_rows_of(given: str | PartitionWriter | None, main: Writer) -> BadRows | None:
    """Make the setting from the argument `idempotent_sink(bad_rows=)`.

    Raises:
        SettingError: the argument cannot work.
    """
    if isinstance(given, PartitionWriter):
        if isinstance(main, PartitionWriter) and main.path.rstrip("/") == given.path.rstrip("/"):
            raise SettingError("bad_rows", given.path, "is the path of the other rows: give it another, or a column")
        return BadRows(main=main, lake=given, why=_WHY)
    if given is None:
        return None
    if not given or not isinstance(given, str):
        raise SettingError("bad_rows", given, "give writers.partition(path), or the name of a column")
    if main.safe == "upsert" or isinstance(main, PostgresWriter):
        raise SettingError(
            "bad_rows",
            given,
            "a writer that merges by the key cannot take rows without one: give writers.partition(path)",
        )
    return BadRows(main=main, lake=None, why=given)


def _why(rows: DataFrame, key: Sequence[str]) -> Column:
    """The fault of the key in words, without the columns' values."""
    said = []
    for name in key:
        value, kind = column(name), rows.schema[name].dataType
        wrong = F.when(value.isNull(), F.lit(f"{name} is null"))
        if isinstance(kind, types.StringType | types.BinaryType):
            wrong = wrong.when(F.octet_length(value) == 0, F.lit(f"{name} is empty"))
        if isinstance(kind, types.StringType):
            wrong = wrong.when(~F.is_valid_utf8(value), F.lit(f"{name} is not UTF-8"))
        said.append(wrong)
    return F.concat_ws("; ", *said)
