"""Who had a partition, and when: ownerships, in the order of their turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F, Window
from holdfast.adapters.spark.audit.facts import ENDED, PLACE
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.audit.verdicts import Ended

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame

#: Those with records.
_OUTCOMES = (*ENDED, Outcome.FAILED.value)


def ended(runs: DataFrame, quiet_ms: int) -> DataFrame:
    """The runs, with how each one ended, whether it has told everything, what is missing of it, and whether it may have
    done what nobody knows (`doubtful`). `cut`: lines of it are no events.

    A run without a last word lives if it was heard as late as the others, `quiet_ms` forgiven; else it was killed.
    """
    latest = F.max("last_ms").over(Window.partitionBy(F.lit(1)))
    how = (
        F.when(F.col("stopped") & F.coalesce("clean", F.lit(False)), Ended.CLEAN.value)
        .when(F.col("stopped"), Ended.UNCLEAN.value)
        .when(F.col("last_ms") >= latest - quiet_ms, Ended.ALIVE.value)
        .otherwise(Ended.KILLED.value)
    )
    came = sum((F.col(each) for each in _OUTCOMES), start=F.lit(0))
    unreported = F.when(F.col("stopped"), F.greatest(F.col("told") - came, F.lit(0)))
    rows = runs.withColumns(
        {"ended": how, "missing": F.col("last_seq") + 1 - F.col("events"), "unreported": unreported}
    )
    whole = (F.col("missing") == 0) & (F.col("dropped") == 0) & (F.coalesce("unreported", F.lit(0)) == 0)
    complete = whole & F.col("stopped") & (F.coalesce("in_hand", F.lit(0)) == 0)
    rows = rows.withColumns({"complete": complete, "__counts": F.coalesce("unreported", F.lit(0)) == 0})
    told_so_far = (F.col("ended") == Ended.ALIVE.value) & whole & ~F.coalesce("cut", F.lit(False))
    return rows.withColumn("doubtful", ~(complete | told_so_far))


def ownerships(entries: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each time that a member got a partition: PLACE, run, member, turn, epoch, trigger, from_seq, from_ms,
    to_ms, ended_by, position, end, said, told, last_end, complete, killed.

    turn      1, 2 ... of the partition: by epoch where all are known, else by the members' clocks
    said      the highest position that the member said of it
    told      the same, of what it said while all its events had come: everything below has a span that came too
    end       the log's end as it said first: a client may not have heard of it when it is assigned
    last_end  the log's end, as it said last
    complete  everything of it has come: its run is complete, or it gave the partition with nothing in hand
    """
    place_run = Window.partitionBy(*PLACE, "run").orderBy("seq")
    begins = F.col("kind") == "assigned"
    numbered = entries.withColumn("__nth", F.sum(F.when(begins, 1).otherwise(0)).over(place_run))
    gone = F.col("kind") == "revoked"
    each = numbered.groupBy(*PLACE, "run", "__nth").agg(
        F.min_by("member", "seq").alias("member"),
        F.max("epoch").alias("epoch"),
        F.max(F.when(begins, F.col("trigger"))).alias("trigger"),
        F.min("seq").alias("from_seq"),
        F.min("at_ms").alias("from_ms"),
        F.max(F.when(gone, F.col("at_ms"))).alias("gone_ms"),
        F.max(F.when(gone, F.col("trigger"))).alias("gone_by"),
        F.max(F.when(begins, F.col("position"))).alias("position"),
        F.min_by("end", F.when(F.col("end").isNotNull(), F.col("seq"))).alias("end"),
        F.max("position").alias("said"),
        F.max(F.when(F.col("sound") & ~begins, F.col("position"))).alias("told"),
        F.max("end").alias("last_end"),
        F.max(gone & F.col("sound") & (F.col("in_flight") == 0)).alias("__closed"),
    )
    again_ms = F.lead("from_ms").over(Window.partitionBy(*PLACE, "run").orderBy("__nth"))
    of_run = runs.select("group", "run", "last_ms", "stopped", "complete", F.col("ended").alias("__ended"), "__counts")
    rows = each.withColumn("__again_ms", again_ms).join(F.broadcast(of_run), ["group", "run"])
    alive = F.col("__ended") == Ended.ALIVE.value
    rows = rows.withColumns(
        {
            "to_ms": F.coalesce("gone_ms", "__again_ms", F.when(~alive, F.col("last_ms"))),
            "ended_by": F.coalesce(
                F.coalesce("gone_by", F.when(F.col("gone_ms").isNotNull(), F.lit("revoked"))),
                F.when(F.col("__again_ms").isNotNull(), F.lit("retaken")),
                F.when(F.col("stopped"), F.lit("stopped")),
                F.when(~alive, F.lit("killed")),
            ),
            "told": F.when(F.col("__counts"), F.col("told")),
            "killed": ~F.col("stopped"),
            "complete": F.col("complete") | (F.coalesce("__closed", F.lit(False)) & F.col("__counts")),
        }
    )
    of_place = Window.partitionBy(*PLACE)
    by_epoch = F.when(F.min(F.col("epoch").isNotNull()).over(of_place), F.col("epoch"))
    order = Window.partitionBy(*PLACE).orderBy("__order", "from_ms", "run")
    rows = rows.withColumn("__order", by_epoch).withColumn("turn", F.row_number().over(order).cast("long"))
    return rows.drop(
        "__nth", "__again_ms", "__closed", "__ended", "__counts", "__order", "gone_ms", "gone_by", "last_ms", "stopped"
    )
