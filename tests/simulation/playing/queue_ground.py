"""Queue ground: RocketMQ's queues, and a group that is kept in the store of claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.records import Partition
from holdfast.testing.brokers.watcher import Watcher
from tests.simulation.brokers.rocketmq import RocketBroker
from tests.simulation.brokers.rocketmq_group import RocketGroup
from tests.simulation.brokers.rocketmq_member import UNIQUE_KEY, RocketSource
from tests.simulation.playing.book import GROUP, RecordPlace
from tests.simulation.playing.partition_ground import PartitionGround

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import FaultKind, Planned
    from tests.simulation.playing.book import LogName
    from tests.simulation.playing.stage import Stage


class RocketGround(PartitionGround):
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
        """Store a message. Returns: its message id and its offset."""
        name = f"u{number}"
        headers = ((UNIQUE_KEY, name.encode()),)
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=plan.key, headers=headers)
        return name, offset


class QueueGround(RocketGround):
    """A group that is kept in the store of claims."""

    #: The broker knows no owners, so it cannot take queues away.
    without: frozenset[FaultKind] = frozenset(
        {"lose", "remake", "leaderless", "resend", "cut", "twice", "foreign", "forget"}
    )

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._by_message = stage.world.by_message
        self.broker.watchers.append(_Lost(stage))

    def source(self, process: Process, static_id: str | None) -> RocketSource:
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
        """Do nothing: the broker takes no queues away."""

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """Implements `Ground.store`."""
        name, offset = self._send(number, plan, value)
        if plan.unreadable:
            self.broker.spoil(plan.topic, plan.partition, offset)
        # The message id is claimed too, if the world says so.
        return RecordPlace(
            self._stage.log(Partition(plan.topic, plan.partition)), offset, name if self._by_message else None
        )

    def _position(self, log: LogName) -> str:
        """The position's name; a topic that is made again keeps it."""
        (topic, number, broker), _ = log
        return f"{GROUP}/{topic}/{broker}/{number}"

    def behind(self) -> list[str]:
        """Implements `Ground.behind`. A commit that is under way may still move an offset back."""
        return super().behind() or ["commits are on their way"] * min(1, self._group.coming)


class _Lost(Watcher):
    """Notes members that have lost their queues, which are not judged for a while."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Implements `Watcher.on_lost`."""
        if (it := self._stage.member_of(member)) is not None:
            it.thrown_out()
