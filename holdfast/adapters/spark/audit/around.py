"""Spans near a rebalance: how long nobody ended a record, and how much came at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, Window
from holdfast.adapters.spark.audit.facts import ENDED, PLACE
from holdfast.adapters.spark.audit.intake import early_ms, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame

_BUCKET_MS = 30_000


def stops(spans: DataFrame, clusters: DataFrame, before_ms: int, after_ms: int) -> DataFrame:
    """group, rebalance, stop_ms: the longest time without the end of a record, of those that reach into the rebalance
    or begin within `before_ms` of it."""
    windows = clusters.select(
        "group",
        "rebalance",
        (F.col("began_ms") - before_ms).alias("__from"),
        _until(after_ms).alias("__to"),
        F.col("began_ms").alias("__began"),
        (F.col("ended_ms") + before_ms).alias("__ended"),
    )
    near = _near(spans.withColumn("__early", early_ms()), windows, ("group",))
    in_time = Window.partitionBy("group", "rebalance").orderBy("__early", "ended_ms")
    last = F.max("ended_ms").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    still = near.withColumn("__last", last).where(
        (F.col("__early") >= F.col("__began")) & (F.col("__last") <= F.col("__ended"))
    )
    pause = F.greatest(F.col("__early") - F.col("__last"), F.lit(0))
    return still.groupBy("group", "rebalance").agg(F.max(pause).alias("stop_ms"))


def peaks(spans: DataFrame, clusters: DataFrame, assignments: DataFrame, before_ms: int, after_ms: int) -> DataFrame:
    """group, rebalance, steady_per_s, peak_per_s, peak_ratio: of the member with the highest ratio, and of what it
    gained from others."""
    of = clusters.select("group", "rebalance", "began_ms", _until(after_ms).alias("__to"))
    gained = assignments.where("moved").select(*PLACE, "rebalance", "to_run", "taken_ms")
    windows = gained.join(F.broadcast(of), ["group", "rebalance"]).select(
        *PLACE,
        "rebalance",
        "to_run",
        "taken_ms",
        F.col("began_ms").alias("at_ms"),
        (F.col("began_ms") - before_ms).alias("__from"),
        "__to",
    )
    near = _near(spans, windows, PLACE)
    second = seconds(near, ("group", "rebalance", "to_run", "at_ms", "taken_ms", "run"))
    earlier = F.col("second_ms") + 1000 <= F.col("at_ms")
    later = (F.col("run") == F.col("to_run")) & (F.col("second_ms") + 1000 > F.col("taken_ms"))
    each = second.groupBy("group", "rebalance", "to_run", "at_ms", "second_ms").agg(
        F.sum(F.when(earlier, F.col("records"))).alias("__before"),
        F.sum(F.when(later & ~earlier, F.col("records"))).alias("__after"),
    )
    time_s = (F.floor(F.col("at_ms") / 1000) * 1000 - F.min(F.when(F.col("__before") > 0, F.col("second_ms")))) / 1000
    of_member = each.groupBy("group", "rebalance", "to_run", "at_ms").agg(
        (F.sum("__before") / time_s).alias("steady_per_s"), F.max("__after").alias("peak_per_s")
    )
    rated = of_member.withColumn("peak_ratio", F.col("peak_per_s") / F.col("steady_per_s"))
    best = F.max_by(F.struct("steady_per_s", "peak_per_s", "peak_ratio"), F.coalesce("peak_ratio", F.lit(-1.0)))
    return rated.groupBy("group", "rebalance").agg(best.alias("of")).select("group", "rebalance", "of.*")


def _until(after_ms: int) -> Column:
    return F.least(F.col("ended_ms") + after_ms, F.coalesce("next_ms", F.col("ended_ms") + after_ms))


def _near(spans: DataFrame, windows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Spans that ended within a window, each with that window's columns: found by buckets of time."""
    bucket = F.floor(F.col("ended_ms") / _BUCKET_MS)
    ended = spans.where(F.col("outcome").isin(*ENDED)).withColumn("__bucket", bucket)
    buckets = F.sequence(F.floor(F.col("__from") / _BUCKET_MS), F.floor(F.col("__to") / _BUCKET_MS))
    wide = windows.withColumn("__bucket", F.explode(buckets))
    near = ended.join(F.broadcast(wide), [*by, "__bucket"]).where(
        F.col("ended_ms").between(F.col("__from"), F.col("__to"))
    )
    return near.drop("__bucket")
