"""One row a group: the numbers of all other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F
from holdfast.plugin.audit.verdicts import Cause, Ended, KeyCause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.adapters.spark._pyspark import DataFrame

_SUMMED = ("events", "missing", "dropped", "unreported", "handled", "dead_lettered")


def summary(tables: Mapping[str, DataFrame], unreadable: DataFrame, unheard: Mapping[str | None, int]) -> DataFrame:
    """The table.

    Args:
        tables: members, coverage, duplicates, duplicate_keys, rebalances, moves, pauses.
        unreadable: its `lines` are counted, of the whole input.
        unheard: by group, of how many runs nothing can be read; None: nobody knows of which group. A group of which
            nothing else is known has a row too.
    """
    members = tables["members"].groupBy("group").agg(
        F.min("started_ms").alias("from_ms"),
        F.max("ended_ms").alias("to_ms"),
        F.count(F.lit(1)).alias("members"),
        F.sum((F.col("ended") == Ended.KILLED.value).cast("long")).alias("killed"),
        F.min(F.col("ended") == Ended.CLEAN.value).alias("over"),
        *[F.sum(name).alias(name) for name in _SUMMED],
        F.sum(F.col("skipped_position") + F.col("skipped_key")).alias("skipped"),
        F.max("skew").alias("skew"),
    )  # fmt: skip
    coverage = tables["coverage"].groupBy("group").agg(
        F.count(F.lit(1)).alias("partitions"),
        *[F.sum(name).alias(name) for name in ("lost", "unknown", "pending", "left")],
    )  # fmt: skip
    surplus = F.col("records") * F.col("repeats")
    repeated = tables["duplicates"].groupBy("group").agg(
        *[
            F.sum(F.when(F.col("cause") == each.value, surplus).otherwise(0)).alias(each.name.lower())
            for each in Cause
        ]
    )  # fmt: skip
    by_producer = F.when(F.col("cause") != KeyCause.REPEAT.value, F.col("offsets") - 1).otherwise(0)
    keys = tables["duplicate_keys"].groupBy("group").agg(F.sum(by_producer).alias("producer"))
    stop_ms = F.max(F.when(F.col("lag") > 0, F.col("stop_ms")))
    rebalances = tables["rebalances"].groupBy("group").agg(
        F.count(F.lit(1)).alias("rebalances"), F.sum("moved").alias("moved"), stop_ms.alias("stop_ms")
    )  # fmt: skip
    paused = F.col("waiting") & F.coalesce(F.col("from_member") != F.col("to_member"), F.lit(False))
    pauses = tables["pauses"].groupBy("group").agg(F.max(F.when(paused, F.col("pause_ms"))).alias("pause_ms"))
    rows = members
    silent = [(name, runs) for name, runs in unheard.items() if name is not None]
    named = members.sparkSession.createDataFrame(silent, "group STRING, unheard LONG")
    rows = rows.join(F.broadcast(named), "group", "full")
    for each in (coverage, repeated, keys, rebalances, pauses):
        rows = rows.join(F.broadcast(each), "group", "left")
    counts = ["members", "killed", *_SUMMED, "skipped", "unheard", "partitions"]
    counts += ["lost", "unknown", "pending", "left", "rebalances", "moved"]
    counts += [each.name.lower() for each in Cause]
    rows = rows.fillna(0, counts).fillna(False, ["over"])
    rows = rows.withColumn("unheard", F.col("unheard") + unheard.get(None, 0))
    lines = unreadable.agg(F.coalesce(F.sum("lines"), F.lit(0)).alias("unreadable"))
    return rows.crossJoin(F.broadcast(lines))
