"""An audit in plain words: the same on the terminal and on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from holdfast.tools.audit_report.verdicts import Cause, Ended, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.tools.audit_report.pages.model import Audit, GroupAudit

Mood = Literal["bad", "unsure", "good"]

#: Explanations for readers new to these words.
CAUSES: Mapping[str, str] = {
    Cause.CRASH: "the process that ran it first was killed; its records in progress ran again",
    Cause.HAND_OVER: "the partition went to another member, which did not know of the first run",
    Cause.REDELIVERY: "the same member ran it twice while it owned the partition",
    Cause.RESET: "a reset told the group to read it again; this is not a fault",
}
VERDICTS: Mapping[str, str] = {
    Verdict.LOST: "the group's position passed it, and the events of all members that read there are complete: none "
    "handled it",
    Verdict.UNKNOWN: "a process that was killed, or whose events are incomplete, may have handled it",
    Verdict.PENDING: "no member has reported yet that it is done",
    Verdict.LEFT: "the group ended before it, or a reset skipped it",
    Verdict.EXPIRED: "retention deleted it before the group read it",
}


def mood(audit: Audit) -> Mood:
    """How it stands, in one word."""
    if any(each.wrong for each in audit.groups):
        return "bad"
    return "unsure" if not audit.groups or any(each.unsure for each in audit.groups) else "good"


def verdict(audit: Audit) -> str:
    """All groups in one sentence."""
    if not audit.groups:
        return "No events: nothing is known"
    repeats: dict[str, int] = {}
    for group in audit.groups:
        for cause, count in group.repeats.items():
            repeats[cause] = repeats.get(cause, 0) + count
    said = _sentence(
        audit.sum(lambda each: each.unheard + each.unreported),
        audit.sum(lambda each: each.lost),
        audit.sum(lambda each: each.unknown),
        audit.sum(lambda each: each.expired),
        repeats,
        audit.sum(lambda each: each.sent_twice or 0),
    )
    groups = "" if len(audit.groups) == 1 else f" in {len(audit.groups)} groups"
    return f"{said}, of {number(audit.sum(lambda each: each.records), 'record')} that ran{groups}"


def group_verdict(group: GroupAudit) -> str:
    """One group in one sentence."""
    said = _sentence(
        group.unheard + group.unreported,
        group.lost,
        group.unknown,
        group.expired,
        group.repeats,
        group.sent_twice or 0,
    )
    return f"{said}, of {number(group.records, 'record')} that ran"


def _sentence(  # noqa: PLR0917 - the figures in the order in which they are said
    untold: int, lost: int, unknown: int, expired: int, repeats: Mapping[str, int], sent_twice: int
) -> str:
    """`untold`: events are missing, so records may be lost without being counted."""
    parts = [f"{lost:,} lost" if lost else "Nothing known to be lost" if untold else "Nothing lost"]
    if unknown:
        parts.append(f"{unknown:,} unknown")
    if expired:
        parts.append(f"{expired:,} deleted by retention before they were read")
    again = {cause: count for cause, count in repeats.items() if cause != Cause.RESET}
    if total := sum(again.values()):
        parts.append(f"{total:,} repeated ({by_cause(again)})")
    else:
        parts.append("nothing repeated")
    if sent_twice:
        parts.append(f"{sent_twice:,} run twice because they were sent twice")
    if asked := repeats.get(Cause.RESET, 0):
        parts.append(f"{asked:,} repeated on demand (reset)")
    return ", ".join(parts)


def by_cause(counts: Mapping[str, int]) -> str:
    """Such as "3 by crash, 1 by hand-over", the most first."""
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count:,} by {cause}" for cause, count in most if count)


def remarks(group: GroupAudit) -> list[str]:
    """Remarks without which the figures cannot be judged."""
    found = []
    if group.killed:
        listed = [run.member for run in group.runs.rows if run.ended == Ended.KILLED]
        names = listing(set(listed)) + (", and others" if 0 < len(listed) < group.killed else "")
        found.append(
            f"{number(group.killed, 'process', 'es')} fell silent without a stop event{f': {names}' if names else ''}"
        )
    if group.unheard:
        found.append(
            f"no event of {number(group.unheard, 'process', 'es')} can be read (a later version of holdfast, an empty "
            "or broken file): records that no other process handled are unknown, not lost"
        )
    if group.unreported:
        found.append(
            f"{number(group.unreported, 'record')} are counted in stop events, but no other event reports them"
        )
    if group.missing_events:
        found.append(
            f"{number(group.missing_events, 'event')} never came: records that they may have reported are unknown, "
            "not lost"
        )
    if group.unreadable:
        found.append(
            f"{number(group.unreadable, 'line')} of the input could not be read, for example the last one of a killed "
            "process"
        )
    if group.client_skipped:
        found.append(
            f"the Kafka client had gone past {number(group.client_skipped, 'record')} as if there were none, and gave "
            "them when it was sent back: replace that version of it"
        )
    if pending := group.gaps.get(Verdict.PENDING, 0):
        found.append(f"{number(pending, 'record')} were not handled yet when the events end")
    if left := group.gaps.get(Verdict.LEFT, 0):
        found.append(f"{number(left, 'record')} were left when the group ended, or a reset skipped them")
    if group.sent_twice is None and group.processes:
        found.append("the events have no keys, so the audit cannot find records that a producer sent twice")
    return found


def listing(names: Iterable[str], at_most: int = 6) -> str:
    """A few names, and how many more."""
    every = sorted(names)
    rest = f" and {len(every) - at_most} more" if len(every) > at_most else ""
    return ", ".join(every[:at_most]) + rest


def number(count: int, thing: str, plural: str = "s") -> str:
    """Such as "1 record", "2,000 records"."""
    return f"{count:,} {thing}{plural if count != 1 else ''}"


def clock(at_ms: int | None, *, date: bool = False) -> str:
    """UTC."""
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def long(seconds: float | None) -> str:
    """A time's length."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def offsets(first: int, following: int) -> str:
    """Such as 17 or 17-20: both ends are in it."""
    return f"{first:,}" if following - first == 1 else f"{first:,}-{following - 1:,}"
