"""What a stream's step adds to the summary. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.audit.verdicts import Cause, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark.audit.kept import Kept

    Row = dict[str, Any]

_COUNTED = ("members", "killed", "unheard", "events", "unreadable", "missing", "dropped", "unreported", "partitions")


def summed(rows: Sequence[tuple[str, Row]], kept: Kept) -> Row:
    """The row of `summary` of the rows that are told with it. What was counted begins anew."""
    counts, kept.counts = kept.counts, {}
    skipped = counts.get(Outcome.SKIPPED_POSITION, 0) + counts.get(Outcome.SKIPPED_KEY, 0)
    found: Row = {name: counts.get(name, 0) for name in _COUNTED}
    found |= {"from_ms": counts.get("from_ms"), "to_ms": kept.newest_ms or None, "skipped": skipped}
    found |= {"over": bool(kept.runs) and all(each.stopped and each.clean for each in kept.runs.values())}
    found |= {each.value: counts.get(each, 0) for each in (Outcome.HANDLED, Outcome.DEAD_LETTERED)}
    gaps, repeats = _of(rows, "gaps"), _of(rows, "duplicates")
    for verdict in (Verdict.LOST, Verdict.UNKNOWN, Verdict.LEFT):
        found[verdict.value] = sum(each["offsets"] for each in gaps if each["verdict"] == verdict)
    for cause in Cause:
        surplus = (each["records"] * each["repeats"] for each in repeats if each["cause"] == cause)
        found[cause.name.lower()] = sum(surplus)
    rebalances, pauses = _of(rows, "rebalances"), _of(rows, "pauses")
    found |= {"rebalances": len(rebalances), "moved": sum(each["moved"] for each in rebalances)}
    stops = [each["stop_ms"] for each in rebalances if each["lag"] and each["stop_ms"] is not None]
    waited = [each["pause_ms"] for each in pauses if each["waiting"] and each["moved"] and each["pause_ms"] is not None]
    return found | {"stop_ms": max(stops, default=None), "pause_ms": max(waited, default=None)}


def _of(rows: Sequence[tuple[str, Row]], table: str) -> list[Row]:
    return [row for name, row in rows if name == table]
