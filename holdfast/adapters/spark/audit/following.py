"""The audit of a stream that does not end: rows when they are final, from a state that stays small.

All events of a group go through one `LiveGroup`, which is the state; so a group is as quick as one core. It is held by
applyInPandasWithState: transformWithStateInPandas wants the RocksDB store and packages of its own on the executors,
and for one value a group, which is read and written whole, it has nothing to offer. The former is in all of pyspark
4.0 to 4.3.

Time-outs are for groups that fall silent. They go by the time at which a batch began, as a watermark: with a time-out
by the clock alone Spark makes batches for ever, and a query with `availableNow` never ends. That time is in Spark's own
log, as is what a batch reads; so a batch that is repeated gives the same rows.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Literal

from holdfast.adapters.spark._pyspark import ClassicDataFrame, F, GroupStateTimeout, pd
from holdfast.adapters.spark.audit.writing import TableFolders
from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.kept import LiveSettings
from holdfast.tools.audit_report.judge.live import LiveGroup
from holdfast.tools.audit_report.judge.unread import GROUP, sorted_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

    from holdfast.adapters.spark._pyspark import DataFrame

#: By Spark's clock: who tells of a later time is not believed. Its event would end the waiting for all others.
_AHEAD_MS = 3_600_000
#: Time-outs that follow each other. The first says nothing where the query itself was stopped meanwhile, and what came
#: since has yet to be read.
_SILENT = 2


def follow(
    lines: DataFrame,
    *,
    output: str,
    checkpoint: str,
    settings: LiveSettings | None = None,
    trigger: dict[str, Any] | None = None,
    silence_s: float = 150.0,
    format: Literal["parquet", "delta"] = "parquet",  # noqa: A002 - as Spark has it
) -> StreamingQuery:
    """Start the query. Stop it and start it again as you like: rows are neither lost nor told twice.

    Args:
        lines: of `events.stream`.
        output: one folder a table below it; of this query alone.
        checkpoint: of this query alone. It goes with `output`: who deletes one deletes both.
        settings: how long is waited, how far back is known.
        trigger: as for Spark's writer; a batch a minute. `{"availableNow": True}`: what is there, then it ends.
        silence_s: a group of which nothing came for twice so long, by Spark's clock, has told everything: what it has
            left becomes final, with the next batch.
        format: of the tables.

    Raises:
        SettingError: a value that cannot work; a data frame of Spark Connect, which has no state of this kind for us.
            What goes wrong later ends the query: see `holdfast.adapters.spark.reason`.
    """
    if not isinstance(lines, ClassicDataFrame):
        raise SettingError("lines", "Spark Connect", "the audit of a stream needs a classic session")
    asked = settings or LiveSettings()
    if not silence_s > asked.quiet_s:
        raise SettingError("silence_s", silence_s, f"give more than quiet_s, which is {asked.quiet_s:g}")
    tables = TableFolders(output=output, format=format)
    # Lines that name no group are a group without a name: they are counted there, and can be held against no other.
    group = F.coalesce(F.get_json_object("value", "$.group"), F.regexp_extract("value", GROUP, 1))
    heard = lines.where(F.length(F.trim("value")) > 0)
    heard = heard.select(group.alias("group"), "value", F.current_timestamp().alias("now"))
    rows = (
        heard.withWatermark("now", "0 seconds")
        .groupBy("group")
        .applyInPandasWithState(
            _stepping(asked, int(silence_s * 1000)),
            "table STRING, row STRING",
            "state BINARY, silences INT",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )
    writer = rows.writeStream.outputMode("append").foreachBatch(tables.write).queryName("holdfast audit")
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or {"processingTime": "1 minute"})).start()


def _stepping(asked: LiveSettings, silence_ms: int) -> Callable[..., Iterator[pd.DataFrame]]:
    forget_ms = int(asked.remember_s * 1000)

    def step(key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        kept, silences = state.get if state.exists else (None, 0)
        silences = silences + 1 if state.hasTimedOut else 0
        if silences > _SILENT:
            state.remove()  # groups come and go
            return
        group, rows = _restored(key[0], kept, asked), []
        now_ms = state.getCurrentProcessingTimeMs()
        if silences == 0:
            lines = (line for frame in frames for line in frame["value"])
            read = sorted_out(lines, now_ms + _AHEAD_MS)
            group.feed(read.events)
            group.unreadable(read.unreadable)
            rows = group.settle()
        elif silences == _SILENT:
            rows = group.silence()
        state.update((zlib.compress(json.dumps(group.state()).encode(), 1), silences))
        wait_ms = forget_ms if silences == _SILENT else silence_ms
        state.setTimeoutTimestamp(max(now_ms, state.getCurrentWatermarkMs()) + wait_ms)
        told = [json.dumps(row) for _, row in rows]
        yield pd.DataFrame({"table": [name for name, _ in rows], "row": told}, dtype=str)

    return step


def _restored(name: str, kept: bytes | None, asked: LiveSettings) -> LiveGroup:
    return LiveGroup(name, asked) if kept is None else LiveGroup.restored(json.loads(zlib.decompress(kept)), asked)
