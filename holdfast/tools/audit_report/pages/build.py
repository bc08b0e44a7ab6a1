"""From the audit's tables to what the report says: figures of all groups, details of those in which most is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages.model import (
    Audit,
    Duplicate,
    DuplicateKey,
    Gap,
    GroupAudit,
    Lagging,
    Listed,
    Pause,
    Rebalance,
    Run,
)
from holdfast.tools.audit_report.pages.over_time import ends_of, intake_of, lag_of, owned_of
from holdfast.tools.audit_report.pages.places import label, natural, strips_of
from holdfast.tools.audit_report.verdicts import Cause, KeyCause, Verdict

Line = TypeVar("Line")

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from holdfast.tools.audit_report.pages.reading import Found, Row, TableReader, Where

#: More groups than that have figures alone: those in which most is wrong come first.
MOST_GROUPS = 12
_MOST_RUNS, _MOST_FINDINGS, _MOST_REBALANCES, _MOST_PAUSES, _MOST_LAGGING = 100, 60, 200, 15, 10
_HOW: dict[str, Literal["sum", "min", "max"]] = {"from_ms": "min", "to_ms": "max", "stop_ms": "max", "pause_ms": "max"}
#: Where a stream counts lines that name no group.
_NAMELESS = "(no name)"
#: Keys that ran again since one record did are among the records.
_SENT = frozenset((KeyCause.PRODUCER.value, KeyCause.BOTH.value))


def audit_of(reader: TableReader, groups: Collection[str] = ()) -> Audit:
    """Args: groups: only these; all by default."""
    where: Where = {"group": frozenset(groups)} if groups else {}
    figures = Audit(groups=list(_all_figures(reader, where))).worst_first
    return Audit(groups=[*(_detailed(each, reader) for each in figures[:MOST_GROUPS]), *figures[MOST_GROUPS:]])


def _all_figures(reader: TableReader, where: Where) -> Iterable[GroupAudit]:
    """All groups, without details. A figure is of all rows: of a list that is cut it would be too small."""
    skipped = dict(reader.grouped(t.COVERAGE, ("group",), value="client_skipped", how="sum", where=where))
    spikes = dict(reader.grouped(t.REBALANCES, ("group",), value="peak_ratio", how="max", where=where))
    for row in _summaries(reader, where):
        yield _figures(row, skipped.get(row["group"]), spikes.get(row["group"]))


def _summaries(reader: TableReader, where: Where) -> Iterable[Row]:
    """One row a group. Of a stream there is one a step, which says what has become more."""
    rows: dict[str, Row] = {}
    for each in t.SUMMARY.columns:
        if each.type == "long":
            how = _HOW.get(each.name, "sum")
            for group, value in reader.grouped(t.SUMMARY, ("group",), value=each.name, how=how, where=where):
                rows.setdefault(group, {"group": group})[each.name] = value
    return rows.values()


def _figures(row: Row, client_skipped: int | None, spike: float | None) -> GroupAudit:
    repeats: dict[str, int] = {
        Cause.CRASH: row["crash"] or 0,
        Cause.HAND_OVER: row["hand_over"] or 0,
        Cause.REDELIVERY: row["redelivery"] or 0,
        Cause.RESET: row["reset"] or 0,
    }
    executions = row["handled"] or 0
    return GroupAudit(
        group=row["group"] or _NAMELESS,
        from_ms=row["from_ms"] or 0,
        to_ms=row["to_ms"] or 0,
        partitions=row["partitions"] or 0,
        # Where logs have holes, ranges tell of repetitions at most: of what ran, one record did.
        records=max(executions - sum(repeats.values()), min(executions, 1)),
        executions=executions,
        suppressed=row["skipped"] or 0,
        dead_lettered=row["dead_lettered"] or 0,
        gaps={each: row[each] or 0 for each in Verdict},
        repeats=repeats,
        sent_twice=row["producer"],
        killed=row["killed"] or 0,
        missing_events=(row["missing"] or 0) + (row["dropped"] or 0),
        unheard=row["unheard"] or 0,
        unreported=row["unreported"] or 0,
        unreadable=row["unreadable"] or 0,
        client_skipped=client_skipped or 0,
        stop_s=_seconds(row["stop_ms"]),
        pause_s=_seconds(row["pause_ms"]),
        spike=spike,
        processes=row["members"] or 0,
        rebalances=Listed(total=row["rebalances"] or 0),
    )


def _detailed(figures: GroupAudit, reader: TableReader) -> GroupAudit:
    if not figures.processes:  # nothing of it can be read
        return figures
    where: Where = {"group": figures.group}
    runs = _runs(reader, where)
    gaps = _gaps(reader, where)
    found = reader.largest(t.DUPLICATES, "records", _MOST_FINDINGS, where)
    duplicates = _listed(found, _duplicate, lambda each: (natural(each.partition), each.first))
    names = list(dict.fromkeys(run.member for run in runs.rows))
    wrong = [(each.topic, each.partition) for each in gaps.rows]
    wrong += [(each.topic, each.partition) for each in duplicates.rows]
    owned, names = owned_of(reader, figures, wrong, names)
    return replace(
        figures,
        detailed=True,
        members=names,
        runs=runs,
        gap_rows=gaps,
        duplicates=duplicates,
        duplicate_keys=_listed(
            reader.largest(t.DUPLICATE_KEYS, "executions", _MOST_FINDINGS, {**where, "cause": _SENT}), _key
        ),
        rebalances=_listed(
            reader.largest(t.REBALANCES, "pause_ms", _MOST_REBALANCES, where), _rebalance, lambda each: each.number
        ),
        pauses=_listed(reader.largest(t.PAUSES, "pause_ms", _MOST_PAUSES, {**where, "waiting": True}), _pause),
        lagging=_lagging(reader, figures.group),
        owned=owned,
        lag=lag_of(reader, figures),
        intake=intake_of(reader, figures, names),
        strips=strips_of(reader, figures, gaps.rows, duplicates.rows),
    )


def _listed(
    found: Found, made: Callable[[Row], Line | None], order: Callable[[Line], object] | None = None
) -> Listed[Line]:
    rows = [each for each in map(made, found.rows) if each is not None]
    if order is not None:
        rows.sort(key=order)  # type: ignore[arg-type]  # numbers and tuples of them
    return Listed(rows=rows, total=found.total - (len(found.rows) - len(rows)))


def _runs(reader: TableReader, where: Where) -> Listed[Run]:
    """Each process once: a stream tells one that was taken for dead again when it ends, with all that it has done."""
    every = list(reader.grouped(t.MEMBERS, ("run",), value="events", how="max", where=where))
    last: dict[str, Row] = {}
    for row in reader.largest(t.MEMBERS, "handled", _MOST_RUNS, where).rows:
        before = last.get(row["run"])
        if before is None or (before["events"] or 0) < (row["events"] or 0):
            last[row["run"]] = row
    return Listed(rows=sorted(map(_run, last.values()), key=lambda each: each.began_ms), total=len(every))


def _gaps(reader: TableReader, where: Where) -> Listed[Gap]:
    """The gaps, lost records first. Lag and what was left are told as figures, not as findings."""
    rows: list[Gap] = []
    total = 0
    for verdict in (Verdict.LOST, Verdict.EXPIRED, Verdict.UNKNOWN):
        found = reader.largest(t.GAPS, "offsets", _MOST_FINDINGS - len(rows), {**where, "verdict": verdict.value})
        rows += sorted(map(_gap, found.rows), key=lambda each: (natural(each.partition), each.first))
        total += found.total
    return Listed(rows=rows, total=total)


def _gap(row: Row) -> Gap:
    return Gap(
        topic=row["topic"],
        partition=label(row),
        first=row["first"],
        next=row["next"],
        verdict=row["verdict"],
        reason=row["reason"] or "",
        after_ms=row["after_ms"],
        members=_names(row["members"]),
    )


def _duplicate(row: Row) -> Duplicate:
    return Duplicate(
        topic=row["topic"],
        partition=label(row),
        first=row["first"],
        next=row["next"],
        records=row["records"],
        executions=row["executions"],
        repeats=row["repeats"],
        cause=row["cause"],
        again_ms=row["again_ms"],
        members=_names(row["members"]),
    )


def _key(row: Row) -> DuplicateKey:
    return DuplicateKey(
        key=row["key"],
        executions=row["executions"],
        cause=row["cause"],
        first=_record(row, "partition", "offset"),
        again=_record(row, "again_partition", "again_offset"),
    )


def _record(row: Row, partition: str, offset: str) -> str:
    at = "" if row[offset] is None else f" at {row[offset]:,}"
    return f"{row['topic']}-{row[partition]}{at}"


def _run(row: Row) -> Run:
    return Run(
        member=row["member"],
        run=row["run"],
        began_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        ended=row["ended"],
        handled=row["handled"] or 0,
        skipped=(row["skipped_position"] or 0) + (row["skipped_key"] or 0),
        dead_lettered=row["dead_lettered"] or 0,
        sent_back=row["sent_back"] or 0,
        failed=row["failed"] or 0,
        client_skipped=row["client_skipped"] or 0,
        share=row["share"],
        skew=row["skew"],
        missing_events=(row["missing"] or 0) + (row["dropped"] or 0),
    )


def _rebalance(row: Row) -> Rebalance:
    return Rebalance(
        number=row["rebalance"],
        began_ms=row["began_ms"],
        ended_ms=row["ended_ms"],
        triggers=", ".join(row["triggers"] or ()),
        members=row["members"] or 0,
        moved=row["moved"] or 0,
        stop_s=_seconds(row["stop_ms"]),
        stop_from_ms=row.get("stop_from_ms"),
        pause_s=_seconds(row["pause_ms"]),
        lag=row["lag"],
        recovered_s=_seconds(row["recovered_ms"]),
        steady_per_s=row["steady_per_s"],
        peak_per_s=row["peak_per_s"],
        spike=row["peak_ratio"],
    )


def _pause(row: Row) -> Pause | None:
    if row["last_ms"] is None or row["first_ms"] is None:
        return None
    return Pause(
        partition=label(row),
        rebalance=row["rebalance"],
        from_ms=row["last_ms"],
        to_ms=row["first_ms"],
        old=row["from_member"] or "",
        new=row["to_member"] or "",
    )


def _lagging(reader: TableReader, group: str) -> Listed[Lagging]:
    heard = reader.grouped(t.LAG, ("topic", "partition"), value="lag", how="max", where={"group": group})
    most = {(topic, partition): max(lag, 0) for topic, partition, lag in heard if lag is not None}
    ends = ends_of(reader, group)
    rows = []
    for name in sorted(most, key=lambda each: (-most[each], each))[:_MOST_LAGGING]:
        position, end = ends.get(name, (None, None))
        rows.append(Lagging(partition="-".join(name), position=position, end=end, most=most[name]))
    return Listed(rows=rows, total=len(most))


def _names(members: list[str] | None) -> str:
    return ", ".join(dict.fromkeys(members or ()))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
