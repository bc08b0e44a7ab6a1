"""What a loop was handed and has not ended, by ownership and in the order of handing out. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from holdfast.plugin.entry import Entry
    from holdfast.plugin.ownership import Ownership
    from holdfast.records import Partition


class InHand:
    """Entries; a run of records is split where only some of them are asked for. Under the lock of its `Driven`."""

    def __init__(self) -> None:
        self._by_owner: dict[Ownership, deque[Entry]] = {}

    def __bool__(self) -> bool:
        return any(self._by_owner.values())

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._by_owner.values():
            yield from entries

    def add(self, entry: Entry) -> None:
        """It was handed out."""
        self._by_owner.setdefault(entry.owner, deque()).append(entry)

    def take_all(self) -> list[Entry]:
        """All of them."""
        taken = list(self)
        self._by_owner.clear()
        return taken

    def take_of(self, partitions: Collection[Partition]) -> list[Entry]:
        """All of these partitions, under whichever ownership."""
        owners = [owner for owner in self._by_owner if owner.partition in partitions]
        return [entry for owner in owners for entry in self._by_owner.pop(owner)]

    def take_below(self, partition: Partition, offset: int) -> list[Entry]:
        """All of that partition below the offset."""
        taken = []
        for owner, entries in self._by_owner.items():
            while owner.partition == partition and entries and entries[0].record.offset < offset:
                entry = entries.popleft()
                if (below := bisect_left(entry.offsets, offset)) < entry.count:
                    entries.appendleft(entry.cut(below))
                taken.append(entry)
        return taken

    def take(self, partition: Partition, offset: int) -> Entry | None:
        """That record, if it is in hand."""
        for owner, entries in self._by_owner.items():
            if owner.partition == partition:
                for at, entry in enumerate(entries):
                    if entry.record.offset <= offset <= entry.records[-1].offset:
                        del entries[at]
                        pieces = entry.apart() if entry.count > 1 else [entry]
                        found = next((one for one in pieces if one.record.offset == offset), None)
                        for piece in reversed(pieces):
                            if piece is not found:
                                entries.insert(at, piece)
                        return found
        return None
