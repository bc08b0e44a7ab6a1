"""How fast work was begun, and how far it was behind: from the ledger and from what was produced."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.harness.group.ledger import Entry
    from tests.harness.group.referee import Produced

_S = 1_000_000_000
_STEP = _S // 50


def starts(entries: Iterable[Entry], since_ns: int) -> list[int]:
    """When records were started, since then."""
    return [each.at_ns for each in entries if each.what == "start" and each.at_ns >= since_ns]


def peak_per_s(times_ns: Iterable[int]) -> int:
    """The most that were within one second, of all seconds."""
    times = sorted(times_ns)
    most = first = 0
    for number, time in enumerate(times):
        while times[first] <= time - _S:
            first += 1
        most = max(most, number - first + 1)
    return most


class Behind:
    """How many records were produced and not handled, at any time."""

    def __init__(self, produced: Iterable[Produced], entries: Iterable[Entry]) -> None:
        ended: dict[object, int] = {}
        for each in entries:
            if each.what == "end":
                ended.setdefault(each.where, each.at_ns)
        self._ended = sorted(ended.values())
        self._produced = sorted(each.at_ns for each in produced)

    def at(self, at_ns: int) -> int:
        """Then."""
        return bisect_right(self._produced, at_ns) - bisect_right(self._ended, at_ns)

    def recovered_s(self, since_ns: int, usual: int) -> float | None:
        """Seconds from then until no more was behind than usual, after it was at its worst. None: never.

        It may be at its worst when the flow ends: acknowledgements that came late are counted then.
        """
        recovered = self._recovered(self.worst(since_ns), usual)
        return None if recovered is None else (recovered - since_ns) / _S

    def came_meanwhile(self, since_ns: int, usual: int) -> int | None:
        """How many were produced while what was behind was worked off, from when it was at its worst. None: never."""
        worst = self.worst(since_ns)
        recovered = self._recovered(worst, usual)
        return (
            None if recovered is None else bisect_right(self._produced, recovered) - bisect_right(self._produced, worst)
        )

    def worst(self, since_ns: int) -> int:
        """When the most was behind, since then."""
        return max(self._times(since_ns), key=self.at)

    def _recovered(self, worst: int, usual: int) -> int | None:
        return next((each for each in self._times(worst) if self.at(each) <= usual), None)

    def _times(self, since_ns: int) -> range:
        return range(since_ns, max(self._produced[-1], *self._ended[-1:]) + _STEP, _STEP)
