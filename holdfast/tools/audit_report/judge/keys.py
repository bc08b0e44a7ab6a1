"""Keys that were executed more than once. Pure but for a temporary file."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from holdfast.tools.audit_report.judge.sorting import Sorter
from holdfast.tools.audit_report.verdicts import KeyCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Row = dict[str, Any]

#: In the place of an offset where offsets say nothing: each execution is of a record of its own.
_NONE = -1


class Keys:
    """The keys of one group. A key is unique in its topic."""

    def __init__(self) -> None:
        self.asked_for = False  #: events carry keys
        self._sorter = Sorter()

    def add(self, told: Mapping[str, Any]) -> None:
        """Keys that were executed, as one event tells of them: see `hearing.hear`."""
        self.asked_for = True
        place = told["topic"], told["partition"]
        for nth, (offset, key) in enumerate(told["keys"]):
            at = _NONE if offset is None else offset
            self._sorter.add((place[0], key, place[1], at, told["run"], told["seq"], nth, told["at_ms"]))

    def rows(self) -> Iterator[Row]:
        """The rows of `duplicate_keys`."""
        for (topic, key), executions in groupby(self._sorter, itemgetter(0, 1)):
            row = _of(executions)
            if row is not None:
                yield {"topic": topic, "key": key} | row

    def close(self) -> None:
        """Let go of the file."""
        self._sorter.close()


def _of(executions: Iterable[tuple[Any, ...]]) -> Row | None:
    """None: it was executed once. They come record by record."""
    times, records, last = 0, 0, None
    first: tuple[int, int, str, int] | None = None
    again: tuple[int, int, str, int] | None = None
    for _, _, partition, offset, _, seq, _, at_ms in executions:
        times += 1
        if offset == _NONE or (partition, offset) != last:
            records += 1
        last = (partition, offset)
        here = (at_ms, seq, partition, offset)
        first = here if first is None else min(first, here)
        again = here if again is None else max(again, here)
    if times < 2 or first is None or again is None:
        return None
    cause = KeyCause.PRODUCER if records == times else KeyCause.REPEAT if records == 1 else KeyCause.BOTH
    return {
        "executions": times,
        "offsets": records,
        "cause": cause.value,
        "partition": first[2],
        "offset": None if first[3] == _NONE else first[3],
        "again_partition": again[2],
        "again_offset": None if again[3] == _NONE else again[3],
        "first_ms": first[0],
        "again_ms": again[0],
    }
