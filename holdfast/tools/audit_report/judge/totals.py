"""The row of `summary`: the numbers of all other tables. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import Outcome
from holdfast.tools.audit_report.verdicts import Cause, KeyCause, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.tools.audit_report.judge.kept import Kept

    Row = dict[str, Any]

_COUNTED = ("members", "killed", "unheard", "events", "unreadable", "missing", "dropped", "unreported", "partitions")


class Totals:
    """Sums the rows of all tables, and the counts made while events came."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._most: dict[str, float] = {}

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Count a row of any table."""
        sums = self._sums
        if table == "gaps":
            sums[row["verdict"]] += row["offsets"]
        elif table == "duplicates":
            sums[row["cause"]] += row["records"] * row["repeats"]
        elif table == "duplicate_keys" and row["cause"] != KeyCause.REPEAT:
            sums["producer"] += row["offsets"] - 1
        elif table == "rebalances":
            sums.update({"rebalances": 1, "moved": row["moved"]})
            self._at_most("stop_ms", row["stop_ms"] if row["lag"] else None)
        elif table == "pauses":
            self._at_most("pause_ms", row["pause_ms"] if row["waiting"] and row["moved"] else None)
        elif table == "members":
            self._at_most("skew", row.get("skew"))

    def row(self, kept: Kept) -> Row:
        """The row of `summary`."""
        counts, sums = kept.counts, self._sums
        found: Row = {name: counts.get(name, 0) for name in _COUNTED}
        found |= {"from_ms": counts.get("from_ms"), "to_ms": kept.newest_ms or None}
        found |= {"over": bool(kept.runs) and all(each.stopped and each.clean for each in kept.runs.values())}
        found |= {each.value: counts.get(each, 0) for each in (Outcome.HANDLED, Outcome.DEAD_LETTERED)}
        found |= {"skipped": counts.get(Outcome.SKIPPED_POSITION, 0) + counts.get(Outcome.SKIPPED_KEY, 0)}
        found |= {each.value: sums[each] for each in Verdict} | {each.name.lower(): sums[each] for each in Cause}
        found |= {name: sums[name] for name in ("rebalances", "moved", "producer")}
        return found | {name: self._most.get(name) for name in ("stop_ms", "pause_ms", "skew")}

    def _at_most(self, name: str, value: float | None) -> None:
        if value is not None:
            self._most[name] = max(self._most.get(name, value), value)
