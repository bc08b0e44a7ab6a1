"""Ground: what a world stands on, by kind of broker: its topics, its group, and the clients of its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import RecordUnreadable
from holdfast.records import Partition
from holdfast.testing.book import GROUP, Place
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.brokers.logs import position_name
from holdfast.testing.brokers.rocketmq import RocketBroker
from holdfast.testing.brokers.rocketmq_group import RocketGroup
from holdfast.testing.brokers.rocketmq_member import UNIQUE_KEY, RocketSource
from holdfast.testing.brokers.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.ports import Batch, CommitFate, LeasedSource, PartitionedSource
    from holdfast.records import Fence
    from holdfast.testing.book import LogName, Placed
    from holdfast.testing.brokers.kafka_group import Attempt, MemoryGroup
    from holdfast.testing.play import Stage
    from holdfast.testing.process import Process
    from holdfast.testing.world import FaultKind, Planned


class Group(Protocol):
    """A group as a stage asks of it, and changes it."""

    @property
    def attempts(self) -> list[Attempt]:
        """All commits that reached the broker."""
        ...

    @property
    def members(self) -> Sequence[object]:
        """For whom the broker waits before it lets others do something to the group."""
        ...

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = nothing."""
        ...

    def set_offset(self, partition: Partition, offset: int) -> None:
        """By hand."""
        ...

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """The next commits of that partition do not go as they should."""
        ...


class Ground(Protocol):
    """One kind of broker, as a stage needs it."""

    #: What cannot happen here: it is passed over.
    without: frozenset[FaultKind]

    @property
    def broker(self) -> MemoryBroker:
        """Where the topics are."""
        ...

    @property
    def group(self) -> Group:
        """Of the members."""
        ...

    def source(self, process: Process, static_id: str | None) -> PartitionedSource | LeasedSource:
        """The client of a member that starts."""
        ...

    def lose(self, source: object) -> None:
        """The broker takes away what that member has."""
        ...

    def store(self, number: int, plan: Planned, value: str) -> Place:
        """A producer's record is stored."""
        ...

    def store_again(self, first: Placed) -> Place | None:
        """Store the record once more, as a producer without an answer does; None: the copy is the same to everybody."""
        ...

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """Of the record in the book that the member with that client tells of by that offset."""
        ...

    def judge(self, member: str, attempt: Attempt) -> None:
        """A commit was taken."""
        ...

    def done(self, record: Placed) -> bool:
        """Whether the store of claims knows that record as done."""
        ...

    def position(self, partition: Partition) -> str:
        """The name of a partition's position in the store of claims."""
        ...

    def is_blind(self, fence: Fence, record: Placed) -> bool:
        """Whether who owns the record's partition takes its log for one that is gone."""
        ...

    def committed(self, partition: Partition) -> int | None:
        """The committed offset; None: nothing, or for a topic of that name that was deleted."""
        ...

    @property
    def progress(self) -> int:
        """Another number where something more was committed."""
        ...

    def behind(self) -> list[str]:
        """The offsets that are still to be committed, for people; empty: nothing is."""
        ...


class Partitions(ABC):
    """The common part of all kinds of partitions and queues."""

    broker: MemoryBroker
    _stage: Stage

    @property
    @abstractmethod
    def group(self) -> Group:
        """Implements `Ground.group`."""

    def store_again(self, first: Placed) -> Place | None:
        """Implements `Ground.store_again`."""
        (topic, number, _), _ = first.log
        return Place(first.log, self.broker.store_again(topic, number, first.offset))

    def number(self, partition: Partition, offset: int, source: object) -> int:  # noqa: ARG002 - as of Ground
        """Implements `Ground.number`."""
        book = self._stage.book
        logs = [log for log in book.logs if log.partition == partition]  # of a topic that was made again, several
        found = [each for log in reversed(logs) if (each := book.at(log, offset)) is not None]
        return next((each for each in found if each.runs), found[0]).number

    def judge(self, member: str, attempt: Attempt) -> None:
        """P1: nothing below is left out."""
        self._stage.judges.committed(member, self._stage.log(attempt.partition), attempt.offset)

    def done(self, record: Placed) -> bool:
        """By its position, of the log that it is in."""
        return self._stage.store.is_done(self._position(record.log), record.offset)

    def position(self, partition: Partition) -> str:
        """Implements `Ground.position`."""
        return self._position(self._stage.log(partition))

    def is_blind(self, fence: Fence, record: Placed) -> bool:
        """Implements `Ground.is_blind`."""
        return getattr(fence, "name", "") not in ("", self._position(record.log))

    @abstractmethod
    def _position(self, log: LogName) -> str: ...

    def committed(self, partition: Partition) -> int | None:
        """Implements `Ground.committed`."""
        return self.group.offset(partition)

    @property
    def progress(self) -> int:
        """Implements `Ground.progress`."""
        return sum(self.committed(each) or 0 for each in self.broker.logs)

    def behind(self) -> list[str]:
        """Implements `Ground.behind`."""
        return [
            f"{partition}: {committed} of {log.end}"
            for partition, log in self.broker.logs.items()
            if log.end and (committed := self.committed(partition)) != log.end
        ]


class KafkaGround(Partitions):
    """Kafka's topics, and one group of one of its protocols."""

    without: frozenset[FaultKind] = frozenset()

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.broker = MemoryBroker(stage.scheduler.process("broker", preempted=False).runtime)
        for topic in stage.world.topics:
            self.broker.create(topic.name, topic.partitions)
        self._group = self.broker.group(GROUP, protocol=stage.world.protocol)
        self._group.refuses_old_epochs = stage.world.seed % 2 == 0

    @property
    def group(self) -> MemoryGroup:
        """Implements `Ground.group`."""
        return self._group

    def source(self, process: Process, static_id: str | None) -> MemoryPartitionedSource:
        """Implements `Ground.source`."""
        return _KafkaClient(self._stage, process, static_id)

    def lose(self, source: object) -> None:
        """Implements `Ground.lose`."""
        if isinstance(source, MemoryPartitionedSource):
            self._group.lose(source)

    def store(self, number: int, plan: Planned, value: str) -> Place:  # noqa: ARG002 - as of Ground
        """Implements `Ground.store`."""
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=plan.key)
        return Place(self._stage.log(Partition(plan.topic, plan.partition)), offset)

    def _position(self, log: LogName) -> str:
        """A topic that is made again has another."""
        return position_name(GROUP, log.partition, log.log)

    def committed(self, partition: Partition) -> int | None:
        """Implements `Ground.committed`."""
        kept = self._group.committed.get(partition)
        return kept.offset if kept is not None and kept.topic_id in (0, self._stage.ids[partition.topic]) else None

    def judge(self, member: str, attempt: Attempt) -> None:
        """Judge an attempt: what names a topic that is gone says nothing of the one that is there."""
        if attempt.topic_id in (0, self._stage.ids[attempt.partition.topic]):
            super().judge(member, attempt)


class RocketGround(Partitions):
    """RocketMQ's queues, and one group on them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.broker = self._rocket = RocketBroker(stage.scheduler.process("broker", preempted=False).runtime)
        for topic in stage.world.topics:
            self.broker.create(topic.name, topic.partitions)
        self._group = RocketGroup(self._rocket, GROUP)

    @property
    def group(self) -> RocketGroup:
        """Implements `Ground.group`."""
        return self._group

    def _send(self, number: int, plan: Planned, value: str) -> tuple[str, int]:
        """Store a message. Returns: its own name, and its offset."""
        name = f"u{number}"
        headers = ((UNIQUE_KEY, name.encode()),)
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=plan.key, headers=headers)
        return name, offset


class QueueGround(RocketGround):
    """A group that is kept beside the claims."""

    #: What is nobody's by the broker cannot be taken away by it.
    without: frozenset[FaultKind] = frozenset({"lose", "remake", "leaderless", "resend", "cut", "late", "twice"})

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._by_message = stage.world.by_message
        self.broker.watchers.append(_Lost(stage))

    def source(self, process: Process, static_id: str | None) -> RocketSource:  # noqa: ARG002 - as of Ground
        """Implements `Ground.source`."""
        return RocketSource(
            self._rocket,
            GROUP,
            coordinator=self._stage.store.coordinator(process),
            runtime=process.runtime,
            name=process.name,
            lease_s=self._stage.world.session_timeout_s,
            max_poll_interval_s=self._stage.world.max_poll_interval_s,
            by_message=self._by_message,
        )

    def lose(self, source: object) -> None:
        """Do nothing: it does not happen."""

    def store(self, number: int, plan: Planned, value: str) -> Place:
        """Implements `Ground.store`."""
        name, offset = self._send(number, plan, value)
        if plan.unreadable:
            self.broker.spoil(plan.topic, plan.partition, offset)
        # Its own name is claimed too, where the world says so.
        return Place(self._stage.log(Partition(plan.topic, plan.partition)), offset, name if self._by_message else None)

    def _position(self, log: LogName) -> str:
        """Of a topic that was made again it is the same."""
        (topic, number, broker), _ = log
        return f"{GROUP}/{topic}/{broker}/{number}"

    def behind(self) -> list[str]:
        """Implements `Ground.behind`. A commit that is still to come may move an offset back."""
        return super().behind() or ["commits are on their way"] * min(1, self._group.coming)


class _Lost(Watcher):
    """Watches for lost queues: a member that has lost its queues waits for nothing."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:  # noqa: ARG002 - as of Watcher
        """Implements `Watcher.on_lost`."""
        for each in self._stage.members:
            if each.source is member:
                each.thrown_out()


class _KafkaClient(MemoryPartitionedSource):
    """A member's client, which cannot read what its world says."""

    def __init__(self, stage: Stage, process: Process, static_id: str | None) -> None:
        session_s = stage.world.session_timeout_s
        super().__init__(
            stage.ground.broker,
            GROUP,
            name=process.name,
            runtime=process.runtime,
            session_timeout_s=session_s,
            heartbeat_s=min(3.0, session_s / 6),
            request_timeout_s=stage.world.request_timeout_s,
            static_id=static_id,
        )
        self._stage = stage
        self._some = any(each.unreadable for each in stage.world.records)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Implements `PartitionedSource.poll`."""
        batch = super().poll(max_records, timeout_s)
        if not self._some:
            return batch
        faulty = [record for record in batch.records if self._stage.placed(record).plan.unreadable]
        unreadable = {
            (each.partition, each.offset): RecordUnreadable(f"{each.partition}@{each.offset}: the world says so")
            for each in faulty
        }
        return batch._replace(unreadable=unreadable)
