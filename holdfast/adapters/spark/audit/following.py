"""The audit of an endless stream: emits rows when they are final, from a state that stays small.

All events of a group pass through one `LiveGroup`, which is the state; so a group is limited to one core.
applyInPandasWithState, which pyspark 4.0 to 4.3 have, keeps it. transformWithStateInPandas needs the RocksDB store and
further packages on the executors, and has no advantage for one value a group that is read and written as a whole.

Time-outs detect silent groups. They use the time at which a batch began, as a watermark. With processing-time time-outs
Spark would create batches for ever, and a query with `availableNow` would never end. The batch's time and input are in
Spark's own log, so a repeated batch gives the same rows.
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

#: Events whose time is further ahead of Spark's clock are not used: one would end the wait for all other members.
_AHEAD_MS = 3_600_000
#: How many time-outs in a row mean silence. The first may come because the query was stopped and has unread events.
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
    """Start the query. It may be stopped and started again at any time: no row is lost or written twice.

    Args:
        lines: the stream from `events.stream`.
        output: the folder of the tables, one folder for each; only for this query.
        checkpoint: the query's checkpoint; only for this query. It belongs to `output`: delete both or none.
        settings: how long to wait for events, and how far back to remember.
        trigger: as for Spark's writer; None: a batch each minute. `{"availableNow": True}`: read what exists, then end.
        silence_s: if no event of a group came for twice this long, by Spark's clock, the group has ended, and its
            remaining rows become final with the next batch.
        format: the format of the tables.

    Raises:
        SettingError: a value cannot work, or the data frame is one of Spark Connect, which has no such state. A later
            error ends the query: see `holdfast.adapters.spark.reason`.
    """
    if not isinstance(lines, ClassicDataFrame):
        raise SettingError("lines", "Spark Connect", "the audit of a stream needs a classic session")
    asked = settings or LiveSettings()
    if not silence_s > asked.quiet_s:
        raise SettingError("silence_s", silence_s, f"give more than quiet_s, which is {asked.quiet_s:g}")
    tables = TableFolders(output=output, format=format)
    # Lines without a group go to a group without a name, where they are counted as unreadable.
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
            state.remove()  # the group is gone
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
