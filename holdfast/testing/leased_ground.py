"""Ground of leased messages: each is hidden from others while its lease lasts, and is acknowledged alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable
from holdfast.records import Partition
from holdfast.testing.book import GROUP, Place
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.ports import CommitFate
    from holdfast.records import Fence, Record
    from holdfast.runtime import Runtime
    from holdfast.testing.book import Placed
    from holdfast.testing.brokers.kafka_group import Attempt
    from holdfast.testing.brokers.leased import Message
    from holdfast.testing.play import Stage
    from holdfast.testing.process import Process
    from holdfast.testing.world import FaultKind, Planned


class LeasedGround:
    """RocketMQ's messages, one by one. A message's name is what it is claimed by where it has no business key."""

    #: There are no positions, and nothing moves between members.
    without: frozenset[FaultKind] = frozenset({"grow", "markers", "compact", "reset"})

    def __init__(self, stage: Stage) -> None:
        runtime = stage.scheduler.process("broker", preempted=False).runtime
        #: Where messages were stored: what is delivered comes of the queue.
        self.broker = MemoryBroker(runtime)
        for topic in stage.world.topics:
            self.broker.create(topic.name, topic.partitions)
        self._stage, self._queue = stage, _Queue(stage, stage.world.message_lease_s, runtime=runtime)
        self.group = _Group()

    def source(self, process: Process, static_id: str | None) -> MemoryLeasedSource:  # noqa: ARG002 - as of Ground
        """As `Ground.source`."""
        return _Client(self._queue, self.group)

    def lose(self, source: object) -> None:
        """The leases of what a member has end at once."""
        self._queue.end_leases(source)

    def store(self, number: int, plan: Planned, value: str) -> Place:
        """As `Ground.store`."""
        place = Partition(plan.topic, plan.partition)
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=plan.key)
        message = self._queue.store(value, place, key=plan.key, spoilt=plan.unreadable)
        self._queue.numbers[message.number] = number
        return Place(self._stage.log(place), offset, str(message.number))

    def number(self, partition: Partition, offset: int) -> int:  # noqa: ARG002 - as of Ground
        """An offset is the number of a delivery."""
        return self._queue.numbers[self._queue.of(offset).number]

    def judge(self, member: str, attempt: Attempt) -> None:
        """Nothing is committed; `_Queue` judges what is acknowledged."""

    def done(self, record: Placed) -> bool:
        """There are no positions: it is known by its key, or by its name."""
        return record.unit.key is not None and self._stage.finished(record.unit.key)

    def position(self, partition: Partition) -> str:
        """As a name: nobody asks for it."""
        return str(partition)

    def is_blind(self, fence: Fence, record: Placed) -> bool:  # noqa: ARG002 - as of Ground
        """There are no logs."""
        return False

    def committed(self, partition: Partition) -> int | None:  # noqa: ARG002 - as of Ground
        """There is none."""
        return None

    @property
    def progress(self) -> int:
        """As `Ground.progress`."""
        return len(self._queue.messages) - len(self._queue.open)

    def behind(self) -> list[str]:
        """As `Ground.behind`."""
        left = len(self._queue.open)
        return [f"{left} messages are not acknowledged"] if left else []


class _Group:
    """There are no offsets, and nobody waits for members."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.members: Sequence[object] = ()
        #: So many acknowledgements are not answered: every second one is taken.
        self.refusals = 0

    def offset(self, partition: Partition) -> int | None:  # noqa: ARG002 - as of Group
        """There is none."""
        return None

    def set_offset(self, partition: Partition, offset: int) -> None:
        """There is none."""

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:  # noqa: ARG002 - as of Group
        """So many of the next acknowledgements are not answered."""
        self.refusals += len(fates)


class _Queue(MemoryQueue):
    """Sees to it that messages are acknowledged after their handlers, and not taken from one that holds them."""

    def __init__(self, stage: Stage, lease_s: float, *, runtime: Runtime) -> None:
        super().__init__(lease_s, runtime=runtime)
        self._stage = stage
        #: Of the record in the book, by the message's own.
        self.numbers: dict[int, int] = {}
        #: Leases end for other reasons than that nobody renews them.
        self._upset = any(fault.kind in ("lose", "stall") for fault in stage.world.faults)

    def delivered(self, message: Message, holder: object) -> None:  # noqa: ARG002 - as of MemoryQueue
        """As `MemoryQueue.delivered`. P4: what a member holds that lives and is well is no other's."""
        stage, record = self._stage, self._record(message)
        record.delivered_at = stage.now
        member = next((each for each in stage.living if each.source is message.holder), None)
        if member is None or member.engine is None or member.engine.stopping or stage.judges.unprotected:
            return
        inline = not stage.world.settings.workers
        for run in record.unit.runs:
            mine = run.record is record and run.member == member.name
            if mine and run.ended_at is None and not (run.given_up or inline or self._upset):
                stage.judges.broken("LEASE", f"{record} is delivered again, and runs at {member.name}, which is well")

    def acknowledged(self, message: Message, holder: object) -> None:
        """As `MemoryQueue.acknowledged`."""
        name = next((each.name for each in self._stage.members if each.source is holder), "somebody")
        self._stage.judges.acknowledged(name, self._record(message))

    def _record(self, message: Message) -> Placed:
        return self._stage.book.records[self.numbers[message.number]]


class _Client(MemoryLeasedSource):
    """A member's client. Brokers do not always answer it."""

    def __init__(self, queue: MemoryQueue, group: _Group) -> None:
        super().__init__(queue, GROUP)
        self._answers = group

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """As `LeasedSource.acknowledge`."""
        if not self._answers.refusals:
            return super().acknowledge(records)
        self._answers.refusals -= 1
        if self._answers.refusals % 2:
            super().acknowledge(records)
        raise SourceUnavailable("acknowledging: no answer")
