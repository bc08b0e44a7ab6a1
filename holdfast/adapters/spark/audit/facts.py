"""What events say, sorted out: runs, what they say of partitions, their spans, their reports.

Ranges stay ranges all the way: nothing here has a row for each offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, Window
from holdfast.plugin.audit.schema import NO_RECORDS, Outcome

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import Column, DataFrame

#: What says which partition of which group.
PLACE = ("group", "topic", "partition")
#: Outcomes of records that are done with: failed attempts, and offsets without a record, left out.
ENDED = tuple(each.value for each in Outcome if each not in NO_RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Frames. Of a stream: what is remembered, with what came.

    runs     group, run, member, protocol, source, started_ms, last_ms, events, last_seq, sound_seq (all its events up
             to this one came), dropped, stopped, clean, in_hand, told (records by its last word), records by outcome
    entries  group, topic, partition, run, member, seq, at_ms, kind, trigger, epoch, position, end, in_flight, sound: a
             row for each partition in `assigned`, `revoked` and `progress`
    spans    group, topic, partition, run, seq, epoch, first, next, outcome, records, began_ms, ended_ms; `old`: judged
             before, by an earlier step of a stream
    reports  group, run, at_ms, and the numbers of `rebalance`
    """

    runs: DataFrame
    entries: DataFrame
    spans: DataFrame
    reports: DataFrame


def once(events: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Each event once, and `sound`: all of its run's events up to it have come, and none was given up.

    Args:
        events: as `events.parsed` makes them.
        before: of a stream, the runs so far: what is not beyond their last event is a repetition.
    """
    events = events.where(~F.col("unreadable"))
    if before is None:
        events = events.withColumns({"__last": F.lit(-1).cast("long"), "__sound": F.lit(True)})
    else:
        heard = before.select(
            "group", "run", F.col("last_seq").alias("__last"), F.expr("sound_seq <=> last_seq").alias("__sound")
        )
        events = events.join(F.broadcast(heard), ["group", "run"], "left").fillna({"__last": -1, "__sound": True})
        events = events.where(F.col("seq") > F.col("__last"))
    of_run = Window.partitionBy("group", "run").orderBy("seq")
    fresh = F.coalesce(F.lag("seq").over(of_run) != F.col("seq"), F.lit(True))
    events = events.withColumn("__fresh", fresh).where("__fresh")
    in_order = F.col("__sound") & (F.col("seq") == F.col("__last") + F.row_number().over(of_run))
    sound = in_order & (F.coalesce("dropped", F.lit(0)) == 0)
    return events.withColumn("sound", sound).drop("__fresh", "__last", "__sound")


def facts(events: DataFrame) -> Facts:
    """Of events that `once` has made; they are read several times."""
    spans = _spans(events)
    return Facts(runs=_runs(events, spans), entries=_entries(events), spans=spans, reports=_reports(events))


def _runs(events: DataFrame, spans: DataFrame) -> DataFrame:
    last, first = F.col("kind") == "stopped", F.col("kind") == "started"
    told = F.aggregate(F.map_values("records"), F.lit(0).cast("long"), lambda total, each: total + each)
    heard = events.groupBy("group", "run").agg(
        F.min_by("member", "seq").alias("member"),
        F.max(F.when(first, F.col("protocol"))).alias("protocol"),
        F.max(F.when(first, F.col("source"))).alias("source"),
        F.min("at_ms").alias("started_ms"),
        F.max("at_ms").alias("last_ms"),
        F.count(F.lit(1)).alias("events"),
        F.max("seq").alias("last_seq"),
        F.coalesce(F.max(F.when(F.col("sound"), F.col("seq"))), F.lit(-1)).alias("sound_seq"),
        F.coalesce(F.max("dropped"), F.lit(0)).alias("dropped"),
        F.max(last).alias("stopped"),
        F.max(F.when(last, F.col("clean"))).alias("clean"),
        F.max(F.when(last, F.col("in_hand"))).alias("in_hand"),
        F.max(F.when(last, told)).alias("told"),
    )
    records = spans.groupBy("group", "run").agg(*(_sum_of(each.value).alias(each.value) for each in Outcome))
    return heard.join(records, ["group", "run"], "left").fillna(0, [each.value for each in Outcome])


def _sum_of(outcome: str) -> Column:
    return F.sum(F.when(F.col("outcome") == outcome, F.col("records")).otherwise(0))


def _entries(events: DataFrame) -> DataFrame:
    said = events.where(F.col("kind").isin("assigned", "revoked", "progress"))
    return said.select(
        "group", "run", "member", "seq", "at_ms", "kind", "trigger", "sound", F.explode("partitions").alias("of")
    ).select(
        "group", "of.topic", "of.partition", "run", "member", "seq", "at_ms", "kind", "trigger",
        "of.epoch", "of.position", "of.end", "of.in_flight", "sound",
    )  # fmt: skip


def _spans(events: DataFrame) -> DataFrame:
    told = events.where(F.col("kind") == "span")
    return told.select(*PLACE, "run", "seq", "epoch", F.explode("spans").alias("of")).select(
        *PLACE, "run", "seq", "epoch", "of.*", F.lit(False).alias("old")
    )


def _reports(events: DataFrame) -> DataFrame:
    return events.where(F.col("kind") == "rebalance").select(
        "group", "run", "at_ms", "drained", "abandoned", "handed_back", "duplicates_suppressed"
    )
