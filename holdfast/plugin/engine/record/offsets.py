"""Ranges of offsets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def spans(offsets: Iterable[int]) -> list[range]:
    """Offsets in any order as ascending ranges without gaps; never one that is not among them."""
    if isinstance(offsets, range):
        return [offsets] if offsets else []
    found: list[range] = []
    first = after = None
    for offset in sorted(offsets):
        if first is None or after is None:
            first = offset
        elif offset > after:
            found.append(range(first, after))
            first = offset
        after = offset + 1
    if first is not None and after is not None:
        found.append(range(first, after))
    return found


def joined(ranges: Iterable[range]) -> list[range]:
    """Ranges that do not overlap, ascending, with those that touch made one."""
    found: list[range] = []
    for each in sorted(ranges, key=_start):
        if found and found[-1].stop == each.start:
            found[-1] = range(found[-1].start, each.stop)
        else:
            found.append(each)
    return found


def _start(each: range) -> int:
    return each.start
