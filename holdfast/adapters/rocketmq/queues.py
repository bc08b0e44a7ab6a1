"""Queues: the assigned queues of a source, from which records are taken in turn; and their logs' marks in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.log import AGAIN_S, Stage
from holdfast.adapters.rocketmq.queue import Queue, Shared
from holdfast.adapters.rocketmq.reading import Reader
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES
from holdfast.errors import StoreUnavailable
from holdfast.plugin.ports import Batch, End
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from holdfast.adapters.rocketmq.commits import Commits
    from holdfast.adapters.rocketmq.reading import Chunk
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.errors import HoldfastError, RecordUnreadable
    from holdfast.records import Fence, Partition, Record

_log = logging.getLogger("holdfast.rocketmq")

#: How often idle queues are looked at.
_LOOK_S = 0.02
#: Idle queues in one look, so that its cost does not grow with the number of queues.
_LOOKED_AT = 256
#: Chunks of a queue that are taken together. Consecutive records go on as one run: 256 with chunks of 32. More would
#: wait for the budget of `mark_batch`.
_IN_A_ROW = 8


class Queues(Mapping["Partition", Queue]):
    """The assigned queues. The inbox' lock guards the set; methods are for the source's thread unless they say so.

    Args:
        shared: what the queues share: the client, the inbox, the settings.
        topics: subscriptions.
        commits: the commits of all queues.
        coordinator: stores the marks.
    """

    def __init__(self, shared: Shared, topics: Topics, commits: Commits, coordinator: Coordinator) -> None:
        self._shared, self._topics, self.commits, self._coordinator = shared, topics, commits, coordinator
        self._changed, self._group = shared.changed, shared.settings.group
        self._queues: dict[Partition, Queue] = {}
        self._look_at = self._recall_at = 0.0
        #: The error at which reading stopped. All records before it were delivered.
        self.broken: HoldfastError | None = None
        shared.client.on_broken = self.connection_broke

    def __getitem__(self, partition: Partition) -> Queue:
        return self._queues[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    # ---- which queues
    def assign(self, partitions: Iterable[Partition]) -> None:
        """Add queues. None is read before a seek."""
        for partition in partitions:
            queue = Queue(
                partition,
                self._topics.subscription(partition.topic),
                Reader(partition, self._group, self._topics),
                self.commits.of(partition),
                self._shared,
            )
            with self._changed:
                self._queues[partition] = queue

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these queues, before they are let go. Their commits go on."""
        for queue in self.some(partitions):
            queue.stop()

    def let_go(self, partitions: Iterable[Partition]) -> None:
        """Remove queues that this member has lost."""
        for partition in partitions:
            with self._changed:
                queue = self._queues.pop(partition, None)
            if queue is not None:
                queue.let_go()
            self.commits.let_go(partition)
            self.commits.offsets.forget(partition)

    def some(self, partitions: Iterable[Partition]) -> list[Queue]:
        """Return those of these queues that are assigned."""
        return [self._queues[partition] for partition in partitions if partition in self._queues]

    @property
    def wait_for_start(self) -> bool:
        """Whether the engine has given no starting offset yet for a queue."""
        return any(queue.log is None for queue in self._queues.values())

    # ---- taking
    @property
    def has_some(self) -> bool:
        """Whether `take` would return something. Under the lock."""
        return bool(self._shared.ready)

    def take(self, at_most: int, owners: Mapping[Partition, Fence]) -> Batch:
        """Take records that have arrived, some chunks of each queue in turn: at most `at_most`, and bodies until their
        bytes reach `POLL_BYTES`. The next call goes on within a compressed chunk."""
        records: list[Record] = []
        ends: list[End] = []
        unreadable: dict[tuple[Partition, int], RecordUnreadable] = {}
        room = POLL_BYTES
        while at_most > 0 and room > 0 and self.broken is None:
            with self._changed:
                if not self._shared.ready:
                    break
                queue = self._shared.ready.popleft()
            for _ in range(_IN_A_ROW):
                chunk = queue.first_chunk()
                if chunk is None or at_most <= 0 or room <= 0:
                    break
                taken = self._records(queue, chunk, at_most, room, owners)
                records += taken
                at_most, room = at_most - len(taken), chunk.room
                if chunk.unreadable:
                    unreadable.update({(queue.partition, at): error for at, error in chunk.unreadable.items()})
                if not chunk.over or self.broken is not None:
                    break
                ends.append(End(queue.partition, chunk.next_offset))
                queue.taken(chunk)
            queue.back_in_turn()
        return Batch(records, ends, unreadable)

    def _records(
        self, queue: Queue, chunk: Chunk, at_most: int, room: int, owners: Mapping[Partition, Fence]
    ) -> Sequence[Record]:
        fence = owners.get(queue.partition)
        if fence is None or chunk.over:
            chunk.over, chunk.room = True, room
            return ()
        found, self.broken = queue.reader.records(chunk, fence, at_most=at_most, room=room)
        return found

    def pull_idle(self) -> None:
        """Pull idle queues, in turn. Called often; acts 50 times a second at most, and only if there is room."""
        shared, now = self._shared, SYSTEM_CLOCK.now()
        if now >= self._look_at and shared.idle:
            self._look_at = now + _LOOK_S
            with self._changed:
                if not shared.room.kept and shared.room.left() <= 0:
                    return
                idle = list(islice(shared.idle, _LOOKED_AT))
            for queue in idle:
                queue.pull()

    # ---- logs
    def prove(self) -> None:
        """Read stored marks, and send probes of queues that are not proved."""
        if not self._shared.unproved:
            return
        with self._changed:
            unproved = list(self._shared.unproved)
        self._recall([queue for queue in unproved if queue.log is not None and queue.log.stage is Stage.UNKNOWN])
        for queue in unproved:
            queue.prove()

    def _recall(self, queues: Sequence[Queue]) -> None:
        """Read the marks that the coordinator has stored."""
        now = SYSTEM_CLOCK.now()
        if not queues or now < self._recall_at:
            return
        try:
            texts = self._coordinator.noted(self._group, [_name(queue.partition) for queue in queues])
        except StoreUnavailable as error:
            _log.info("which logs were read is not known yet: %s", error)
            self._recall_at = now + AGAIN_S
            return
        with self._changed:
            for queue, text in zip(queues, texts, strict=True):
                if queue.log is not None:
                    queue.log.recall(text)

    def connection_broke(self, address: str) -> None:
        """Doubt the logs of a broker whose connection broke, also of queues that wait for no answer now: the server
        that answers next for this broker may have another log. Any thread."""
        brokers = self._shared.client.brokers_at(address)  # empty: no route has this address any more
        with self._changed:
            for queue in self._queues.values():
                if not brokers or queue.partition.broker in brokers:
                    queue.doubt()
            self._changed.notify_all()

    def renew_marks(self) -> None:
        """Check the logs whose next mark is due, and store new marks. On the upkeep's thread: waits for the store.
        Raises StoreUnavailable."""
        with self._changed:
            queues = list(self._queues.values())
        for queue in queues:
            queue.renew_mark()
        self.store_marks()

    def store_marks(self) -> None:
        """Store new marks, for the next owners. Waits for the store. Raises StoreUnavailable."""
        with self._changed:
            logs = {queue.partition: queue.log for queue in self._queues.values() if queue.log is not None}
            new = {partition: mark for partition, log in logs.items() if (mark := log.to_note) is not None}
        if not new:
            return
        self._coordinator.note(self._group, {_name(partition): mark.text for partition, mark in new.items()})
        with self._changed:
            for partition, mark in new.items():
                logs[partition].noted = mark

    def forget_marks(self, partitions: Collection[Partition]) -> None:
        """Remove the marks of queues that are gone for good. Waits for the store. Raises StoreUnavailable."""
        if partitions:
            self._coordinator.note(self._group, {_name(partition): None for partition in partitions})


def _name(queue: Partition) -> str:
    """The key under which the coordinator stores the mark."""
    return f"{queue.topic}/{queue.broker}/{queue.number}"
