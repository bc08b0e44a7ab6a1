"""Keys that were executed more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.audit.verdicts import KeyCause

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame


def duplicate_keys(events: DataFrame) -> DataFrame:
    """The table, of events that `once` has made. A key is unique in its group and topic."""
    told = events.where((F.col("kind") == "span") & F.col("keys").isNotNull())
    keyed = told.select("group", "topic", "partition", "run", "seq", "at_ms", F.posexplode("keys").alias("nth", "of"))
    handled = keyed.where(F.col("of.outcome") == Outcome.HANDLED.value)
    # A record without an offset is known by where it was told of: each execution is one of its own.
    name = F.coalesce(F.col("of.offset").cast("string"), F.concat_ws("-", "run", "seq", "nth"))
    when = F.struct("at_ms", "seq")
    place = F.struct("partition", F.col("of.offset").alias("offset"), "at_ms")
    a_record = handled.groupBy("group", "topic", F.col("of.key").alias("key"), "partition", name.alias("__name")).agg(
        F.count(F.lit(1)).alias("__times"),
        F.min_by(place, when).alias("__first"),
        F.max_by(place, when).alias("__again"),
    )
    a_key = a_record.groupBy("group", "topic", "key").agg(
        F.sum("__times").alias("executions"),
        F.count(F.lit(1)).alias("offsets"),
        F.min_by("__first", F.col("__first.at_ms")).alias("__first"),
        F.max_by("__again", F.col("__again.at_ms")).alias("__again"),
    )
    cause = (
        F.when(F.col("offsets") == F.col("executions"), KeyCause.PRODUCER.value)
        .when(F.col("offsets") == 1, KeyCause.REPEAT.value)
        .otherwise(KeyCause.BOTH.value)
    )
    return a_key.where(F.col("executions") > 1).select(
        "group", "topic", "key", "executions", "offsets", cause.alias("cause"),
        F.col("__first.partition").alias("partition"), F.col("__first.offset").alias("offset"),
        F.col("__again.partition").alias("again_partition"), F.col("__again.offset").alias("again_offset"),
        F.col("__first.at_ms").alias("first_ms"), F.col("__again.at_ms").alias("again_ms"),
    )  # fmt: skip
