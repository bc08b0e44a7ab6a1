"""Kafka ground: Kafka's topics, and one group of one of its protocols."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast.errors import RecordUnreadable
from holdfast.records import Partition
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.brokers.logs import position_name
from tests.simulation.brokers.kafka_prefetch import Prefetch
from tests.simulation.brokers.kafka_slips import SlipsByChance
from tests.simulation.playing.book import GROUP, RecordPlace
from tests.simulation.playing.foreign import Foreign
from tests.simulation.playing.partition_ground import PartitionGround

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import Batch
    from holdfast.testing.brokers.kafka_group import Attempt, MemoryGroup
    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import FaultKind, Planned
    from tests.simulation.playing.book import LogName
    from tests.simulation.playing.stage import Stage


class KafkaGround(PartitionGround):
    """Kafka's topics, and one group of one of its protocols."""

    without: frozenset[FaultKind] = frozenset()

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._foreign = Foreign(stage)
        self.broker = MemoryBroker(stage.scheduler.process("broker", preempted=False).runtime)
        for topic in stage.world.topics:
            self.broker.create(topic.name, topic.partitions)
        self._group = self.broker.group(GROUP, protocol=stage.world.protocol)
        self.broker.watchers.append(self._foreign)
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

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """Implements `Ground.store`."""
        [offset] = self.broker.produce(plan.topic, plan.partition, value, key=plan.key)
        return RecordPlace(self._stage.log(Partition(plan.topic, plan.partition)), offset)

    def begins(self, partitions: Sequence[Partition]) -> None:
        """Implements `Ground.begins`. Retry topics begin at their first record."""
        self._foreign.made(each for each in partitions if each.topic not in self._stage.retry_topics)

    def commit_elsewhere(self, partition: Partition, offset: int) -> None:
        """Implements `Ground.commit_elsewhere`."""
        self._foreign.commit(partition, offset)

    def is_foreign(self, partition: Partition) -> bool:
        """Implements `Ground.is_foreign`."""
        kept = self._group.committed.get(partition)
        return kept is not None and not kept.ours

    def told(self, member: str, event: Event) -> None:
        """Implements `Ground.told`."""
        self._foreign.told(member, event)

    def _position(self, log: LogName) -> str:
        """The position's name; a topic that is made again has another."""
        return position_name(GROUP, log.partition, log.log)

    def committed(self, partition: Partition) -> int | None:
        """Implements `Ground.committed`."""
        kept = self._group.committed.get(partition)
        return kept.offset if kept is not None and kept.topic_id in (0, self._stage.ids[partition.topic]) else None

    def judge(self, member: str, attempt: Attempt) -> None:
        """Judge a commit, unless it names a deleted topic."""
        if attempt.topic_id in (0, self._stage.ids[attempt.partition.topic]):
            super().judge(member, attempt)


class _KafkaClient(MemoryPartitionedSource):
    """A member's client, which cannot read the records that the world plans as unreadable."""

    slips: SlipsByChance | None = None
    _prefetch: Prefetch | None = None

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
        self.begins = stage.world.begins
        if stage.world.slips is not None:
            self.slips = SlipsByChance(stage.world.slips, random.Random(f"{stage.world.seed} {process.name}"))
        if stage.world.fetches is not None:
            self._prefetch = Prefetch(self.broker, stage.world.fetches, self.line, self.stir)
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

    def seek(self, partition: Partition, offset: int | None) -> None:
        """Implements `PartitionedSource.seek`."""
        if self.slips is None or partition not in self.readers or not self.slips.loses_seek():
            super().seek(partition, offset)
            self._moved([partition])

    def pause(self, partitions: Collection[Partition]) -> None:
        """Implements `PartitionedSource.pause`."""
        super().pause(partitions)
        self._moved(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        """Implements `PartitionedSource.resume`."""
        super().resume(partitions)
        self._moved(partitions)

    def _moved(self, partitions: Collection[Partition]) -> None:
        if self._prefetch is not None:
            with self.broker.changed:
                for partition in partitions:
                    self._prefetch.moved(partition)

    def _read(self, at_most: int) -> Batch:
        if self._prefetch is None:
            return super()._read(at_most)
        now = self.broker.settle()
        with self.broker.changed:
            readers, owners = self.readers, self._owners
            batch, self._trouble = self._prefetch.take(now, readers, owners, at_most, self.slips)
        return batch
