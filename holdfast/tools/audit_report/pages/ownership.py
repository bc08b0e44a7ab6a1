"""Owners of partitions over time: a row a partition, a colour a member, pauses hatched, rebalances across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.audit_report.pages.frame import TOP, Picture, Times, bar, colour, label, legend, name_at_left
from holdfast.tools.audit_report.pages.style import MOST_COLOURS
from holdfast.tools.audit_report.pages.words import clock, long, number
from holdfast.tools.svg import LETTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.audit_report.pages.model import GroupAudit, Owned, Stretch

_MOST_LEGEND = 24
#: Narrower stretches are drawn together as one without a member.
_LEAST_PX = 1.0


def ownership(group: GroupAudit, times: Times) -> Picture | None:
    """The picture of each partition's owners over time; None: no partition is known."""
    rows = group.owned.rows
    if not rows:
        return None
    high, gap = (16, 4) if len(rows) <= 16 else (9, 3)
    shapes: list[str] = []
    bottom = TOP + len(rows) * (high + gap)
    shapes += times.axis(TOP, bottom)
    for i, row in enumerate(rows):
        y = TOP + i * (high + gap) + gap / 2
        shapes.append(name_at_left(y + high / 2 + 4, row.partition))
        shapes += _row(row, group, times, y, high)
    shapes += times.marks(group.rebalances.rows, TOP, bottom)
    silent = {stretch.member for row in rows for stretch in row.stretches if stretch.silent}
    entries = [
        (colour(i), f"{name} (fell silent)" if i in silent else name)
        for i, name in enumerate(group.members[:_MOST_LEGEND])
    ]
    if len(group.members) > _MOST_LEGEND:
        entries.append(("rest", f"and {len(group.members) - _MOST_LEGEND} more"))
    if any(row.pauses for row in rows):
        entries.append(("pause", "pause: no record finished between two owners"))
    key, end = legend(bottom + 28, entries)
    words = (
        f"{number(len(rows), 'partition')} and {number(len(group.members), 'member')} over time, "
        f"with {number(group.rebalances.total, 'rebalance')}. The tables below have the figures."
    )
    return Picture("ownership", f"Who owned which partition of {group.group}", words, end, [*shapes, *key])


def _row(row: Owned, group: GroupAudit, times: Times, y: float, high: float) -> Iterator[str]:
    for left, right, stretch in _merged(row, times):
        if stretch is None:
            yield bar(left, y, right - left, high, "rest", tip=f"{row.partition}: several members in turn")
            continue
        name = group.members[stretch.member]
        heard = ", when it was heard last" if stretch.silent else ""
        tip = f"{row.partition}: {name}, {clock(stretch.from_ms)} to {clock(stretch.to_ms)}{heard}"
        yield bar(left, y, max(right - left, _LEAST_PX), high, colour(stretch.member), tip=tip)
        if high >= 14 and right - left > len(name) * LETTER + 8:
            yield label(left + 4, y + high - 5, name, 'class="in" pointer-events="none"')
    for from_ms, to_ms in row.pauses:
        left, right = times.x(from_ms), times.x(to_ms)
        tip = f"{row.partition}: no record for {long((to_ms - from_ms) / 1000)} from {clock(from_ms)}"
        yield bar(left, y, max(right - left, _LEAST_PX), high, "pause", tip=tip)


def _merged(row: Owned, times: Times) -> Iterator[tuple[float, float, Stretch | None]]:
    """Left, right, stretch; None = several that are too narrow to be seen."""
    many: tuple[float, float] | None = None
    for stretch in row.stretches:
        left, right = times.x(stretch.from_ms), times.x(stretch.to_ms)
        if right - left < _LEAST_PX and len(row.stretches) > 2 * MOST_COLOURS:
            if many is not None and left - many[1] < _LEAST_PX:
                many = many[0], max(right, many[0] + _LEAST_PX)
                continue
            if many is not None:
                yield *many, None
            many = left, max(right, left + _LEAST_PX)
            continue
        if many is not None:
            yield *many, None
            many = None
        yield left, right, stretch
    if many is not None:
        yield *many, None
