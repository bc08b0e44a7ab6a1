"""A broker in memory, and a partitioned source on it: the ports' meaning in as few lines as it takes.

One `MemoryBroker` has topics and groups; each `MemoryPartitionedSource` is one member of a group. A group moves towards
its target as Kafka's consumer protocol does: who has a partition that is meant for another gives it up inside its next
poll, and only then does the other get it. With `eager`, everybody gives up everything first.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import Batch, CommitFate, Committed, End, Start
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence
    from holdfast.timing import Deadline


class Stored(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Log:
    """One partition's records. Offsets may have gaps, as compaction and transactions leave them."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.offsets: list[int] = []
        self.records: dict[int, Stored] = {}

    def append(self, record: Stored) -> int:
        self.records[self.end] = record
        self.offsets.append(self.end)
        self.end += 1
        return self.end - 1

    def from_(self, offset: int, at_most: int) -> list[int]:
        first = bisect_left(self.offsets, offset)
        return self.offsets[first : first + at_most]

    def keep(self, offsets: Iterable[int]) -> None:
        self.offsets = sorted(offsets)
        self.records = {offset: self.records[offset] for offset in self.offsets}


class Attempt(NamedTuple):
    """A commit that reached the broker."""

    member: MemoryPartitionedSource
    partition: Partition
    offset: int
    fate: CommitFate


class MemoryBroker:
    """Any thread. `changed` is notified at each change; it is the only lock, and is never held around a callback."""

    def __init__(self, **topics: int) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.logs: dict[Partition, Log] = {}
        self._ids: dict[str, int] = {}
        self._groups: dict[str, MemoryGroup] = {}
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        """A new topic, more partitions of an old one, or, once it was deleted, another of the same name."""
        with self.changed:
            self._ids.setdefault(topic, sum(self._ids.values()) + 1)
            for number in range(partitions):
                self.logs.setdefault(Partition(topic, number), Log())
            self._balance()

    def delete(self, topic: str) -> None:
        with self.changed:
            self._ids[topic] = sum(self._ids.values()) + 1
            for partition in [partition for partition in self.logs if partition.topic == topic]:
                self.logs[partition] = Log()
            self.changed.notify_all()

    def produce(
        self,
        topic: str,
        number: int,
        *values: str | None,
        key: str | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        with self.changed:
            log = self.logs[Partition(topic, number)]
            stored = [
                Stored(key and key.encode(), None if value is None else value.encode(), tuple(headers))  # type: ignore[arg-type]
                for value in values
            ]
            self.changed.notify_all()
            return [log.append(record) for record in stored]

    def leave_out(self, topic: str, number: int, offsets: int) -> None:
        """So many offsets at the end carry no record: transaction markers."""
        with self.changed:
            self.logs[Partition(topic, number)].end += offsets
            self.changed.notify_all()

    def compact(self, topic: str, number: int, keep: Iterable[int]) -> None:
        with self.changed:
            self.logs[Partition(topic, number)].keep(keep)

    def cut(self, topic: str, number: int, end: int) -> None:
        """The log goes back, as after an unclean election."""
        with self.changed:
            log = self.logs[Partition(topic, number)]
            log.keep(offset for offset in log.offsets if offset < end)
            log.end = end
            self.changed.notify_all()

    def id_of(self, topic: str) -> int:
        return self._ids[topic]

    def group(self, name: str = "g", *, eager: bool = False) -> MemoryGroup:
        with self.changed:
            return self._groups.setdefault(name, MemoryGroup(self, eager=eager))

    def _balance(self) -> None:
        for group in self._groups.values():
            group.balance()
        self.changed.notify_all()


class MemoryGroup:
    """Who has what, who is meant to have it, and what is committed. Guarded by the broker's lock."""

    def __init__(self, broker: MemoryBroker, *, eager: bool) -> None:
        self.broker, self.eager = broker, eager
        self.members: list[MemoryPartitionedSource] = []
        #: Partition -> member and the generation in which it came.
        self.owners: dict[Partition, tuple[MemoryPartitionedSource, int]] = {}
        self.target: dict[Partition, MemoryPartitionedSource] = {}
        self.generation = 0
        #: Partition -> offset, and whether it carries our mark.
        self.committed: dict[Partition, tuple[int, bool]] = {}
        self.attempts: list[Attempt] = []
        self._scripted = False
        self._refusals: dict[Partition, deque[CommitFate]] = defaultdict(deque)

    # ---- for tests
    def aim(self, target: Mapping[MemoryPartitionedSource, Iterable[Partition]]) -> None:
        """From now on this is who is meant to have what; joins and leaves change nothing about it."""
        with self.broker.changed:
            self._scripted = True
            self._retarget({partition: member for member, own in target.items() for partition in own})

    def lose(self, member: MemoryPartitionedSource, *partitions: Partition) -> None:
        """The broker takes these (all, if none is named) from a member, which learns of it in its next poll."""
        with self.broker.changed:
            for partition in partitions or self.of(member):
                self.owners.pop(partition)
                member.lost.append(partition)
            self.broker.changed.notify_all()

    def set_offset(self, partition: Partition, offset: int | None, *, ours: bool = False) -> None:
        """By hand (a reset), or as a commit of ours that came late; None = it expired."""
        with self.broker.changed:
            if offset is None:
                self.committed.pop(partition, None)
            else:
                self.committed[partition] = (offset, ours)

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """The next commits of that partition end so."""
        with self.broker.changed:
            self._refusals[partition].extend(fates)

    def of(self, member: MemoryPartitionedSource) -> list[Partition]:
        with self.broker.changed:
            return sorted(partition for partition, (owner, _) in self.owners.items() if owner is member)

    def offset(self, partition: Partition) -> int | None:
        with self.broker.changed:
            found = self.committed.get(partition)
            return found and found[0]

    # ---- for members
    def balance(self, *, without: MemoryPartitionedSource | None = None) -> None:
        """As even as may be, moving as little as may be."""
        if self._scripted:
            self._retarget({partition: member for partition, member in self.target.items() if member is not without})
            return
        target: dict[Partition, MemoryPartitionedSource] = {}
        loads = dict.fromkeys(self.members, 0)
        wanted = sorted(p for p in self.broker.logs if any(member.wants(p.topic) for member in self.members))
        fair = -(-len(wanted) // max(1, len(self.members)))
        for keep in (True, False):
            for partition in wanted:
                able = [member for member in self.members if member.wants(partition.topic)]
                if keep:
                    able = [member for member in able if self.target.get(partition) is member and loads[member] < fair]
                if able and partition not in target:
                    target[partition] = min(able, key=loads.__getitem__)
                    loads[target[partition]] += 1
        self._retarget(target)

    def _retarget(self, target: dict[Partition, MemoryPartitionedSource]) -> None:
        if target != self.target:
            self.target = target
            self.generation += 1
        self.broker.changed.notify_all()

    def leaving(self, member: MemoryPartitionedSource) -> list[Partition]:
        """What the member has to give up now."""
        stale = self.generation if self.eager else None
        return sorted(
            partition
            for partition, (owner, generation) in self.owners.items()
            if owner is member and (self.target.get(partition) is not member or stale not in (None, generation))
        )

    def coming(self, member: MemoryPartitionedSource) -> list[Partition]:
        """What the member gets now."""
        if self.eager and any(generation != self.generation for _, generation in self.owners.values()):
            return []
        mine = sorted(p for p, meant in self.target.items() if meant is member and p not in self.owners)
        self.owners.update(dict.fromkeys(mine, (member, self.generation)))
        return mine

    def left(self, member: MemoryPartitionedSource, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if partition in self.owners and self.owners[partition][0] is member:
                del self.owners[partition]
        self.broker.changed.notify_all()

    def commit(self, member: MemoryPartitionedSource, partition: Partition, offset: int) -> CommitFate:
        fate = CommitFate.DONE
        if self._refusals[partition]:
            fate = self._refusals[partition].popleft()
        elif partition not in self.owners or self.owners[partition][0] is not member:
            fate = CommitFate.DISCARD
        else:
            self.committed[partition] = (offset, True)
        self.attempts.append(Attempt(member, partition, offset, fate))
        self.broker.changed.notify_all()
        return fate


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
        return "eager" if self.of_group.eager else "consumer"

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
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
        with self.broker.changed:
            self._topics = tuple(topics)
            self.of_group.balance()

    def wants(self, topic: str) -> bool:
        return any(re.match(each, topic) if each.startswith("^") else each == topic for each in self._topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
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
        self._check("position_names")
        return {
            partition: f"{self.group}/{partition.topic}/{self.broker.id_of(partition.topic)}/{partition.number}"
            for partition in partitions
        }

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        self._check("committed")
        with self.broker.changed:
            found = {partition: self.of_group.committed.get(partition) for partition in partitions}
            return {
                partition: None if one is None else Committed(*one, marked=self.marked)
                for partition, one in found.items()
            }

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        self._check("first_offsets")
        with self.broker.changed:
            return {partition: self.broker.logs[partition].start for partition in partitions}

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        self._check("last_offsets")
        return self.end_offsets(partitions)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        self._check("look_at_ends")
        return self.end_offsets(partitions)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._check("commit")
        with self.broker.changed:
            for partition, offset in offsets.items():
                self._fates.append((partition, offset, self.of_group.commit(self, partition, offset)))

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        with self.broker.changed:
            return {partition: self.broker.logs[partition].end for partition in partitions}

    def seek(self, partition: Partition, offset: int | None) -> None:
        self._check("seek")
        with self.broker.changed:
            reader = self.readers.get(partition)
            if reader is None:
                raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
            reader.position = self.broker.logs[partition].start if offset is None else offset
            reader.told_end = -1

    def pause(self, partitions: Collection[Partition]) -> None:
        self._check("pause")
        for partition in partitions:
            self.readers[partition].paused = True

    def resume(self, partitions: Collection[Partition]) -> None:
        self._check("resume")
        for partition in partitions:
            self.readers[partition].paused = False

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
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
