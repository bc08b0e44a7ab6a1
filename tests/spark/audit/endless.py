"""A group that works on and on: two partitions, members that are replaced, a repetition and a loss now and then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_MS = 1_700_000_000_000
_EACH_S = 50  # so long is a run; then it gives all it has, and the next one takes it
_RECORDS = 100  # a second, of each partition


class Endless:
    """Its events, second by second."""

    def __init__(self, group: str = "endless") -> None:
        self.group = group
        self.second = 0
        self._run, self._seq, self._handled = 0, 0, 0

    def lines(self, seconds: int) -> Iterator[str]:
        """So many seconds more."""
        for _ in range(seconds):
            if self.second % _EACH_S == 0:
                yield from self._next_run()
            self.second += 1
            for partition in ("0", "1"):
                yield self._tell("span", topic="t", partition=partition, epoch=self._run, spans=list(self._spans()))
            yield self._tell("progress", partitions=self._places())

    def _next_run(self) -> Iterator[str]:
        if self._run:
            yield self._tell("revoked", partitions=self._places(), trigger="leave")
            records = {"handled": self._handled, "skipped_key": 2 * _EACH_S}
            yield self._tell("stopped", clean=True, records=records, in_hand=0)
        self._run, self._seq, self._handled = self._run + 1, 0, 0
        yield self._tell("started", protocol="cooperative", source="loop", settings={})
        yield self._tell("assigned", partitions=self._places(), trigger="assigned")

    def _spans(self) -> Iterator[dict[str, Any]]:
        ended, first = AT_MS + self.second * 1000, (self.second - 1) * _RECORDS
        lost, twice = self.second % 40 == 7, self.second % 40 == 21
        spans = [(first, first + 1, "skipped_key", 1), (first + 1 + lost, first + _RECORDS, "handled", 99 - lost)]
        if twice:
            spans.append((first + 10, first + 20, "handled", 10))
        for each in spans:
            self._handled += each[3] * (each[2] == "handled")
            row = dict(zip(("first", "next", "outcome", "records"), each, strict=True))
            yield row | {"began_ms": ended - 900, "ended_ms": ended}

    def _places(self) -> list[dict[str, Any]]:
        done = self.second * _RECORDS
        at = {"topic": "t", "epoch": self._run, "position": done, "end": done + 5, "in_flight": 0}
        return [at | {"partition": each} for each in ("0", "1")]

    def _tell(self, kind: str, **of: Any) -> str:
        stamp = {"v": 1, "kind": kind, "group": self.group, "member": "m", "run": f"{self._run:016x}", "dropped": 0}
        self._seq += 1
        return json.dumps(stamp | {"seq": self._seq - 1, "at_ms": AT_MS + self.second * 1000} | of)

    @property
    def lost(self) -> int:
        """Offsets, so far."""
        return 2 * sum(second % 40 == 7 for second in range(1, self.second + 1))

    @property
    def repeated(self) -> int:
        """Executions too many, so far."""
        return 20 * sum(second % 40 == 21 for second in range(1, self.second + 1))
