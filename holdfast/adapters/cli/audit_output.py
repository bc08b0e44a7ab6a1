"""An audit as lines and tables for people, and as values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.cli.output import shown
from holdfast.tools.audit_report.pages import tables
from holdfast.tools.audit_report.pages.words import clock, group_verdict, long, mood, remarks, verdict
from holdfast.tools.audit_report.verdicts import Verdict

if TYPE_CHECKING:
    from holdfast.adapters.cli.output import Output
    from holdfast.tools.audit_report.pages.model import Audit, GroupAudit, Listed
    from holdfast.tools.audit_report.pages.tables import Table

#: Rows of a table on a terminal; the page has more.
_MOST_ROWS = 20
#: Figures of a group, as JSON has them.
_FIGURES = (
    *("from_ms", "to_ms", "processes", "killed", "partitions", "records", "executions", "suppressed"),
    *("dead_lettered", "client_skipped", "unheard", "unreported", "unreadable", "missing_events"),
    *("stop_s", "pause_s", "spike", "detailed"),
)
#: What tables show of a row beside its fields.
_MADE = {"gap": ("records",), "pause": ("seconds",), "lag": ("lag",)}


def tell(audit: Audit, output: Output) -> None:
    """The verdict first; then what is wrong, then how it went, group by group."""
    output.json({"type": "audit", "verdict": verdict(audit), "mood": mood(audit), "groups": len(audit.groups)})
    output.say(verdict(audit))
    groups = audit.worst_first
    if len(groups) > 1:
        output.say()
        _table(tables.of_all(groups), output)
    for group in groups:
        _json(group, output)
        if len(groups) == 1 or ((group.detailed or not group.processes) and (group.wrong or group.unsure)):
            _group(group, output, alone=len(groups) == 1)


def _group(group: GroupAudit, output: Output, *, alone: bool) -> None:
    output.say()
    over = ""
    if group.processes:
        took = long((group.to_ms - group.from_ms) / 1000)
        over = f", {clock(group.from_ms, date=True)} to {clock(group.to_ms, date=True)} UTC ({took})"
    output.say(shown(f"group {group.group}{over}", 300) + ("" if alone else f": {group_verdict(group)}"))
    for note in remarks(group):
        output.say(f"- {shown(note, 300)}")
    for each in tables.wrong(group):
        _titled(each, output)
    for table in (tables.rebalances(group), tables.pauses(group), tables.lagging(group), tables.members(group)):
        if table is not None:
            _titled(table, output)


def _titled(table: Table, output: Output) -> None:
    output.say()
    output.say(f"{table.title}:")
    _table(table, output)


def _table(table: Table, output: Output) -> None:
    rows = [[shown(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows[:_MOST_ROWS]]
    output.table([name.upper() for name in table.headings], rows)
    if len(rows) < len(table.rows):
        output.say(f"and {len(table.rows) - len(rows):,} more rows")
    if table.note:
        output.say(table.note)


def _json(group: GroupAudit, output: Output) -> None:
    listed: dict[str, Listed[Any]] = {
        "gap": group.gap_rows,
        "duplicate": group.duplicates,
        "duplicate_key": group.duplicate_keys,
        "rebalance": group.rebalances,
        "pause": group.pauses,
        "lag": group.lagging,
        "run": group.runs,
    }
    head: dict[str, Any] = {"type": "group", "group": group.group, "verdict": group_verdict(group)}
    head |= {name: getattr(group, name) for name in _FIGURES}
    head |= {each.value: group.gaps.get(each, 0) for each in Verdict}
    head |= {"repeats": {str(cause): count for cause, count in group.repeats.items()}, "sent_twice": group.sent_twice}
    head["rebalances"] = group.rebalances.total
    # Lines follow for the rows that matter most: what they leave out is in the figures all the same.
    head["left_out"] = {kind: rows.left_out for kind, rows in listed.items() if rows.left_out}
    output.json(head)
    for kind, rows in listed.items():
        for row in rows.rows:
            made = {name: getattr(row, name) for name in _MADE.get(kind, ())}
            output.json({"type": kind, "group": group.group, **row._asdict(), **made})
