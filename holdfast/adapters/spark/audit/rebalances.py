"""What changed hands at about one time: rebalances, the moves in them, and the pauses of what moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, Window
from holdfast.adapters.spark.audit.facts import PLACE

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import Column, DataFrame


def changes(entries: DataFrame, gather_ms: int) -> DataFrame:
    """Entries of `assigned` and `revoked`, with the number of their rebalance: those of a group that follow each other
    within `gather_ms` are one."""
    changed = entries.where(F.col("kind").isin("assigned", "revoked"))
    in_time = Window.partitionBy("group").orderBy("at_ms", "run", "seq")
    apart = F.coalesce(F.col("at_ms") - F.lag("at_ms").over(in_time) > gather_ms, F.lit(False))
    number = F.sum(F.when(apart, 1).otherwise(0)).over(in_time)
    return changed.withColumn("rebalance", number.cast("long"))


def clusters(changes: DataFrame) -> DataFrame:
    """group, rebalance, began_ms, ended_ms, triggers, members, gained, given; and next_ms, when the next one began."""
    rows = changes.groupBy("group", "rebalance").agg(
        F.min("at_ms").alias("began_ms"),
        F.max("at_ms").alias("ended_ms"),
        F.array_sort(F.collect_set("trigger")).alias("triggers"),
        F.count_distinct("run").alias("members"),
        F.sum(F.when(F.col("kind") == "assigned", 1).otherwise(0)).alias("gained"),
        F.sum(F.when(F.col("kind") == "revoked", 1).otherwise(0)).alias("given"),
    )
    return rows.withColumn("next_ms", F.lead("began_ms").over(Window.partitionBy("group").orderBy("rebalance")))


def assignments(owned: DataFrame, changes: DataFrame) -> DataFrame:
    """Ownerships that began with a word, each with its rebalance and what was before: the rows of `moves` and `pauses`,
    and more columns.

    Args:
        owned: `ownership` of the sweep.
        changes: see there.
    """
    by_turn = Window.partitionBy(*PLACE).orderBy("turn")
    before = by_turn.rowsBetween(Window.unboundedPreceding, -1)
    rows = owned.withColumns(
        {
            "from_run": F.lag("run").over(by_turn),
            "from_member": F.lag("member").over(by_turn),
            "given_ms": F.lag("to_ms").over(by_turn),
            "before_ms": F.max("last_ms").over(before),
        }
    ).where(F.col("trigger").isNotNull())
    at = changes.where(F.col("kind") == "assigned").select(
        *PLACE, "run", F.col("at_ms").alias("from_ms"), "rebalance"
    ).distinct()  # fmt: skip
    lag = _at_least_0(F.col("end") - F.col("position"))
    worked_off = F.when(F.col("end") <= F.col("position"), 0).when(
        F.col("next") >= F.col("end"), _at_least_0(F.col("behind_ms") - F.col("from_ms"))
    )
    return rows.join(at, [*PLACE, "run", "from_ms"]).withColumns(
        {
            "to_member": F.col("member"),
            "to_run": F.col("run"),
            "moved": F.col("from_run").isNotNull() & (F.col("from_run") != F.col("run")),
            "taken_ms": F.col("from_ms"),
            "lag": lag,
            "waiting": lag > 0,
            "pause_ms": _at_least_0(F.col("first_ms") - F.col("before_ms")),
            "recovered_ms": worked_off,
            "cut": (lag > 0) & worked_off.isNull() & F.col("to_ms").isNotNull(),
        }
    )


def _at_least_0(value: Column) -> Column:
    """Null where it is null: `greatest` would not say so."""
    return F.when(value < 0, 0).otherwise(value)


def rebalances(
    clusters: DataFrame, assignments: DataFrame, stops: DataFrame, peaks: DataFrame, reports: DataFrame
) -> DataFrame:
    """The table.

    Args:
        clusters: see there.
        assignments: see there.
        stops: group, rebalance, stop_ms.
        peaks: group, rebalance, steady_per_s, peak_per_s, peak_ratio.
        reports: as in `Facts`.
    """
    waiting = F.col("waiting") & F.col("recovered_ms").isNull()
    of_moves = assignments.groupBy("group", "rebalance").agg(
        F.sum(F.col("moved").cast("long")).alias("moved"),
        F.max(F.when(F.col("moved"), F.col("pause_ms"))).alias("pause_ms"),
        F.sum("lag").alias("lag"),
        F.min("taken_ms").alias("__taken_ms"),
        F.max(F.col("taken_ms") + F.col("recovered_ms")).alias("__recovered_ms"),
        F.max(waiting).alias("__waiting"),
    )
    recovered = F.when(~F.coalesce("__waiting", F.lit(False)), F.col("__recovered_ms") - F.col("__taken_ms"))
    keys = ["group", "rebalance"]
    rows = clusters.join(of_moves, keys, "left").join(stops, keys, "left").join(peaks, keys, "left")
    rows = rows.join(_reported(reports, clusters), keys, "left")
    return rows.withColumn("recovered_ms", recovered).fillna(0, ["moved"])


def _reported(reports: DataFrame, clusters: DataFrame) -> DataFrame:
    """Reports are told when all is over: they belong to the last rebalance that had begun."""
    begun = clusters.select("group", "rebalance", "began_ms", "next_ms")
    of = reports.join(F.broadcast(begun), "group").where(
        (F.col("at_ms") >= F.col("began_ms")) & (F.col("next_ms").isNull() | (F.col("at_ms") < F.col("next_ms")))
    )
    return of.groupBy("group", "rebalance").agg(
        F.sum("drained").alias("drained"),
        F.sum("abandoned").alias("abandoned"),
        F.sum("handed_back").alias("handed_back"),
        F.sum("duplicates_suppressed").alias("suppressed"),
    )
