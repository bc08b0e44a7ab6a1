"""When the records of a span had ended: they are taken as spread evenly over its time. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def early_ms(began_ms: int, ended_ms: int, records: int) -> int:
    """When about the first record had ended."""
    return ended_ms if records < 2 else began_ms + (ended_ms - began_ms) // records


def seconds(early: int, ended: int, records: int) -> Iterable[tuple[int, float]]:
    """The second's begin in milliseconds, and how many of the records ended in it."""
    second = early // 1000 * 1000
    if ended < second + 1000:
        return ((second, float(records)),)
    edges = [early, *range(second + 1000, ended + 1, 1000), ended]
    return [
        (low // 1000 * 1000, records * (high - low) / (ended - early)) for low, high in pairwise(edges) if high > low
    ]
