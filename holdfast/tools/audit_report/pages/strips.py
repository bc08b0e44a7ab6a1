"""Where in the logs something is wrong: a strip a partition, from its first offset to its last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.tools.audit_report.pages.frame import LEFT, RIGHT, WIDTH, Picture, bar, label, legend, name_at_left
from holdfast.tools.audit_report.pages.words import number

if TYPE_CHECKING:
    from holdfast.tools.audit_report.pages.model import GroupAudit

_HIGH, _GAP, _TOP = 14, 14, 8
#: One record among millions is to be seen too.
_LEAST_PX = 3.0
_SAID = {
    "lost": "lost",
    "expired": "deleted unread",
    "unknown": "unknown",
    "repeated": "ran more than once",
    "pending": "not yet done",
    "left": "left behind",
}


def strips(group: GroupAudit) -> Picture | None:
    """None: nothing is wrong."""
    rows = group.strips.rows
    if not rows:
        return None
    shapes = []
    y = float(_TOP)
    for row in rows:
        span = max(row.end - row.begin, 1)
        scale = (WIDTH - LEFT - RIGHT) / span
        shapes.append(name_at_left(y + _HIGH - 3, row.partition))
        shapes.append(
            bar(LEFT, y, span * scale, _HIGH, "covered", tip=f"{row.partition}: {row.begin:,} to {row.end:,}")
        )
        for mark in row.marks:
            wide = max((mark.next - mark.first) * scale, _LEAST_PX)
            left = min(LEFT + (mark.first - row.begin) * scale, WIDTH - RIGHT - wide)
            shapes.append(bar(left, y, wide, _HIGH, mark.kind, tip=mark.tip))
        shapes.append(label(LEFT, y + _HIGH + 10, f"{row.begin:,}", 'font-size="9"', faint=True))
        shapes.append(
            label(WIDTH - RIGHT, y + _HIGH + 10, f"{row.end:,}", 'font-size="9" text-anchor="end"', faint=True)
        )
        y += _HIGH + _GAP
    kinds = [kind for kind in _SAID if any(mark.kind == kind for row in rows for mark in row.marks)]
    key, end = legend(y + 6, [("covered", "done"), *((kind, _SAID[kind]) for kind in kinds)])
    words = f"{number(len(rows), 'partition')}: {', '.join(_SAID[kind] for kind in kinds)}."
    return Picture("offsets", f"Where it happened in the logs of {group.group}", words, end, [*shapes, *key])
