"""Partitions by name, and where in their logs something is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.tools.audit_report import tables as t
from holdfast.tools.audit_report.pages.model import Listed, Mark, Strip
from holdfast.tools.audit_report.pages.words import number, offsets
from holdfast.tools.audit_report.verdicts import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.tools.audit_report.pages.model import Duplicate, Gap, GroupAudit
    from holdfast.tools.audit_report.pages.reading import Row, TableReader

_MOST_STRIPS, _MOST_RANGES = 16, 100_000
_DIGITS = re.compile(r"(\d+)")


def label(row: Row) -> str:
    """Such as orders-3, orders-broker-a-3."""
    return f"{row['topic']}-{row['partition']}"


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """An order in which orders-9 comes before orders-10."""
    parts = _DIGITS.split(name)
    return tuple((text, int(digits)) for text, digits in zip(parts[::2], [*parts[1::2], "-1"], strict=True))


def strips_of(
    reader: TableReader, group: GroupAudit, gaps: Sequence[Gap], duplicates: Sequence[Duplicate]
) -> Listed[Strip]:
    """A strip for each partition with findings, those with lost records first."""
    marks: dict[tuple[str, str], list[Mark]] = {}
    for gap in gaps:
        tip = f"{gap.partition} {offsets(gap.first, gap.next)}: {number(gap.records, 'offset')} {gap.verdict}"
        marks.setdefault((gap.topic, gap.partition), []).append(Mark(gap.first, gap.next, gap.verdict, tip))
    for each in duplicates:
        if each.cause != Cause.RESET:
            tip = f"{each.partition} {offsets(each.first, each.next)}: ran {each.executions} times, by {each.cause}"
            marks.setdefault((each.topic, each.partition), []).append(Mark(each.first, each.next, "repeated", tip))
    chosen = sorted([*marks][:_MOST_STRIPS], key=lambda each: (natural(each[1]), each))
    ranges = _ranges(reader, group.group, chosen)
    return Listed(
        rows=[
            Strip(
                partition=name[1],
                begin=min([ranges[name][0], *(mark.first for mark in marks[name])]),
                end=max([ranges[name][1], *(mark.next for mark in marks[name])]),
                marks=marks[name],
            )
            for name in chosen
        ],
        total=len(marks),
    )


def _ranges(
    reader: TableReader, group: str, names: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Topic and name of a partition -> where the group began, and the end."""
    wanted = set(names)
    found = dict.fromkeys(wanted, (1 << 62, 0))
    for row in reader.largest(t.COVERAGE, "repeated", _MOST_RANGES, {"group": group}).rows if wanted else ():
        if (name := (row["topic"], label(row))) in wanted:
            end = max(row["end"] or 0, row["position"] or 0, row["covered_to"] or 0)
            found[name] = end if row["begin"] is None else row["begin"], end
    return found
