"""SpanMerger: merges records that end in any order into spans of offsets. Pure."""

from __future__ import annotations

from operator import itemgetter

from holdfast.plugin.audit.schema import COVERING, Outcome, Span

#: Outcomes of offsets that have no record.
_NOTHING = (Outcome.ABSENT, Outcome.EXPIRED)

#: first, next, records, began_ms, ended_ms
_Range = list[int]


class SpanMerger:
    """Merges the outcomes of one partition's records, until `take`. An offset counts as often as it was added.

    `count` is for sources whose offsets are no positions in a log: only numbers of records are kept, and the spans'
    offsets are None.
    """

    __slots__ = ("_last", "_ranges", "_uncounted")

    def __init__(self) -> None:
        self._ranges: dict[Outcome, list[_Range]] = {}
        self._last: dict[Outcome, _Range] = {}
        self._uncounted: dict[Outcome, _Range] = {}

    def add(self, outcome: Outcome, offsets: range, times: tuple[int, int]) -> None:
        """Add a record at each of these offsets; for ABSENT and EXPIRED, offsets without one. `times`: (began_ms,
        ended_ms)."""
        last = self._last.get(outcome)
        records = 0 if outcome in _NOTHING else len(offsets)
        if last is not None and last[1] == offsets.start:
            # The same as `_count`, inlined: each record that is not part of a run passes here.
            began_ms, ended_ms = times
            last[1] = offsets.stop
            last[2] += records
            if began_ms < last[3]:  # noqa: PLR1730 - a third of the time of min()
                last[3] = began_ms
            if ended_ms > last[4]:  # noqa: PLR1730 - as above
                last[4] = ended_ms
        else:
            self._last[outcome] = last = [offsets.start, offsets.stop, records, *times]
            self._ranges.setdefault(outcome, []).append(last)

    def count(self, outcome: Outcome, records: int, times: tuple[int, int]) -> None:
        """Add a number of records without offsets."""
        known = self._uncounted.get(outcome)
        if known is None:
            self._uncounted[outcome] = [0, 0, records, *times]
        else:
            _count(known, records, *times)

    def take(self) -> list[Span]:
        """Return everything as spans, those with offsets ascending, and empty the merger."""
        ranges = {outcome: _touching(found) for outcome, found in self._ranges.items()}
        holes, gone = (ranges.pop(outcome, []) for outcome in _NOTHING)
        if holes and ranges:
            holes = _fill(ranges, holes)
        ranges |= {outcome: found for outcome, found in zip(_NOTHING, (holes, gone), strict=True) if found}
        flat = sorted(((each, outcome) for outcome, found in ranges.items() for each in found), key=_first)
        spans = [_span(outcome, first, after, rest) for (first, after, *rest), outcome in flat]
        spans += [_span(outcome, None, None, rest) for outcome, (_, _, *rest) in self._uncounted.items()]
        self._ranges, self._last, self._uncounted = {}, {}, {}
        return spans


def _count(known: _Range, records: int, began_ms: int, ended_ms: int) -> None:
    known[2] += records
    known[3] = min(known[3], began_ms)
    known[4] = max(known[4], ended_ms)


def _touching(ranges: list[_Range]) -> list[_Range]:
    """Join ranges that touch. Ranges that overlap stay apart: the records ended more than once."""
    ranges.sort()
    found: list[_Range] = []
    for each in ranges:
        if found and found[-1][1] == each[0]:
            found[-1][1] = each[1]
            _count(found[-1], *each[2:])
        else:
            found.append(each)
    return found


def _fill(ranges: dict[Outcome, list[_Range]], holes: list[_Range]) -> list[_Range]:
    """Join two ranges of one outcome across a hole between them. Without it, a compacted log would give a span for
    each record.

    Outcomes that do not cover their offsets are left out: the hole would count as a loss.

    Returns the holes that remain.
    """
    covering = {outcome: found for outcome, found in ranges.items() if outcome in COVERING}
    ends = {each[1]: (outcome, each) for outcome, found in covering.items() for each in found}
    begins = {(outcome, each[0]): each for outcome, found in covering.items() for each in found}
    left, joined = [], set()
    for hole in holes:
        outcome, one = ends.get(hole[0], (None, hole))
        other = None if outcome is None else begins.pop((outcome, hole[1]), None)
        if outcome is None or other is None:
            left.append(hole)
            continue
        one[1] = other[1]
        _count(one, *other[2:])
        ends[one[1]] = (outcome, one)
        joined.add(id(other))
    for outcome, found in covering.items():
        ranges[outcome] = [each for each in found if id(each) not in joined]
    return left


def _span(outcome: Outcome, first: int | None, after: int | None, rest: list[int]) -> Span:
    records, began_ms, ended_ms = rest
    return Span(first=first, next=after, outcome=outcome, records=records, began_ms=began_ms, ended_ms=ended_ms)


_first = itemgetter(0)
