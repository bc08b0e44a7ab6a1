"""Records by the second: of members, and of partitions that were gained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F
from holdfast.adapters.spark.audit.facts import ENDED
from holdfast.plugin.audit.schema import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame


def early_ms() -> Column:
    """When about the first record of a span had ended: they are taken as spread evenly over its time."""
    each_ms = ((F.col("ended_ms") - F.col("began_ms")) / F.col("records")).cast("long")
    return F.when(F.col("records") < 2, F.col("ended_ms")).otherwise(F.least("ended_ms", F.col("began_ms") + each_ms))


def seconds(spans: DataFrame, by: Sequence[str]) -> DataFrame:
    """`by`, second_ms, records, handled: how many ended in each second."""
    ended = spans.where(F.col("outcome").isin(*ENDED) & (F.col("records") > 0)).withColumn("__early", early_ms())
    first, last = F.floor(F.col("__early") / 1000), F.floor(F.col("ended_ms") / 1000)
    each = ended.withColumn("__second", F.explode(F.sequence(first.cast("long"), last.cast("long"))))
    from_ms = F.greatest("__early", F.col("__second") * 1000)
    to_ms = F.least("ended_ms", F.col("__second") * 1000 + 1000)
    length = F.col("ended_ms") - F.col("__early")
    part = F.when(length == 0, F.lit(1.0)).otherwise((to_ms - from_ms) / length)
    records = F.col("records") * part
    handled = F.when(F.col("outcome") == Outcome.HANDLED.value, records).otherwise(0.0)
    summed = each.groupBy(*by, (F.col("__second") * 1000).alias("second_ms"))
    return summed.agg(F.sum(records).alias("records"), F.sum(handled).alias("handled"))


def intake(spans: DataFrame, runs: DataFrame) -> DataFrame:
    """The table."""
    names = F.broadcast(runs.select("group", "run", "member"))
    return seconds(spans, ("group", "run")).join(names, ["group", "run"])


def shares(intake: DataFrame, runs: DataFrame) -> DataFrame:
    """group, run, share, skew."""
    totals = intake.groupBy("group", "second_ms").agg(F.sum("records").alias("__all"))
    own = intake.groupBy("group", "run").agg(F.sum("records").alias("__own"))
    lives = runs.select("group", "run", (F.floor(F.col("started_ms") / 1000) * 1000).alias("__from"), "last_ms")
    at_work = totals.join(F.broadcast(lives), "group").where(
        F.col("second_ms").between(F.col("__from"), F.col("last_ms"))
    )
    number = at_work.groupBy("group", "second_ms").agg(F.count(F.lit(1)).alias("__members"))
    shared = at_work.join(number, ["group", "second_ms"]).groupBy("group", "run")
    fair = shared.agg(F.sum("__all").alias("__all"), F.sum(F.col("__all") / F.col("__members")).alias("__fair"))
    share, skew = F.col("__own") / F.col("__all"), F.col("__own") / F.col("__fair")
    return fair.join(own, ["group", "run"], "left").select(
        "group", "run", F.coalesce(share, F.lit(0.0)).alias("share"), F.coalesce(skew, F.lit(0.0)).alias("skew")
    )
