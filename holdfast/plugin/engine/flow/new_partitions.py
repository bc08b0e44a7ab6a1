"""New partitions: queues their records while the ramp limits the intake, and lets the partitions in by turns.

The client hands out whole fetches: first everything of one partition, then everything of the next. If the ramp took
less of each poll, the partitions that stay would stop behind the backlog of the new ones. So the loop polls everything.
Records of partitions that stay continue at once; those of new partitions wait in a queue for each partition, and the
queues take turns. Only a new partition with many waiting records is paused: its client fetches it again later.

Waiting records are not in the ledger. After a seek, or if the partition goes, they are dropped and come again.

Measured with a ramp that polls less: partitions that stay stood still for 2.3 s at a join, for 10 s after a crash. The
end of a partition waits behind its records here: told earlier, these would count as a gap.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.plugin.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.ports import End
    from holdfast.records import Partition, Record

#: A new partition may always have that many waiting: each pause throws away what its client has fetched.
_GUARANTEED = 64


class _Queue:
    """The waiting records of one partition."""

    __slots__ = ("begun", "end", "owner", "records", "size")

    def __init__(self, owner: Ownership) -> None:
        self.owner = owner
        self.records: deque[Record] = deque()
        self.size = 0
        #: Its first record has gone on.
        self.begun = False
        #: Its client has read up to there, behind what waits.
        self.end: End | None = None


class NewPartitions:
    """One thread."""

    def __init__(self, at_most: int, at_most_bytes: int) -> None:
        """Args: how much of all of them together may wait, in records and bytes."""
        self._at_most, self._at_most_bytes = at_most, at_most_bytes
        #: Whose turn it is next stands first.
        self._queues: dict[Partition, _Queue] = {}
        #: What waits.
        self.records = 0
        self.bytes = 0
        #: How many of their records have gone on.
        self.gone_on = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, partition: object) -> bool:
        return partition in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    def add(self, owners: Iterable[Ownership]) -> None:
        """From now on their records wait for their turn."""
        for owner in owners:
            self.drop([owner.partition])
            self._queues[owner.partition] = _Queue(owner)

    def drop(self, partitions: Collection[Partition]) -> None:
        """Drop partitions that have gone: what waits of them is the next owner's."""
        for partition in partitions:
            if (queue := self._queues.pop(partition, None)) is not None:
                self._clear(queue)

    def clear(self) -> None:
        """Nothing of it is to be relied on: whatever waits comes again, by other ownerships."""
        self._queues.clear()
        self.records = self.bytes = 0

    def sent_elsewhere(self, partition: Partition) -> None:
        """The client was told to read on from the ledger's end: what waits comes again."""
        if (queue := self._queues.get(partition)) is not None:
            self._clear(queue)

    def too_many(self, owner: Ownership, *, paused: bool) -> bool:
        """Whether so much of it waits that its client should deliver no more; once paused, until half has gone on."""
        queue = self._queues.get(owner.partition)
        if queue is None or not queue.records:
            return False
        part = len(self._queues) * (2 if paused else 1)
        return (
            len(queue.records) >= max(_GUARANTEED // (2 if paused else 1), self._at_most // part)
            or queue.size >= self._at_most_bytes // part
        )

    # ---- each turn
    def queue(self, batch: Batch) -> Batch:
        """Put what is of new partitions into their queues, and return the rest, which waits for nothing."""
        go: list[Record] = []
        for fence, group in groupby(batch.records, key=_FENCE):
            came = list(group)
            queue = self._queues.get(came[0].partition)
            if queue is None or queue.owner is not fence:  # of an ownership that is over: not admitted
                go += came
                continue
            queue.records.extend(came)
            queue.end = None
            size = sum(map(_SIZE, came))
            queue.size += size
            self.records += len(came)
            self.bytes += size
        ends = []
        for end in batch.ends:
            queue = self._queues.get(end.partition)
            if queue is None or not queue.records:
                ends.append(end)
            else:
                queue.end = end
        return Batch(go, ends)

    def take(self, at_most: int | None, held: Collection[Partition] = ()) -> Batch:
        """Take what goes on now: the first of each in any case, then one after the other, as evenly as may be.

        Args:
            at_most: records; None = all, and none is new any more but those of `held` that have some.
            held: partitions that are to deliver nothing for now, whatever waits of them.
        """
        out: dict[Partition, list[Record]] = {}
        ends: list[End] = []
        for queue in self._queues.values():
            if queue.records and not queue.owner.open:
                self._clear(queue)  # dropped by whoever admits it, and read again
            if queue.records and not queue.begun and queue.owner.partition not in held:
                self._pop(queue, 1, out, ends)
        left = self.records if at_most is None else at_most
        while left > 0 and self.records:
            waiting = [queue for queue in self._queues.values() if queue.records and queue.owner.partition not in held][
                :left
            ]
            if not waiting:
                break
            share = left // len(waiting)
            for queue in waiting:
                left -= self._pop(queue, min(share, len(queue.records)), out, ends)
                partition = queue.owner.partition
                self._queues[partition] = self._queues.pop(partition)  # the last in the next round
        if at_most is None:
            self._queues = {partition: queue for partition, queue in self._queues.items() if queue.records}
        return Batch([record for records in out.values() for record in records], ends)

    # ---- inside
    def _pop(self, queue: _Queue, count: int, out: dict[Partition, list[Record]], ends: list[End]) -> int:
        records = [queue.records.popleft() for _ in range(count)]
        out.setdefault(queue.owner.partition, []).extend(records)
        queue.begun = True
        size = sum(map(_SIZE, records))
        queue.size -= size
        self.records -= count
        self.bytes -= size
        self.gone_on += count
        if not queue.records and queue.end is not None:
            ends.append(queue.end)
            queue.end = None
        return count

    def _clear(self, queue: _Queue) -> None:
        self.records -= len(queue.records)
        self.bytes -= queue.size
        queue.records.clear()
        queue.size, queue.end = 0, None


_FENCE = attrgetter("fence")
_SIZE = attrgetter("size_bytes")
