"""HandedOut: records that the loop has and has not ended, by ownership, in the order of handing out. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Partition


class HandedOut:
    """The entries in the loop's hands. A run of records is split if only a part of it is taken. Under the lock of its
    `Driven`.

    Partitions and ownerships without entries are removed: each hand-over makes a new ownership.
    """

    def __init__(self) -> None:
        self._entries: dict[Partition, dict[Ownership, deque[Entry]]] = {}
        #: The number of records, their bytes, and how many entries were taken out so far.
        self.records = self.bytes = self.drops = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        for by_owner in self._entries.values():
            for entries in by_owner.values():
                yield from entries

    @property
    def ownerships(self) -> int:
        """The number of ownerships with entries."""
        return sum(map(len, self._entries.values()))

    def add(self, entry: Entry) -> None:
        """Note an entry that was handed out."""
        owner = entry.owner
        self._entries.setdefault(owner.partition, {}).setdefault(owner, deque()).append(entry)
        self.records += entry.count
        self.bytes += entry.size

    def without(self, rest: Entry) -> None:
        """Count out records that were cut from the end of an entry here."""
        self.records -= rest.count
        self.bytes -= rest.size

    def drop(self, entry: Entry) -> bool:
        """Take out a whole entry. Returns False: it is not here."""
        owner = entry.owner
        entries = self._entries.get(owner.partition, {}).get(owner)
        if not entries or entry not in entries:
            return False
        entries.remove(entry)
        self._out(entry)
        self._tidy(owner)
        return True

    def take_of(self, partitions: Collection[Partition]) -> list[Entry]:
        """Take out all entries of these partitions, of any ownership."""
        gone = [self._entries.pop(partition) for partition in self._entries.keys() & set(partitions)]
        taken = [entry for by_owner in gone for entries in by_owner.values() for entry in entries]
        for entry in taken:
            self._out(entry)
        return taken

    def below(self, partition: Partition, offset: int) -> list[Entry]:
        """The entries of a partition below the offset. Each stays here until `drop`, so that a call that a signal
        handler breaks off can be repeated."""
        found = []
        for entries in self._entries.get(partition, {}).values():
            for at, entry in enumerate(list(entries)):
                if entry.record.offset >= offset:
                    continue  # a record that was handed out again comes after later ones
                if (below := bisect_left(entry.offsets, offset)) < entry.count:
                    entries.insert(at + 1, entry.cut(below))
                found.append(entry)
        return found

    def take_from(self, owner: Ownership, offset: int) -> list[Entry]:
        """Take out the records of an ownership at or above the offset."""
        entries = self._entries.get(owner.partition, {}).get(owner)
        if not entries:
            return []
        taken: list[Entry] = []
        kept: deque[Entry] = deque()
        for entry in entries:
            below = bisect_left(entry.offsets, offset)
            if below:
                kept.append(entry)
            if below < entry.count:
                taken.append(entry.cut(below) if below else entry)
        self._entries[owner.partition][owner] = kept
        for entry in taken:
            self._out(entry)
        self._tidy(owner)
        return taken

    def find(self, partition: Partition, offset: int) -> Entry | None:
        """The entry of this record alone, if it is here; it stays here."""
        by_owner = self._entries.get(partition, {})
        for owner, entries in by_owner.items():
            for at, entry in enumerate(entries):
                if entry.record.offset <= offset <= entry.records[-1].offset:
                    if entry.count == 1:
                        return entry
                    others, pieces = list(entries), entry.apart()
                    by_owner[owner] = deque([*others[:at], *pieces, *others[at + 1 :]])
                    return next((one for one in pieces if one.record.offset == offset), None)
        return None

    def recount(self) -> None:
        """Count again: a call that a signal handler has broken off may have left wrong counts."""
        self.records, self.bytes = sum(entry.count for entry in self), sum(entry.size for entry in self)

    def _out(self, entry: Entry) -> None:
        self.records -= entry.count
        self.bytes -= entry.size
        self.drops += 1

    def _tidy(self, owner: Ownership) -> None:
        by_owner = self._entries[owner.partition]
        if not by_owner[owner]:
            del by_owner[owner]
        if not by_owner:
            del self._entries[owner.partition]
