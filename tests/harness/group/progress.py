"""How far a group is behind, what is produced and has not ended: step by step, since a soak has a million of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.harness.group.ledger import Reader, Where
    from tests.harness.group.traffic import Traffic


class Progress:
    """Over a ledger and what was produced. One thread."""

    def __init__(self, traffic: Traffic, reader: Reader, *, by_key: bool) -> None:
        self._traffic, self._reader, self._by_key = traffic, reader, by_key
        self._seen = self._read = 0
        self._done: set[Where | str] = set()
        self._open: set[Where | str] = set()

    def behind(self) -> int:
        """How many are produced and have not ended."""
        entries = self._reader.read()  # read first: what is produced meanwhile is behind
        for entry in entries[self._read :]:
            if entry.what == "end":
                name = entry.key if self._by_key else entry.where
                self._done.add(name)
                self._open.discard(name)
        self._read = len(entries)
        produced = self._traffic.produced
        until = len(produced)
        for each in produced[self._seen : until]:
            name = each.key if self._by_key else each.where
            if name not in self._done:
                self._open.add(name)
        self._seen = until
        return len(self._open)
