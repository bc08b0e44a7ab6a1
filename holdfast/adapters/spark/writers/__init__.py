"""Writers: how a sink writes rows. One of these, or a function with a reason why it may be called again."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - of the alias
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from holdfast.adapters.spark.values import BatchWrite, Safe
from holdfast.adapters.spark.writers.delta import DeltaMergeWriter, DeltaReplaceWriter, delta_merge, delta_replace
from holdfast.adapters.spark.writers.partition import PartitionWriter, partition
from holdfast.adapters.spark.writers.postgres import PostgresWriter, postgres
from holdfast.dedup.not_run import check_returns, name_of_call, not_run
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from typing import TypeAlias

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import Writer
    from holdfast.dedup.spark_batches import Attempt

#: Types of a write that was prepared, but not executed.
_UNSAVED = ("DataFrameWriter", "DataFrameWriterV2", "MergeIntoWriter")

WriteFunction: TypeAlias = "Callable[[DataFrame, BatchWrite], object]"

__all__ = [
    "DeltaMergeWriter",
    "DeltaReplaceWriter",
    "PartitionWriter",
    "PostgresWriter",
    "WriteFunction",
    "delta_merge",
    "delta_replace",
    "partition",
    "postgres",
    "writer_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionWriter:
    """A writer that calls the user's function."""

    function: WriteFunction
    safe: Safe

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Call the function. Raises SettingError: it has returned a write that is not executed."""
        returned = self.function(rows, batch)
        kind = type(returned).__name__
        # Compared by name: classic Spark and Connect have classes of their own.
        if not_run(returned) is not None or kind in _UNSAVED:
            remedy = (
                f"it returned a {kind}, and nothing is written: let it end the write itself, by .save() or .append()"
            )
            raise SettingError("write", name_of_call(self.function), remedy)

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:  # noqa: ARG002 - the port's
        """Return False. A function cannot know whether the batch is finished: Redis knows."""
        return False

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Do nothing. A function is not told."""


def writer_of(write: Writer | WriteFunction, safe: Safe | None) -> Writer:
    """Make a writer from the arguments `idempotent_sink(write=, safe=)`.

    Raises:
        SettingError: a function without a valid `safe`, or a writer with one.
    """
    if not callable(write):
        if safe is not None:
            raise SettingError("safe", safe, "leave it out: this writer says by itself why it is safe")
        return write
    check_returns("write", write, name_of_call(write))
    if safe is None or safe not in get_args(Safe):
        raise SettingError(
            "safe",
            safe,
            "a driver that dies between write and finish writes again, so a function that appends doubles rows: "
            "say 'replace' if it overwrites what an earlier attempt of the batch has written, 'upsert' if it merges by "
            "the key, or 'transaction' if rows and a row that names the batch are one transaction; or "
            "take a writer of `writers`",
        )
    return FunctionWriter(function=write, safe=safe)
