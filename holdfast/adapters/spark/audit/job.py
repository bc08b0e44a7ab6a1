"""The audit of events that are there: START HERE. Facts, owners, the sweep, what is around rebalances; as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from holdfast.adapters.spark._pyspark import F
from holdfast.adapters.spark.audit import around, rebalances
from holdfast.adapters.spark.audit.events import read
from holdfast.adapters.spark.audit.facts import facts, once
from holdfast.adapters.spark.audit.intake import intake, shares
from holdfast.adapters.spark.audit.judge import found, judged
from holdfast.adapters.spark.audit.keys import duplicate_keys
from holdfast.adapters.spark.audit.owners import ended, ownerships
from holdfast.adapters.spark.audit.summary import summary
from holdfast.adapters.spark.audit.sweep import Rules
from holdfast.adapters.spark.audit.tables import shaped
from holdfast.adapters.spark.audit.writing import check_format, check_not_streamed
from holdfast.errors import SettingError
from holdfast.plugin.audit.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.audit.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What is asked, and what counts as one time.

    Args:
        complete: everything up to each log's end had to be consumed: what is left over is lost.
        quiet_s: a run without a last word that was heard so long before the last event of all still lives; after more
            silence it was killed.
        gather_s: assignments and revocations that follow each other within this are one rebalance.
        before_s: how far before a rebalance the steady rate is taken, and how far from it a standstill may begin.
        after_s: how far after it a standstill may end, and a peak is looked for; never beyond the next rebalance.
    """

    complete: bool = False
    quiet_s: float = 15.0
    gather_s: float = 5.0
    before_s: float = 30.0
    after_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("quiet_s", "gather_s", "before_s", "after_s"):
            if getattr(self, name) <= 0:
                raise SettingError(name, getattr(self, name), "give a time of more than 0 seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found: frames by name, with the columns of `TABLES`. They are evaluated when they are read or written;
    what they share is kept until the end of `with`."""

    tables: dict[str, DataFrame]
    _kept: list[DataFrame] = field(default_factory=list, repr=False)

    def write(self, output: str, format: Literal["parquet", "delta"] = "parquet") -> None:  # noqa: A002 - as Spark has it
        """One folder a table below `output`; what was there is replaced.

        Raises:
            SettingError: another format; a stream's tables are there.
        """
        check_format(format)
        check_not_streamed(next(iter(self.tables.values())), output)
        for name, rows in self.tables.items():
            options = {"overwriteSchema": "true"} if format == "delta" else {}
            rows.coalesce(1).write.format(format).options(**options).mode("overwrite").save(f"{output}/{name}")

    def close(self) -> None:
        """Let go of what was kept in memory."""
        for each in self._kept:
            each.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def audit(spark: SparkSession, events: DataFrame | str | Sequence[str], settings: AuditSettings | None = None) -> Audit:
    """Judge all events.

    Args:
        spark: the session.
        events: places, or a frame, as `events.read` has them.
        settings: what is asked.

    Raises:
        SettingError: there are no events in these places.
    """
    asked = settings or AuditSettings()
    if isinstance(events, str):
        events = [events]
    rows = read(spark, *events) if isinstance(events, Sequence) else events
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist())
        return frame

    heard = keep(once(rows))
    unreadable = keep(rows.where("unreadable").groupBy("group", "run").agg(F.count(F.lit(1)).alias("lines")))
    unheard = _unheard(unreadable, heard)
    found = judge(facts(heard), asked, keep, unreadable, unheard)
    found["duplicate_keys"] = keep(duplicate_keys(heard))
    found["summary"] = summary(found, unreadable, unheard)
    return Audit(tables={name: shaped(found[name], table) for name, table in TABLES.items()}, _kept=kept)


def _unheard(unreadable: DataFrame, heard: DataFrame) -> dict[str | None, int]:
    """By group, of how many runs nothing can be read; None: nobody knows of which group."""
    silent = unreadable.join(heard.select("run").distinct(), "run", "left_anti")
    rows = silent.groupBy("group").agg(F.count_distinct(F.coalesce("run", F.lit(""))).alias("runs"))
    return {each["group"]: each["runs"] for each in rows.collect()}


def judge(
    facts_: Facts,
    asked: AuditSettings,
    keep: Callable[[DataFrame], DataFrame],
    unreadable: DataFrame,
    unheard: Mapping[str | None, int],
) -> dict[str, DataFrame]:
    """All tables but for those of keys, and the summary.

    Args:
        facts_: of all events.
        asked: what is asked.
        keep: what is read more than once is kept.
        unreadable: group, run, lines: of lines that are no events, as far as is known.
        unheard: see `_unheard`.
    """
    cut = unreadable.where(F.col("run").isNotNull()).select("run", F.lit(True).alias("cut")).distinct()
    runs = keep(ended(facts_.runs.join(F.broadcast(cut), "run", "left"), int(asked.quiet_s * 1000)))
    silent = F.lit(None in unheard) | F.col("group").isin([name for name in unheard if name is not None])
    groups = runs.groupBy("group").agg(
        F.min(F.col("ended") == "clean").alias("over"), F.max("doubtful").alias("doubted")
    )
    groups = groups.withColumn("unheard", silent)
    owners = ownerships(facts_.entries, runs)
    swept = keep(judged(facts_.spans, owners, groups, Rules(all_of_it=asked.complete)))
    changes = rebalances.changes(facts_.entries, int(asked.gather_s * 1000))
    clusters = keep(rebalances.clusters(changes))
    owned = found(swept, "ownership")
    assignments = keep(rebalances.assignments(owned, changes))
    before_ms, after_ms = int(asked.before_s * 1000), int(asked.after_s * 1000)
    stops = around.stops(facts_.spans, clusters, before_ms, after_ms)
    peaks = around.peaks(facts_.spans, clusters, assignments, before_ms, after_ms)
    taken = keep(intake(facts_.spans, runs))
    members = keep(runs.withColumn("ended_ms", F.col("last_ms")).join(shares(taken, runs), ["group", "run"], "left"))
    return {
        "members": members,
        "coverage": found(swept, "coverage"),
        "gaps": found(swept, "gaps"),
        "duplicates": found(swept, "duplicates"),
        "ownership": owned,
        "rebalances": keep(rebalances.rebalances(clusters, assignments, stops, peaks, facts_.reports)),
        "moves": assignments,
        "pauses": assignments.withColumn("last_ms", F.col("before_ms")),
        "lag": facts_.entries.where("kind = 'progress'").withColumn("lag", F.col("end") - F.col("position")),
        "intake": taken,
    }
