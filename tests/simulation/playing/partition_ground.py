"""Partition ground: the common part of the grounds with partitions or queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.simulation.playing.book import RecordPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.events import Event
    from holdfast.records import Fence, Partition
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.brokers.kafka_group import Attempt
    from tests.simulation.playing.book import LogName, Placed
    from tests.simulation.playing.ground import Group
    from tests.simulation.playing.stage import Stage


class PartitionGround(ABC):
    """The common part of all kinds of partitions and queues."""

    broker: MemoryBroker
    _stage: Stage

    @property
    @abstractmethod
    def group(self) -> Group:
        """Implements `Ground.group`."""

    def store_again(self, first: Placed) -> RecordPlace | None:
        """Implements `Ground.store_again`."""
        (topic, number, _), _ = first.log
        return RecordPlace(first.log, self.broker.store_again(topic, number, first.offset))

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """Implements `Ground.number`."""
        book = self._stage.book
        logs = [log for log in book.logs if log.partition == partition]  # several, if the topic was made again
        found = [each for log in reversed(logs) if (each := book.at(log, offset)) is not None]
        return next((each for each in found if each.runs), found[0]).number

    def begins(self, partitions: Sequence[Partition]) -> None:  # noqa: B027
        """Implements `Ground.begins`."""

    def commit_elsewhere(self, partition: Partition, offset: int) -> None:  # noqa: B027 - where it is not drawn, nothing
        """Implements `Ground.commit_elsewhere`."""

    def is_foreign(self, partition: Partition) -> bool:
        """Implements `Ground.is_foreign`."""
        return False

    def told(self, member: str, event: Event) -> None:  # noqa: B027
        """Implements `Ground.told`."""

    def judge(self, member: str, attempt: Attempt) -> None:
        """P1: all records below a committed offset are over."""
        self._stage.judges.committed(member, self._stage.log(attempt.partition), attempt.offset)

    def done(self, record: Placed) -> bool:
        """Whether the record is marked as done in the position of its log."""
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
            if log.end
            and (committed := self.committed(partition)) != log.end
            and not self._is_passed_over(partition, committed or 0)
        ]

    def _is_passed_over(self, partition: Partition, committed: int) -> bool:
        """Whether a loop has sought over the lowest record, or over a stretch of the log that has none. It is done with
        the next record behind it that the loop ends, and there is none if all later ones were done before."""
        stage = self._stage
        if stage.world.loop is None or not stage.world.loop.seeks:
            return False
        log = stage.log(partition)
        records = stage.book.logs.get(log, [])
        if not all(each.over for each in records):
            return False
        lowest = next((each for each in records if each.offset >= committed), None)
        if lowest is not None and lowest.excused:
            return True
        return any(committed in each for each in stage.judges.sought_over.get(log, ()))
