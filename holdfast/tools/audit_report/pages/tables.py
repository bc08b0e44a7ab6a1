"""The report's tables: headings and rows, the same on the terminal and on the page."""

from __future__ import annotations

from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from holdfast.tools.audit_report.pages.model import Listed
from holdfast.tools.audit_report.pages.words import clock, long, number, offsets
from holdfast.tools.audit_report.verdicts import Ended, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.tools.audit_report.pages.model import GroupAudit, Run

_REASONS: Mapping[str, str] = {
    Reason.PASSED: "its owner's position passed it",
    Reason.JUMPED: "the next owner began after it",
    Reason.KILLED: "its reader fell silent",
    Reason.INCOMPLETE: "events of its reader are missing",
    Reason.LAG: "no member read this far",
    Reason.RESET: "a reset skipped it",
    Reason.RETENTION: "retention deleted it unread",
}
_DAY_MS = 20 * 3_600_000
_MOST_REBALANCES = 40

Cell = str | int | float | None


class Table(NamedTuple):
    """One table. Numbers stay numbers, so that a page can align them to the right."""

    name: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: A note on rows that are left out.
    note: str = ""


def of_all(groups: Sequence[GroupAudit]) -> Table:
    """A line a group."""
    columns: list[tuple[str, Callable[[GroupAudit], Cell]]] = [
        ("group", lambda each: each.group),
        ("processes", lambda each: each.processes),
        ("partitions", lambda each: each.partitions),
        ("records", lambda each: each.records),
        ("lost", lambda each: each.lost),
        ("unknown", lambda each: each.unknown),
        ("repeated", lambda each: each.repeated),
        ("behind", lambda each: each.behind),
        ("rebalances", lambda each: each.rebalances.total),
    ]
    if any(each.sent_twice for each in groups):
        columns.insert(7, ("sent twice", lambda each: each.sent_twice))
    if any(each.expired for each in groups):
        columns.insert(5, ("deleted unread", lambda each: each.expired))
    rows = [[of(each) for _, of in columns] for each in groups]
    return Table("groups", "Groups", [name for name, _ in columns], rows)


def wrong(group: GroupAudit) -> Iterator[Table]:
    """The tables of what is not as it should be."""
    at = _clock(group)
    if group.gap_rows.rows:
        yield Table(
            "gaps",
            "Records that no member is known to have handled",
            ("partition", "offsets", "at most", "verdict", "because", "after", "read by"),
            [
                (
                    each.partition,
                    offsets(each.first, each.next),
                    each.records,
                    each.verdict,
                    _REASONS.get(each.reason, each.reason),
                    at(each.after_ms),
                    each.members or None,
                )
                for each in group.gap_rows.rows
            ],
            _rest(group.gap_rows),
        )
    if group.duplicates.rows:
        yield Table(
            "duplicates",
            "Records that ran more than once",
            ("partition", "offsets", "records", "executions", "repeats", "cause", "again at", "run by"),
            [
                (
                    each.partition,
                    offsets(each.first, each.next),
                    each.records,
                    each.executions,
                    each.repeats,
                    each.cause,
                    at(each.again_ms),
                    each.members or None,
                )
                for each in group.duplicates.rows
            ],
            _rest(group.duplicates),
        )
    if group.duplicate_keys.rows:
        yield Table(
            "duplicate-keys",
            "Keys that ran more than once",
            ("key", "executions", "cause", "first", "again"),
            [(each.key, each.executions, each.cause, each.first, each.again) for each in group.duplicate_keys.rows],
            _rest(group.duplicate_keys),
        )


def rebalances(group: GroupAudit) -> Table | None:
    """Each with what it cost; of many, those that cost most."""
    rows, at = group.rebalances.rows, _clock(group)
    if not rows:
        return None
    if len(rows) > _MOST_REBALANCES:
        rows = nlargest(_MOST_REBALANCES, rows, key=lambda each: (each.pause_s or 0, each.stop_s or 0, each.moved))
        rows = sorted(rows, key=lambda each: each.number)
    return Table(
        "rebalances",
        "Rebalances",
        (
            *("#", "at", "trigger", "moved", "whole group stopped for", "longest pause", "lag", "caught up in"),
            *("steady/s", "peak/s", "peak over steady"),
        ),
        [
            (
                str(each.number),
                at(each.began_ms),
                each.triggers,
                each.moved,
                long(each.stop_s),
                long(each.pause_s),
                each.lag,
                long(each.recovered_s),
                _rate(each.steady_per_s),
                _rate(each.peak_per_s),
                None if each.spike is None else f"{each.spike:.2f}",
            )
            for each in rows
        ],
        _rest(Listed(rows=rows, total=group.rebalances.total), how=", with shorter pauses"),
    )


def pauses(group: GroupAudit) -> Table | None:
    """The longest."""
    if not group.pauses.rows:
        return None
    at = _clock(group)
    return Table(
        "pauses",
        "The longest pauses of a partition between two owners",
        ("partition", "rebalance", "from", "to", "pause", "paused from"),
        [
            (
                each.partition,
                str(each.rebalance),
                each.old or None,
                each.new or None,
                long(each.seconds),
                at(each.from_ms),
            )
            for each in group.pauses.rows
        ],
        _rest(group.pauses),
    )


def lagging(group: GroupAudit) -> Table | None:
    """Partitions that were furthest behind."""
    if not group.lagging.rows:
        return None
    return Table(
        "lag",
        "Partitions by lag",
        ("partition", "position", "end", "lag at the end", "highest lag"),
        [(each.partition, each.position, each.end, each.lag, each.most) for each in group.lagging.rows],
        _rest(group.lagging),
    )


def members(group: GroupAudit) -> Table | None:
    """Each process, and whether it has had more than its share."""
    if not group.runs.rows:
        return None
    return Table(
        "members",
        "Members",
        (
            *("member", "process", "from", "to", "ended", "handled", "share while running", "against an even share"),
            *("skipped", "dead letters", "failed attempts", "events missing"),
        ),
        [_member(each, _clock(group)) for each in group.runs.rows],
        _rest(group.runs, _not_ended(group)),
    )


def _not_ended(group: GroupAudit) -> str:
    """A stream tells of a process when it has ended."""
    left = group.processes - group.runs.total
    return f"{number(left, 'process', 'es')} more had not ended" if left > 0 else ""


def _member(run: Run, at: Callable[[int | None], str]) -> Sequence[Cell]:
    return (
        run.member,
        run.run[:8],
        at(run.began_ms),
        f"{at(run.ended_ms)} (heard last)" if run.ended == Ended.KILLED else at(run.ended_ms),
        "no end reported" if run.ended == Ended.ALIVE else run.ended,
        run.handled,
        None if run.share is None else f"{run.share:.0%}",
        None if run.skew is None else f"{run.skew:.2f}",
        run.skipped,
        run.dead_lettered + run.sent_back,
        run.failed,
        run.missing_events,
    )


def _rate(value: float | None) -> int | float | None:
    if value is None:
        return None
    return round(value) if value >= 10 else round(value, 1)


def _clock(group: GroupAudit) -> Callable[[int | None], str]:
    """With the date where one clock time may be of several days."""
    return partial(clock, date=group.to_ms - group.from_ms > _DAY_MS)


def _rest(listed: Listed[object], *others: str, how: str = "") -> str:
    rest = f"and {listed.left_out:,} more{how}" if listed.left_out else ""
    return "; ".join(each for each in (rest, *others) if each)
