"""An audit as lines and tables for people, and as values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.cli.output import shown
from holdfast.tools.audit_report.pages import tables
from holdfast.tools.audit_report.pages.words import clock, group_verdict, long, mood, remarks, verdict
from holdfast.tools.audit_report.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.adapters.cli.output import Output
    from holdfast.tools.audit_report.pages.model import Audit, GroupAudit
    from holdfast.tools.audit_report.pages.tables import Table

#: Rows of a table on a terminal; the page has more.
_MOST_ROWS = 20


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
    rows = [[shown(cell, 60) if isinstance(cell, str) else cell for cell in row] for row in table.rows[:_MOST_ROWS]]
    output.table([name.upper() for name in table.headings], rows)
    if len(rows) < len(table.rows):
        output.say(f"and {len(table.rows) - len(rows):,} more rows")
    if table.note:
        output.say(table.note)


def _json(group: GroupAudit, output: Output) -> None:
    head: dict[str, Any] = {"type": "group", "group": group.group, "verdict": group_verdict(group)}
    for name in ("from_ms", "to_ms", "processes", "killed", "partitions", "records", "executions", "suppressed"):
        head[name] = getattr(group, name)
    head |= {each.value: group.gaps.get(each, 0) for each in Verdict}
    head |= {"repeats": {str(cause): count for cause, count in group.repeats.items()}, "sent_twice": group.sent_twice}
    for name in ("unheard", "unreported", "missing_events"):
        head[name] = getattr(group, name)
    head["rebalances"] = group.rebalances.total
    output.json(head)
    listed: tuple[tuple[str, Iterable[Any]], ...] = (
        ("gap", group.gap_rows.rows),
        ("duplicate", group.duplicates.rows),
        ("duplicate_key", group.duplicate_keys.rows),
        ("rebalance", group.rebalances.rows),
        ("pause", group.pauses.rows),
        ("lag", group.lagging.rows),
        ("run", group.runs.rows),
    )
    for kind, rows in listed:
        for row in rows:
            output.json({"type": kind, "group": group.group, **row._asdict()})
