"""MemoryPartitionedSource: a member of a Kafka group, as a source on a broker in memory."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import SourceError, SourceFatal, SourceUnavailable, StaticIdTaken, UnknownTopic
from holdfast.plugin.ports import Batch, Start
from holdfast.testing.brokers.kafka_answers import Answer
from holdfast.testing.brokers.kafka_client import GroupClient
from holdfast.testing.brokers.kafka_fetch import fetch
from holdfast.testing.brokers.kafka_questions import Questions
from holdfast.testing.brokers.kafka_reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence, Partition, Record
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.brokers.kafka_answers import Told
    from holdfast.testing.brokers.kafka_reader import Slips
    from holdfast.timing import Deadline

#: How long a static member waits before it joins again while another process has its name.
_NAME_TAKEN_S = 1.0
#: The shortest wait for an event: a rounding error may make the time to it 0.
_LEAST_S = 0.001


class MemoryPartitionedSource(Questions):
    """One member. One thread calls all methods but `fail`.

    Args:
        broker: the broker.
        group: the group's name.
        name: for judges and stories.
        runtime: of its process; by default the broker's.
        session_timeout_s: the broker removes the member after so long without a heartbeat; None = never, and no task
            sends heartbeats.
        heartbeat_s: time between heartbeats.
        max_poll_interval_s: the longest time between polls.
        request_timeout_s: how long it waits for an answer.
        static_id: `group.instance.id`, which outlives a restart.
    """

    identity: Callable[[Record], str | None] | None = None
    retry_topic: str | None = None
    unroutable_letters: str | None = None
    gaps_are_the_logs = False
    #: The records that its client skips; None = none.
    slips: Slips | None = None
    retries: Callable[[Record], bool] | None = None

    def __init__(
        self,
        broker: MemoryBroker,
        group: str = "g",
        *,
        name: str = "",
        runtime: Runtime | None = None,
        session_timeout_s: float | None = None,
        heartbeat_s: float = 3.0,
        max_poll_interval_s: float = 300.0,
        request_timeout_s: float = 5.0,
        static_id: str | None = None,
    ) -> None:
        of_group = broker.group(group)
        super().__init__(broker, GroupClient(self, broker, of_group), of_group, runtime or broker.runtime)
        self.group, self.name, self.static_id = group, name, static_id
        self.session_timeout_s, self.max_poll_interval_s = session_timeout_s, max_poll_interval_s
        self.readers: dict[Partition, Reader] = {}
        #: Partitions that the broker took away and the application has not been told of.
        self.lost: list[Partition] = []
        self.polls = 0
        #: Calls of the listener for the next poll.
        self.news: deque[Callable[[RebalanceListener], None]] = deque()
        client = self.client
        client.session_s, client.beat_s = session_timeout_s, heartbeat_s
        client.max_poll_s, client.request_s = max_poll_interval_s, request_timeout_s
        self._fates = client.answered
        self._topics: tuple[str, ...] = ()
        self._taking: frozenset[Partition] = frozenset()
        self._trouble: SourceError | None = None
        self._name_free_at = 0.0
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}

    def __repr__(self) -> str:
        return f"MemoryPartitionedSource({self.group}, {self.name or hex(id(self))})"

    # ---- for the broker, with its lock
    def brings_again(self, topic: str) -> bool:
        """Implements `PartitionedSource.brings_again`."""
        return topic == self.retry_topic

    def wants(self, topic: str) -> bool:
        """Whether the member subscribes to a topic."""
        return any(re.match(each, topic) if each.startswith("^") else each == topic for each in self._topics)

    def stir(self) -> None:
        """Wake a poll that waits: there may be news."""
        self.client.news.set()

    def loses(self, partitions: Sequence[Partition]) -> None:
        """The broker takes these partitions away without a revocation."""
        self.lost += [each for each in partitions if each not in self.lost]  # an earlier loss may not be told yet
        if self.client.meant is not None:
            self.client.meant -= set(partitions)
        self.stir()

    def is_told(self, member_id: int, told: Told) -> None:
        """Tell the member its assignment."""
        self.client.is_told(member_id, told)

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions that the member reports as its own, also those that the application is being told of."""
        return (frozenset(self.readers) | self._taking).difference(self.lost)

    # ---- PartitionedSource
    @property
    def protocol(self) -> str:
        """The protocol of the group."""
        return self.of_group.protocol

    @property
    def in_group(self) -> bool:
        """Whether it is a member and has got an assignment."""
        return self.client.placed and self.client.expelled is None

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Check that the topics exist, and begin to join. Raises UnknownTopic, SourceUnavailable."""
        self._listener, self._owners = listener, owners
        missing = self._ask("open", deadline, lambda: [each for each in topics if not self._exists(each)])
        with self.broker.changed:
            self._look(topics)
        if missing:
            raise UnknownTopic(f"{missing}: create them, or subscribe to others")
        now = self.broker.settle()
        with self.broker.changed:
            self._topics = tuple(topics)
            self.client.polled_at = now
            self.client.step(now)
        if self.client.session_s is not None:
            self._runtime.spawn(self.client.run, f"kafka {self.name}")

    def _exists(self, topic: str) -> bool:
        return topic.startswith("^") or self.broker.has(topic)

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        with self.broker.changed:
            self._topics = tuple(topics)
            self.of_group.balance()

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Run the callbacks of rebalances, then return records."""
        self.polls += 1
        self._check("poll")
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        self._tell_commits()
        while self.news:
            self.news.popleft()(self._listener)
        self.client.news.clear()
        now = self.broker.settle()
        with self.broker.changed:
            self.client.polled_at = now
            self.client.step(now)
        came = self._reconcile(now)
        # As Kafka's client: a poll that assigns partitions returns one record at most.
        at_most = 1 if came else max_records
        batch = self._read(at_most)
        if not batch.records and not batch.ends and timeout_s > 0 and not self._has_news():
            self._wait(timeout_s)
            batch = self._read(at_most)
        self.client.polled_at = self.broker.runtime.now()
        for watcher in self.broker.watchers:
            for record in batch.records:
                watcher.on_deliver(record, self)
        return batch

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send a commit. A later poll tells the listener the answer."""
        self._commit(offsets, marked=True)

    def set_back(self, partition: Partition, offset: int) -> None:
        """Send a commit without our mark."""
        self._commit({partition: offset}, marked=False)

    def _commit(self, offsets: Mapping[Partition, int], *, marked: bool) -> None:
        self._check("commit")
        now = self.broker.settle()
        with self.broker.changed:
            self.client.commit(now, offsets, dict(self._named), self._listener.store_id, marked=marked)

    def seek(self, partition: Partition, offset: int | None) -> None:
        """Read on from that offset (None = the log's start). Raises SourceUnavailable: the partition is not
        assigned."""
        self._check("seek")
        with self.broker.changed:
            reader = self.readers.get(partition)
            if reader is None:
                raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
            reader.position = self.broker.logs[partition].start if offset is None else offset
            reader.told_end, reader.too_far = -1, False

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver no records of these partitions."""
        self._check("pause")
        for partition in partitions:
            self.readers[partition].paused = True

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver records of these partitions again."""
        self._check("resume")
        for partition in partitions:
            self.readers[partition].paused = False
            if self.slips is not None:
                self.slips.resumed(self.readers[partition])

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Leave the group; a static member keeps its seat, unless `leave` is true."""
        if self.client.closed or not self._topics:
            return
        now = self.broker.settle()
        gone, own = list(self.lost), sorted(self.owned)
        self.lost.clear()
        if self.client.expelled is not None:
            gone, own = sorted({*gone, *own}), []
        if gone:
            self._lose(gone)
        if own:
            self._listener.revoked(own)
            self._seen("on_revoke", own)
        with self.broker.changed:
            self.readers.clear()
            self.client.leave(now, comes_back=self.static_id is not None and not leave)
            self.client.closed = True
            self.client.news.set()
        self._check("close")

    # ---- inside
    def _has_news(self) -> bool:
        with self.broker.changed:
            client = self.client
            return bool(
                self.lost
                or self.news
                or self._fates
                or client.expelled not in (None, Answer.UNRELEASED_INSTANCE_ID)
                or (client.round and client.is_eager)
                or self._unwanted(client.meant)
                or self._coming(client.meant)
            )

    def _wait(self, seconds: float) -> None:
        """Wait for news, for the broker's next event, or for so many seconds."""
        with self.broker.changed:
            due = self.broker.next_due()
        if due is not None:
            seconds = min(seconds, max(_LEAST_S, due - self.broker.runtime.now()))
        self.client.news.wait(seconds)

    def _tell_commits(self) -> None:
        while self._fates:  # removed after the call: if a signal handler raises in it, the answer is told once more
            partition, offset, fate = self._fates[0]
            self._listener.committed({partition: offset}, {partition: fate})
            self._fates.pop(0)

    def _seen(self, what: str, partitions: Sequence[Partition]) -> None:
        for watcher in self.broker.watchers:
            getattr(watcher, what)(partitions, self)

    # ---- rebalances. The client completes a rebalance even if a callback raises, as a signal handler in it may.
    def _reconcile(self, now: float) -> bool:
        """Tell the application of lost, revoked and assigned partitions. Returns: whether partitions were assigned."""
        client = self.client
        with self.broker.changed:
            no_more = [each for each in self.readers if not self.broker.has(each.topic)]
            rejoins = bool(no_more) and self.protocol == "cooperative"
            if rejoins:  # as librdkafka; in the other protocols partitions of deleted topics are revoked
                self.loses(no_more)
            gone = list(self.lost)
            expelled = client.expelled
            if expelled is not None:
                gone = sorted({*gone, *self.readers})
            self.lost.clear()
        if gone:
            self._lose(gone)
        if expelled is not None:
            self._come_anew(expelled, now)
        elif rejoins:  # the member may have reported these partitions as its own in a round that is open
            with self.broker.changed:
                client.join_round(now)
        with self.broker.changed:
            meant = client.meant
            leaving = sorted(self.readers if client.round and client.is_eager else self._unwanted(meant))
            client.telling = bool(leaving)
        try:
            if leaving:
                self._revoke(leaving)
        finally:
            client.telling = False
            if leaving or (client.round and client.is_eager):
                now = self.broker.settle()
                with self.broker.changed:
                    client.join_round(now)
        with self.broker.changed:
            meant = client.meant
            coming = [] if client.round and client.is_eager else sorted(self._coming(meant))
            client.telling = bool(coming)
            self._taking = frozenset(coming)
        if coming:
            self._assign(coming)
        if self.slips is not None and (gone or leaving or coming):
            self.slips.rebalanced(self.readers.values())
        return bool(coming)

    def _unwanted(self, meant: frozenset[Partition] | None) -> Collection[Partition]:
        return () if meant is None else [partition for partition in self.readers if partition not in meant]

    def _coming(self, meant: frozenset[Partition] | None) -> Collection[Partition]:
        return [each for each in meant or () if each not in self.readers and each in self.broker.logs]

    def _lose(self, gone: Sequence[Partition]) -> None:
        self._seen("on_lost", gone)
        try:
            self._listener.lost(gone)
        except BaseException:
            self._listener.torn((), gone)
            raise
        finally:
            self._forget(gone)

    def _revoke(self, leaving: Sequence[Partition]) -> None:
        try:
            self._listener.revoked(leaving)
        except BaseException:
            self._listener.torn((), leaving)
            raise
        finally:
            self._await_commits()
            self._seen("on_revoke", leaving)
            self._forget(leaving)

    def _assign(self, coming: Sequence[Partition]) -> None:
        self._seen("on_assign", coming)
        starts: Mapping[Partition, Start] = dict.fromkeys(coming, Start(None, hold=True))
        try:
            starts = self._listener.assigned(coming)
        except BaseException:
            self._listener.torn(coming, ())
            raise
        finally:
            with self.broker.changed:
                for partition in coming:
                    start = starts[partition]
                    self.readers[partition] = Reader(self._start(partition, start.offset), paused=start.hold)
                self._taking = frozenset()
                self.client.telling = False

    def _await_commits(self) -> None:
        """Keep revoked partitions until their commit is answered or has timed out, as librdkafka does."""
        while self.client.under_way:
            self.client.news.clear()
            self._wait(self.client.request_s)
            self.broker.settle()

    def _come_anew(self, why: Answer, now: float) -> None:
        """Join again as a new member. Raises StaticIdTaken, SourceFatal: another process has its static name."""
        if why is Answer.FENCED_INSTANCE_ID:
            raise StaticIdTaken(f"another process joined {self.group} as {self.static_id}: give each its own name")
        if why is Answer.UNRELEASED_INSTANCE_ID and now < self._name_free_at:
            return
        first = self._name_free_at == 0.0
        with self.broker.changed:
            self.client.come_anew()
            self.client.step(now)
        if why is Answer.UNRELEASED_INSTANCE_ID:
            self._name_free_at = now + _NAME_TAKEN_S
            if first:
                raise SourceFatal(f"{self.group}: {self.static_id} is still another member's")

    def _forget(self, partitions: Sequence[Partition]) -> None:
        with self.broker.changed:
            for partition in partitions:
                self.readers.pop(partition, None)
            self.broker.changed.notify_all()

    def _start(self, partition: Partition, offset: int | None) -> int:
        if offset is not None:
            return offset
        log, committed = self.broker.logs.get(partition), self.of_group.offset(partition)
        return (log.start if log is not None else 0) if committed is None else committed

    def _read(self, at_most: int) -> Batch:
        if not (self.line.hears and self.line.speaks):
            return Batch([])
        with self.broker.changed:
            batch, self._trouble = fetch(self.broker, self.readers, self._owners, at_most, self.slips)
        return batch
