"""Waiting: keeps polled records by partition, and lets partitions take turns in being admitted.

A client hands out whole fetches: first everything of one partition, then everything of the next. If a loop took less of
each poll, the other partitions would stand behind the backlog of one. So the loop polls on, what a partition's share
has no room for waits here, and only a partition of which much waits is paused: its client drops what it has fetched.

While the ramp limits the intake, the records of *new* partitions wait too, whatever room there is. Measured with a ramp
that polls less: partitions that stay stood still for 2.3 s at a join, for 10 s after a crash.

Waiting records are not in the ledger. After a seek, or if the partition goes, they are dropped and come again. The end
of a partition waits behind its records: told earlier, these would count as a gap.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.plugin.ports import Batch
from holdfast.records import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.ports import End
    from holdfast.records import Partition, Record

#: The memory of a waiting record's Python objects, besides its bytes: for short records the larger part.
_RECORD_BYTES = 512


class _Queue:
    """The waiting records of one partition, in chunks as they came."""

    __slots__ = ("begun", "chunks", "end", "new", "owner", "records", "size")

    def __init__(self, owner: Ownership, *, new: bool) -> None:
        self.owner = owner
        #: The ramp limits it.
        self.new = new
        self.chunks: deque[tuple[list[Record], int]] = deque()
        self.records = self.size = 0
        #: The first record has gone on.
        self.begun = False
        #: The client has read up to there, behind what waits.
        self.end: End | None = None

    def append(self, records: list[Record]) -> int:
        """Put records behind the others. Returns their bytes."""
        size = size_of(records)
        self.chunks.append((records, size))
        self.records += len(records)
        self.size += size
        self.end = None
        return size

    def pop(self, at_most: int) -> tuple[list[Record], int]:
        """Take the first records. Returns them and their bytes."""
        out: list[Record] = []
        taken = 0
        while self.chunks and len(out) < at_most:
            records, size = self.chunks.popleft()
            if (room := at_most - len(out)) < len(records):
                rest = size - size * room // len(records)
                self.chunks.appendleft((records[room:], rest))
                records, size = records[:room], size - rest
            out += records
            taken += size
        self.records -= len(out)
        self.size -= taken
        return out, taken


class _Going:
    """The records and ends that go on in one turn."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ends: list[End] = []


class Waiting:
    """One thread."""

    def __init__(self) -> None:
        #: The partition whose turn it is stands first.
        self._queues: dict[Partition, _Queue] = {}
        #: New partitions: the ramp limits these.
        self.new: set[Partition] = set()
        #: Waiting records, and their bytes.
        self.records = 0
        self.bytes = 0
        #: Records of new partitions that have gone on.
        self.new_gone_on = 0

    def __bool__(self) -> bool:
        """Whether records wait, or those of some partitions would."""
        return bool(self._queues)

    def __contains__(self, partition: Partition) -> bool:
        """Whether records of that partition wait."""
        return self.records_of(partition) > 0

    def add_new(self, owners: Iterable[Ownership]) -> None:
        """Let the records of new partitions wait for the ramp."""
        for owner in owners:
            self.drop([owner.partition])
            self._queues[owner.partition] = _Queue(owner, new=True)
            self.new.add(owner.partition)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Drop partitions that have gone: what waits of them is the next owner's."""
        for partition in partitions:
            self.new.discard(partition)
            if (queue := self._queues.pop(partition, None)) is not None:
                self._clear(queue)

    def clear(self) -> None:
        """Drop all: a call was torn, and what waits comes again, by other ownerships."""
        self._queues.clear()
        self.new.clear()
        self.records = self.bytes = 0

    def sent_elsewhere(self, partition: Partition) -> None:
        """Drop what waits: the client was told to read on from the ledger's end, and brings it again."""
        if (queue := self._queues.get(partition)) is not None:
            self._clear(queue)

    def weight_of(self, owner: Ownership) -> int:
        """The bytes that waiting records of an ownership take in memory; 0 = none wait."""
        queue = self._queues.get(owner.partition)
        return queue.size + _RECORD_BYTES * queue.records if queue is not None and queue.owner is owner else 0

    def records_of(self, partition: Partition) -> int:
        """How many records of that partition wait."""
        queue = self._queues.get(partition)
        return 0 if queue is None else queue.records

    def for_room(self, partition: Partition) -> bool:
        """Whether records of that partition wait for room, and not for the ramp."""
        return partition in self and partition not in self.new

    def owners(self) -> Iterator[Ownership]:
        """The ownerships of which records wait."""
        return (queue.owner for queue in self._queues.values() if queue.records)

    # ---- each turn
    def queue(self, batch: Batch, *, all_wait: bool) -> Batch:
        """Put into the queues what is to wait, and return the rest, which goes on at once.

        Args:
            batch: what was polled.
            all_wait: of every partition; else only of new ones, and behind what waits.
        """
        go: list[Record] = []
        for fence, group in groupby(batch.records, key=_FENCE):
            came = list(group)
            partition = came[0].partition
            queue = self._queues.get(partition)
            over = not fence.open or (queue is not None and queue.new and queue.owner is not fence)
            if over or (queue is None and not all_wait):
                go += came  # of an ownership that is over, they are not admitted
                continue
            if queue is None or queue.owner is not fence:
                self.drop([partition])
                queue = self._queues[partition] = _Queue(fence, new=False)
            self.bytes += queue.append(came)
            self.records += len(came)
        ends = []
        for end in batch.ends:
            queue = self._queues.get(end.partition)
            if queue is None or not queue.records:
                ends.append(end)
            else:
                queue.end = end
        return Batch(go, ends)

    def take(
        self, room: Callable[[Ownership, int], int], new_at_most: int | None, held: Collection[Partition] = ()
    ) -> Batch:
        """Take what goes on now, partitions in turn: of each what there is room for.

        Args:
            room: how many of so many waiting records of an ownership there is room for.
            new_at_most: records of new partitions, as evenly as may be, but the first of each in any case. None = as of
                all others; and no partition is new any more.
            held: partitions that are to deliver nothing for now, whatever waits of them.
        """
        if new_at_most is None:
            self._none_new()
        going = _Going()
        new: list[_Queue] = []
        for queue in list(self._queues.values()):
            if queue.records and not queue.owner.open:
                self._clear(queue)  # dropped by whoever admits it, and read again
            if not queue.records or queue.owner.partition in held:
                continue
            if queue.new:
                new.append(queue)
            else:
                self._pop(queue, room(queue.owner, queue.records), going)
        if new:
            self._take_new(new, room, new_at_most or 0, going)
        if not self.new:
            self._queues = {partition: queue for partition, queue in self._queues.items() if queue.records}
        return Batch(going.records, going.ends)

    # ---- inside
    def _take_new(self, new: list[_Queue], room: Callable[[Ownership, int], int], at_most: int, going: _Going) -> None:
        for queue in new:
            if not queue.begun:
                self._pop(queue, 1, going)
        left = at_most
        while left > 0 and (new := [queue for queue in new if queue.records]):
            share, before = max(1, left // len(new)), left
            for queue in new[:left]:
                left -= self._pop(queue, min(share, room(queue.owner, queue.records)), going)
            if left == before:
                return

    def _none_new(self) -> None:
        for partition in self.new:
            self._queues[partition].new = False
        self.new.clear()

    def _pop(self, queue: _Queue, count: int, going: _Going) -> int:
        if count <= 0:
            return 0
        records, size = queue.pop(count)
        going.records += records
        queue.begun = True
        partition = queue.owner.partition
        self._queues[partition] = self._queues.pop(partition)  # the last in the next turn
        self.records -= len(records)
        self.bytes -= size
        if queue.new:
            self.new_gone_on += len(records)
        if not queue.records and queue.end is not None:
            going.ends.append(queue.end)
            queue.end = None
        return len(records)

    def _clear(self, queue: _Queue) -> None:
        self.records -= queue.records
        self.bytes -= queue.size
        queue.chunks.clear()
        queue.records = queue.size = 0
        queue.end = None


_FENCE = attrgetter("fence")
