"""A member of a group of RocketMQ's: a partitioned source whose queues a coordinator hands out."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.groups import Member, Plan
from holdfast.errors import RecordUnreadable, SourceError, SourceUnavailable, StoreUnavailable, UnknownTopic
from holdfast.plugin.assign import sticky
from holdfast.plugin.ports import Batch, CommitFate, Committed, End, Start
from holdfast.records import Partition, Record
from holdfast.testing.brokers.agenda import Line
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.dedup.coordinator import Coordinator, Membership
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.logs import Log
    from holdfast.testing.brokers.rocketmq import RocketBroker

UNIQUE_KEY = "UNIQ_KEY"
#: How long a hand-over waits for the broker's word on the last commit.
_LAST_COMMIT_S = 2.0
#: How often a member compares the broker's offsets with what was acknowledged.
_LOOK_S = 5.0
_JOIN_AGAIN_S = 1.0
_LEAST_S = 0.001
_HELD = Start(None, hold=True)


class Pulled:
    """Where a member stands in a queue."""

    __slots__ = ("log", "paused", "position", "told_end")

    def __init__(self, position: int | None, *, paused: bool) -> None:
        #: None = the engine has not said yet.
        self.position, self.paused = position, paused
        self.told_end = -1
        #: Which log it reads; another one is a topic that was made again.
        self.log: int | None = None


class _Answer(NamedTuple):
    queue: Partition
    offset: int
    fate: CommitFate


class _Pull(NamedTuple):
    """What one look at all queues brings."""

    records: list[Record]
    ends: list[End]
    unreadable: dict[tuple[Partition, int], RecordUnreadable]
    #: Queue, where it is read on, and whether its log is another, or was cut; else somebody has reset the group.
    moved: list[tuple[Partition, int, bool]]


class RocketSource:
    """One member of a group, as `RocketMQSource` is one. All methods belong to one thread.

    Args:
        broker: where the queues are.
        group: the group's name.
        coordinator: of the group, as that process sees it.
        runtime: the machine of its process.
        name: for judges and stories.
        lease_s: of a member at the coordinator.
        by_message: copies of one message, by UNIQ_KEY, are handled once.
    """

    protocol = "cooperative"
    retry_topic: str | None = None
    stray_letters: str | None = None
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
        self._join_at = self._look_at = 0.0
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener
        self._owners: Mapping[Partition, Fence] = {}
        self._answers: deque[_Answer] = deque()
        #: Of each queue one commit is under way, and the newest waits behind it.
        self._under_way: dict[Partition, int] = {}
        self._following: dict[Partition, int] = {}
        self._acknowledged: dict[Partition, int] = {}

    def __repr__(self) -> str:
        return f"RocketSource({self.group}, {self.name})"

    def wake(self) -> None:
        """There may be news. Any thread."""
        self._news.set()

    # ---- the start and the end
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
        """Raises SourceError: a group subscribes alike in all its members."""
        raise SourceError("a RocketMQ group subscribes alike in all its members")

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Others have the queues from now on. Idempotent."""
        membership, self._membership = self._membership, None
        if self in self.broker.sources:
            self._await_commits()
            with self.broker.changed:
                self.broker.sources.remove(self)
            self._forget(sorted(self.readers))
        if membership is not None:
            membership.leave(deadline)

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Queues that come and go, then records."""
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
        while self._answers:
            queue, offset, fate = self._answers[0]
            self._listener.committed({queue: offset}, {queue: fate})
            self._answers.popleft()
        if now >= self._look_at and self.line.hears and self.line.speaks:
            self._look_at = now + _LOOK_S
            with self.broker.changed:
                known = [each for each in self._acknowledged.items() if each[0] not in self._under_way]
                found = {queue: self.broker.offsets.get((self.group, queue), -1) for queue, _ in known}
            for queue, at in known:
                if found[queue] != at and queue in self.readers:
                    self._listener.overwritten(queue, found[queue])

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
            for queue in gone:  # nothing more is read of it
                self.readers[queue].paused = True
            try:
                self._listener.revoked(gone)
            finally:
                self._await_commits()
                self._seen("on_revoke", gone)
                self._forget(gone)
        if came:
            self._seen("on_assign", came)
            starts: Mapping[Partition, Start] = {}
            try:
                starts = self._listener.assigned(came)
            finally:  # if a signal handler raises there, they are held until they are sought in
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
            self._acknowledged.pop(queue, None)

    def _seen(self, what: str, queues: Sequence[Partition]) -> None:
        for watcher in self.broker.watchers:
            getattr(watcher, what)(queues, self)

    def _pull(self, at_most: int) -> Batch:
        if not (self.line.hears and self.line.speaks):
            return Batch([])
        batch = _Pull([], [], {}, [])
        with self.broker.changed:
            for queue, reader in list(self.readers.items()):
                log = self.broker.logs.get(queue)
                if reader.paused or reader.position is None or log is None or len(batch.records) >= at_most:
                    continue
                reset = self.broker.reset_of(self.group, queue)
                is_cut = reader.log not in (None, log.born) or reader.position > log.end
                reader.log = log.born
                if reset is not None or is_cut:
                    reader.position = log.start if reset is None else reset
                    batch.moved.append((queue, reader.position, reset is None))
                else:
                    self._pull_one(queue, reader, reader.position, log, batch, at_most=at_most)
        for queue, offset, is_cut in batch.moved:
            self._listener.reset(queue, offset, cut=is_cut)
        return Batch(batch.records, batch.ends, batch.unreadable)

    def _pull_one(self, queue: Partition, reader: Pulled, at: int, log: Log, batch: _Pull, *, at_most: int) -> None:
        if at < log.start:  # what lay before has expired unread
            at = log.start
            batch.ends.append(End(queue, at))
        fence = self._owners.get(queue)
        for offset in log.from_(at, at_most - len(batch.records)):
            stored = log.records[offset]
            if fence is not None:
                batch.records.append(Record(queue, offset, stored.key, stored.value, stored.headers, -1, fence))
            if offset in log.spoilt:
                batch.unreadable[queue, offset] = RecordUnreadable(f"{queue}@{offset} cannot be read")
            at = offset + 1
            self.readers[queue] = self.readers.pop(queue)  # the others first, the next time
        if not log.from_(at, 1) and reader.told_end != log.end:
            at = reader.told_end = log.end
            batch.ends.append(End(queue, at))
        reader.position = at

    # ---- positions
    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """Of a topic that was made again the names are the same."""
        return {each: f"{self.group}/{each.topic}/{each.broker}/{each.number}" for each in partitions}

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """What the broker has; it does not say who committed it."""
        self._wait_for_answer("committed", deadline)
        with self.broker.changed:
            found = {each: self.broker.offsets.get((self.group, each)) for each in partitions}
            for queue, at in found.items():
                if at is not None and queue not in self._under_way:
                    self._acknowledged.setdefault(queue, at)
        return {each: None if at is None else Committed(at, True, marked=False) for each, at in found.items()}

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first message."""
        self._wait_for_answer("first_offsets", deadline)
        with self.broker.changed:
            return {each: self.broker.logs[each].start for each in partitions if each in self.broker.logs}

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs."""
        self._wait_for_answer("last_offsets", deadline)
        return self.end_offsets(partitions)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The same without waiting."""
        return self.end_offsets(partitions) if self.line.hears and self.line.speaks else None

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The same as far as known."""
        with self.broker.changed:
            return {each: self.broker.logs[each].end for each in partitions if each in self.broker.logs}

    def _wait_for_answer(self, what: str, deadline: Deadline) -> None:
        way_s, left_s = 2 * self.line.delay_s, deadline.left_s()
        answers = self.line.hears and self.line.speaks and way_s < left_s
        if way_s or not answers:
            self._runtime.sleep(way_s if answers else left_s)
        if not answers:
            raise SourceUnavailable(f"{what}: no answer within {left_s:.1f} s")
        self.broker.settle()

    # ---- commits
    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit; what is not ours any more is not sent, but what was sent is taken whenever it comes."""
        now = self.broker.settle()
        lost = self._membership is None or self._membership.lost
        # Asked before the broker's lock is taken: who reads a clock may have to wait.
        ours = {queue for queue in offsets if (fence := self._owners.get(queue)) is not None and not fence.cancelled}
        with self.broker.changed:
            for queue, offset in offsets.items():
                if lost or queue not in ours:
                    self._answers.append(_Answer(queue, offset, CommitFate.DISCARD))
                elif queue in self._under_way:
                    self._following[queue] = offset
                else:
                    self._send(now, queue, offset)

    def _send(self, now: float, queue: Partition, offset: int) -> None:
        self._under_way[queue] = offset
        open_ = [True]

        def answered(fate: CommitFate) -> None:
            if open_.pop() if open_ else False:
                self._answers.append(_Answer(queue, offset, fate))
                del self._under_way[queue]
                if fate is CommitFate.DONE:
                    self._acknowledged[queue] = offset
                else:
                    self._acknowledged.pop(queue, None)
                if queue in self._following:
                    self._send(self.broker.time, queue, self._following.pop(queue))
                self.wake()

        def apply() -> CommitFate:
            if queue not in self.broker.logs:
                return CommitFate.DISCARD
            return CommitFate.DONE if self.broker.commit(self.group, queue, offset, self) else CommitFate.AGAIN

        self.broker.send(self.line, now, apply, answered)
        if self.line.twice_s is not None and self.line.hears:
            self.broker.after(now, self.line.delay_s + self.line.twice_s, lambda: _void(apply()))
        if open_:
            self.broker.after(now, 5.0, lambda: answered(CommitFate.AGAIN))

    def _await_commits(self) -> None:
        until = self.broker.settle() + _LAST_COMMIT_S
        while self._under_way and (now := self.broker.settle()) < until:
            self._news.clear()
            with self.broker.changed:
                due = self.broker.next_due()
            if self._under_way:
                self._news.wait(max(_LEAST_S, min(until, until if due is None else due) - now))

    # ---- reading
    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from there. Raises SourceUnavailable."""
        reader = self.readers.get(partition)
        if reader is None:
            raise SourceUnavailable(f"{partition} is not assigned: nothing to seek in")
        reader.position, reader.told_end = offset, -1

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing."""
        for partition in partitions:
            if partition in self.readers:
                self.readers[partition].paused = True

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver again."""
        for partition in partitions:
            if partition in self.readers:
                self.readers[partition].paused = False


def _unique_key(record: Record) -> str | None:
    found = record.header(UNIQUE_KEY)
    return found.decode("utf-8", "backslashreplace") if found else None


def _void(_: object) -> None:
    """Nobody hears that answer."""
