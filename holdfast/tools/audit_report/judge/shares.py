"""Records by the second: of each member, and against what the others did. Pure but for a temporary file."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from holdfast.tools.audit_report.judge.sorting import Sorter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = dict[str, Any]


class Shares:
    """The intake of one group, by second and run."""

    def __init__(self) -> None:
        self._sorter = Sorter()

    def add(self, run: str, second_ms: int, records: float, handled: float) -> None:
        """Add records that ended in that second. Called several times for a second."""
        self._sorter.add((second_ms, run, records, handled))

    def rows(self) -> Iterator[Row]:
        """The rows of `intake`, without members' names."""
        for (second_ms, run), parts in groupby(self._sorter, itemgetter(0, 1)):
            records = handled = 0.0
            for *_, more, of_these in parts:
                records, handled = records + more, handled + of_these
            yield {"run": run, "second_ms": second_ms, "records": records, "handled": handled}

    def of(self, lives: Mapping[str, tuple[int, int]]) -> dict[str, Row]:
        """`share` and `skew` of each run, from its first event and its last one: what it did of all that was done while
        it was at work, and against an even share of it among those at work in each second. None: nothing was done."""
        begins = sorted(_second(from_ms) for from_ms, _ in lives.values())
        ends = sorted(last_ms for _, last_ms in lives.values())
        own: dict[str, float] = defaultdict(float)
        seconds, of_all, of_each = array("q"), array("d", [0.0]), array("d", [0.0])
        for second_ms, parts in groupby(self._sorter, itemgetter(0)):
            total = 0.0
            for _, run, records, _ in parts:
                own[run] += records
                total += records
            at_work = bisect_right(begins, second_ms) - bisect_left(ends, second_ms)
            seconds.append(second_ms)
            of_all.append(of_all[-1] + total)
            of_each.append(of_each[-1] + total / max(at_work, 1))
        found: dict[str, Row] = {}
        for run, (from_ms, last_ms) in lives.items():
            low, high = bisect_left(seconds, _second(from_ms)), bisect_right(seconds, last_ms)
            if low >= high:
                found[run] = {"share": None, "skew": None}
                continue
            share, skew = own[run] / (of_all[high] - of_all[low]), own[run] / (of_each[high] - of_each[low])
            found[run] = {"share": share, "skew": skew}
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._sorter.close()


def _second(at_ms: int) -> int:
    return at_ms // 1000 * 1000
