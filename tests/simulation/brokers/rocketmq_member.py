"""RocketSource: a member of a RocketMQ group, as a partitioned source whose queues a coordinator assigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.groups import Member, Plan
from holdfast.errors import SourceError, SourceUnavailable, StoreUnavailable, UnknownTopic
from holdfast.plugin.assign import sticky
from holdfast.plugin.ports import Batch, Committed, Start
from holdfast.testing.brokers.agenda import Line
from holdfast.timing import Deadline
from tests.simulation.brokers.rocketmq_commits import QueueCommits
from tests.simulation.brokers.rocketmq_pulls import Pulled, pull

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.dedup.coordinator import Coordinator
    from holdfast.dedup.membership import Membership
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence, Partition, Record
    from holdfast.runtime import Runtime
    from tests.simulation.brokers.rocketmq import RocketBroker

UNIQUE_KEY = "UNIQ_KEY"
_JOIN_AGAIN_S = 1.0
_LEAST_S = 0.001
_HELD = Start(None, hold=True)


class RocketSource:
    """One member of a group, like a `RocketMQSource`. One thread calls all methods but `wake`.

    Args:
        broker: the broker.
        group: the group's name.
        coordinator: of the group, as that process sees it.
        runtime: of its process.
        name: for judges and stories.
        lease_s: of a member at the coordinator.
        by_message: copies of one message, by UNIQ_KEY, are handled once.
    """

    protocol = "cooperative"
    retry_topic: str | None = None
    unroutable_letters: str | None = None
    gaps_are_the_logs = True
    retries: Callable[[Record], bool] | None = None

    def __init__(
        self,
        broker: RocketBroker,
        group: str = "g",
        *,
        coordinator: Coordinator,
        runtime: Runtime | None = None,
        name: str = "member",
        lease_s: float = 10.0,
        max_poll_interval_s: float = 300.0,
        by_message: bool = True,
    ) -> None:
        self.broker, self.group, self.name = broker, group, name
        self.session_timeout_s: float | None = lease_s
        self.max_poll_interval_s, self.lease_s = max_poll_interval_s, lease_s
        self.identity: Callable[[Record], str | None] | None = _unique_key if by_message else None
        self.readers: dict[Partition, Pulled] = {}
        self.line = Line()
        self.polls = 0
        self._coordinator, self._runtime = coordinator, runtime or broker.runtime
        self._news = broker.runtime.event()
        self._membership: Membership | None = None
        self._plan = Plan()
        self._join_at = 0.0
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}
        self._commits = QueueCommits(self)
        #: Whether a hand-over runs, which waits for the answers to commits.
        self._handing_over = False

    def __repr__(self) -> str:
        return f"RocketSource({self.group}, {self.name})"

    def brings_again(self, topic: str) -> bool:
        """Implements `PartitionedSource.brings_again`."""
        return topic == self.retry_topic

    def wake(self) -> None:
        """Wake a poll that waits: there may be news. Any thread."""
        self._news.set()

    # ---- the start and the end
    @property
    def in_group(self) -> bool:
        """Whether it is a member, and has seen a plan."""
        membership = self._membership
        return membership is not None and not membership.lost and bool(self._plan.stamp)

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Join. Raises UnknownTopic, StoreError."""
        self._listener, self._owners, self._topics = listener, owners, tuple(sorted(topics))
        missing = [topic for topic in self._topics if not self.broker.has(topic)]
        if missing:
            raise UnknownTopic(f"{missing}: create them, or subscribe to others")
        self._join(deadline)
        with self.broker.changed:
            self.broker.sources.append(self)

    def _join(self, deadline: Deadline) -> None:
        me = Member(client_id=self.name, subscription=",".join(self._topics))
        self._plan = Plan()
        self._membership = self._coordinator.join(
            self.group, me, deadline, strategy=sticky, wake=self.wake, queues=self._queues(), lease_s=self.lease_s
        )

    def _queues(self) -> list[Partition]:
        with self.broker.changed:
            return [queue for topic in self._topics for queue in self.broker.of(topic)]

    def subscribe(self, topics: Collection[str]) -> None:
        """Raise SourceError: all members of a group must have the same subscription."""
        raise SourceError("a RocketMQ group subscribes alike in all its members")

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Give all queues up and leave. Idempotent."""
        membership, self._membership = self._membership, None
        if self in self.broker.sources:
            self._commits.wait(self._news)
            with self.broker.changed:
                self.broker.sources.remove(self)
            self._forget(sorted(self.readers))
        if membership is not None:
            membership.leave(deadline)

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Run the callbacks of revoked and assigned queues, then return records."""
        self.polls += 1
        self._news.clear()
        now = self.broker.settle()
        self._tell(now)
        if self._follow_plan(now):
            return Batch([])
        batch = self._pull(max_records)
        if not batch.records and not batch.ends and timeout_s > 0:
            with self.broker.changed:
                due = self.broker.next_due()
            self._news.wait(timeout_s if due is None else max(_LEAST_S, min(timeout_s, due - now)))
            self._tell(self.broker.settle())
            batch = self._pull(max_records)
        for watcher in self.broker.watchers:
            for record in batch.records:
                watcher.on_deliver(record, self)
        return batch

    def _tell(self, now: float) -> None:
        answers = self._commits.answers
        while answers:
            queue, offset, fate = answers[0]
            self._listener.committed({queue: offset}, {queue: fate})
            answers.popleft()
        for queue, found in self._commits.look(now):
            if queue in self.readers:
                self._listener.overwritten(queue, found)

    def _follow_plan(self, now: float) -> bool:
        membership = self._membership
        if membership is None:
            if now >= self._join_at:
                self._join_at = now + _JOIN_AGAIN_S
                try:
                    self._join(Deadline(0.0, self._runtime))
                except StoreUnavailable:
                    return False
            return False
        membership.vouch(self.max_poll_interval_s)
        if membership.lost:
            self._membership, gone = None, sorted(self.readers)
            self._forget(gone)
            self._seen("on_lost", gone)
            self._listener.lost(gone)
            return True
        membership.offer(self._queues())
        plan = membership.plan()
        if plan is self._plan:
            return False
        self._plan, mine = plan, plan.of(membership.id)
        gone, came = sorted(self.readers.keys() - mine), sorted(mine - self.readers.keys())
        if gone:
            for queue in gone:  # read nothing more of them
                self.readers[queue].paused = True
            self._handing_over = True
            try:
                # A queue's last commit may be under way already; then the engine commits nothing more.
                self._commits.wait(self._news)
                self._listener.revoked(gone)
            finally:
                self._handing_over = False
                self._seen("on_revoke", gone)
                self._forget(gone)
        if came:
            self._seen("on_assign", came)
            starts: Mapping[Partition, Start] = {}
            try:
                starts = self._listener.assigned(came)
            finally:  # if a signal handler raises in the callback, the queues stay paused until a seek
                for queue in came:
                    start = starts.get(queue, _HELD)
                    self.readers[queue] = reader = Pulled(start.offset, paused=start.hold)
                    reader.log = self.broker.noted.get((self.group, queue))
        return bool(gone or came)

    def _forget(self, queues: Sequence[Partition]) -> None:
        for queue in queues:
            reader = self.readers.pop(queue, None)
            if reader is not None and reader.log is not None:
                self.broker.noted[self.group, queue] = reader.log
            self._commits.forget(queue)

    def _seen(self, what: str, queues: Sequence[Partition]) -> None:
        for watcher in self.broker.watchers:
            getattr(watcher, what)(queues, self)

    def _pull(self, at_most: int) -> Batch:
        if not (self.line.hears and self.line.speaks):
            return Batch([])
        brought = pull(self.broker, self.group, self.readers, self._owners, at_most)
        for queue, offset, is_cut in brought.moved:
            self._listener.reset(queue, offset, cut=is_cut)
        return Batch(brought.records, brought.ends, brought.unreadable)

    # ---- positions
    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """The positions' names. A topic that is deleted and made again keeps them."""
        return {each: f"{self.group}/{each.topic}/{each.broker}/{each.number}" for each in partitions}

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The broker's offsets; the broker does not know which client committed them."""
        self._wait_for_answer("committed", deadline)
        with self.broker.changed:
            found = {each: self.broker.offsets.get((self.group, each)) for each in partitions}
            self._commits.came(found)
        return {each: None if at is None else Committed(at, True, marked=False) for each, at in found.items()}

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first offset of each queue."""
        self._wait_for_answer("first_offsets", deadline)
        with self.broker.changed:
            return {each: self.broker.logs[each].start for each in partitions if each in self.broker.logs}

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs."""
        self._wait_for_answer("last_offsets", deadline)
        return self.end_offsets(partitions)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs, without waiting."""
        return self.end_offsets(partitions) if self.line.hears and self.line.speaks else None

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs, as far as pulls have told them."""
        with self.broker.changed:
            return {each: self.broker.logs[each].end for each in partitions if each in self.broker.logs}

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The starts of the logs; this client knows all."""
        with self.broker.changed:
            return {each: self.broker.logs[each].start for each in partitions if each in self.broker.logs}

    def _wait_for_answer(self, what: str, deadline: Deadline) -> None:
        self.line.wait_for_answer(what, self._runtime, deadline)
        self.broker.settle()

    # ---- commits
    def set_back(self, partition: Partition, offset: int) -> None:
        """As `commit`."""
        self.commit({partition: offset})

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send commits, but none of queues that the member has lost. The broker accepts a commit whenever it arrives,
        so a hand-over waits for the answers, and the next owner reads this offset."""
        now = self.broker.settle()
        lost = self._membership is None or self._membership.lost
        # Before the broker's lock is taken: `cancelled` reads a clock, which may wait.
        ours = {queue for queue in offsets if (fence := self._owners.get(queue)) is not None and not fence.cancelled}
        with self.broker.changed:
            for queue, offset in offsets.items():
                if lost or queue not in ours:
                    self._commits.refuse(queue, offset)
                else:
                    self._commits.begin(now, queue, offset)
        if self._handing_over:
            self._commits.wait(self._news)

    # ---- reading
    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from that offset. Raises SourceUnavailable."""
        reader = self.readers.get(partition)
        if reader is None:
            raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
        reader.position, reader.told_end = offset, -1

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver no records of these queues."""
        for partition in partitions:
            if partition in self.readers:
                self.readers[partition].paused = True

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver records of these queues again."""
        for partition in partitions:
            if partition in self.readers:
                self.readers[partition].paused = False


def _unique_key(record: Record) -> str | None:
    found = record.header(UNIQUE_KEY)
    return found.decode("utf-8", "backslashreplace") if found else None
