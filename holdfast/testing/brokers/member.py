"""A member of a group of Kafka's: a partitioned source on a broker in memory."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import Batch, CommitFate, Committed, End, Start
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.timing import Deadline


class Reader:
    """Where a member stands in a partition."""

    def __init__(self, position: int, *, paused: bool) -> None:
        self.position = position
        self.paused = paused
        self.told_end = -1


class MemoryPartitionedSource:
    """One member. All methods belong to one thread, but for `fail`."""

    session_timeout_s: float | None = None
    max_poll_interval_s = 300.0
    marked = True
    identity: Callable[[Record], str | None] | None = None
    retry_topic: str | None = None
    stray_letters: str | None = None
    retries: Callable[[Record], bool] | None = None

    def __init__(self, broker: MemoryBroker, group: str = "g", *, eager: bool = False) -> None:
        self.broker, self.group = broker, group
        self.of_group = broker.group(group, eager=eager)
        self.readers: dict[Partition, Reader] = {}
        #: Taken away by the broker, not told yet.
        self.lost: list[Partition] = []
        self.polls = 0
        #: What the listener is to be told in the next poll.
        self.news: deque[Callable[[RebalanceListener], None]] = deque()
        self._faults: dict[str, deque[Exception]] = defaultdict(deque)
        self._fates: list[tuple[Partition, int, CommitFate]] = []
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}

    def fail(self, method: str, *errors: Exception) -> None:
        """The next calls of that method raise these, one each."""
        with self.broker.changed:
            self._faults[method].extend(errors)

    def forgive(self, method: str) -> None:
        """That method is as it was."""
        with self.broker.changed:
            self._faults[method].clear()

    def failing(self, method: str) -> int:
        """How many calls of that method are still to fail."""
        return len(self._faults[method])

    def _check(self, method: str) -> None:
        if self._faults[method]:
            raise self._faults[method].popleft()

    # ---- PartitionedSource
    @property
    def protocol(self) -> str:
        """As of the group."""
        return "eager" if self.of_group.eager else "consumer"

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Join. Raises UnknownTopic."""
        self._check("open")
        self._listener, self._owners = listener, owners
        with self.broker.changed:
            known = {partition.topic for partition in self.broker.logs}
            missing = [topic for topic in topics if not topic.startswith("^") and topic not in known]
            if missing:
                raise UnknownTopic(f"{missing}: create them, or subscribe to others")
            self._topics = tuple(topics)
            self.of_group.members.append(self)
            self.of_group.balance()

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        with self.broker.changed:
            self._topics = tuple(topics)
            self.of_group.balance()

    def wants(self, topic: str) -> bool:
        """Whether a topic is subscribed to."""
        return any(re.match(each, topic) if each.startswith("^") else each == topic for each in self._topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Rebalances, then records."""
        self.polls += 1
        self._check("poll")
        while self._fates:  # as Kafka's: what a signal handler keeps from being noted is told once more
            partition, offset, fate = self._fates[0]
            self._listener.committed({partition: offset}, {partition: fate})
            self._fates.pop(0)
        while self.news:
            self.news.popleft()(self._listener)
        self._reconcile()
        with self.broker.changed:
            batch = self._read(max_records)
            if not batch.records and not batch.ends and timeout_s > 0 and not self._news():
                self.broker.changed.wait(timeout_s)
                batch = self._read(max_records)
            return batch

    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """By group, topic, id and number."""
        self._check("position_names")
        return {
            partition: f"{self.group}/{partition.topic}/{self.broker.id_of(partition.topic)}/{partition.number}"
            for partition in partitions
        }

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """As the group has it."""
        self._check("committed")
        with self.broker.changed:
            found = {partition: self.of_group.committed.get(partition) for partition in partitions}
            return {
                partition: None if one is None else Committed(*one, marked=self.marked)
                for partition, one in found.items()
            }

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first record."""
        self._check("first_offsets")
        with self.broker.changed:
            return {partition: self.broker.logs[partition].start for partition in partitions}

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The logs' ends, now."""
        self._check("last_offsets")
        return self.end_offsets(partitions)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The same."""
        self._check("look_at_ends")
        return self.end_offsets(partitions)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has it at once; the listener is told in the next poll."""
        self._check("commit")
        with self.broker.changed:
            for partition, offset in offsets.items():
                self._fates.append((partition, offset, self.of_group.commit(self, partition, offset)))

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The same."""
        with self.broker.changed:
            return {partition: self.broker.logs[partition].end for partition in partitions}

    def seek(self, partition: Partition, offset: int | None) -> None:
        """Read on from there. Raises SourceUnavailable."""
        self._check("seek")
        with self.broker.changed:
            reader = self.readers.get(partition)
            if reader is None:
                raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
            reader.position = self.broker.logs[partition].start if offset is None else offset
            reader.told_end = -1

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing."""
        self._check("pause")
        for partition in partitions:
            self.readers[partition].paused = True

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver again."""
        self._check("resume")
        for partition in partitions:
            self.readers[partition].paused = False

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Leave the group."""
        self.left_for_good = leave
        with self.broker.changed:
            if self not in self.of_group.members:
                return
            gone, own = list(self.lost), self.of_group.of(self)
            self.lost.clear()
        if gone:
            self._listener.lost(gone)
        if own:
            self._listener.revoked(own)
        with self.broker.changed:
            self.readers.clear()
            self.of_group.left(self, own)
            self.of_group.members.remove(self)
            self.of_group.balance(without=self)
        self._check("close")

    # ---- inside
    def _news(self) -> bool:
        return bool(self.lost or self.news or self._fates or self.of_group.leaving(self))

    def _reconcile(self) -> None:
        with self.broker.changed:
            gone = list(self.lost)
            self.lost.clear()
        # Whatever a callback raises (a signal handler may), the client goes on with the rebalance.
        if gone:
            try:
                self._listener.lost(gone)
            except BaseException:
                self._listener.torn((), gone)
                raise
            finally:
                self._forget(gone)
        with self.broker.changed:
            leaving = self.of_group.leaving(self)
        if leaving:
            try:
                self._listener.revoked(leaving)
            except BaseException:
                self._listener.torn((), leaving)
                raise
            finally:
                self._forget(leaving)
        with self.broker.changed:
            coming = self.of_group.coming(self)
        if coming:
            starts: Mapping[Partition, Start] = dict.fromkeys(coming, Start(None, hold=True))
            try:
                starts = self._listener.assigned(coming)
            except BaseException:
                self._listener.torn(coming, ())
                raise
            finally:
                for partition in coming:
                    self.readers[partition] = Reader(
                        self._start(partition, starts[partition].offset), paused=starts[partition].hold
                    )

    def _forget(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self.readers.pop(partition, None)
        with self.broker.changed:
            self.of_group.left(self, partitions)

    def _start(self, partition: Partition, offset: int | None) -> int:
        with self.broker.changed:
            committed = self.of_group.offset(partition) if offset is None else offset
            return self.broker.logs[partition].start if committed is None else committed

    def _read(self, at_most: int) -> Batch:
        records: list[Record] = []
        ends: list[End] = []
        # Whoever was read last is asked last the next time.
        for partition, reader in list(self.readers.items()):
            log = self.broker.logs[partition]
            if reader.paused or len(records) >= at_most:
                continue
            if not log.start <= reader.position <= log.end:
                reader.position = log.start  # out of range: the policy is "earliest"
            for offset in log.from_(reader.position, at_most - len(records)):
                fence = self._owners.get(partition)
                if fence is not None:
                    stored = log.records[offset]
                    records.append(Record(partition, offset, stored.key, stored.value, stored.headers, -1, fence))
                reader.position = offset + 1
                self.readers[partition] = self.readers.pop(partition)
            if not log.from_(reader.position, 1) and reader.told_end != log.end:
                reader.position = reader.told_end = log.end
                ends.append(End(partition, log.end))
        return Batch(records, ends)
