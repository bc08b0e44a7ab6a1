"""Ground of pushed queues: RocketMQ's queues, which a push client assigns without a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.records import Partition
from tests.simulation.brokers.pushed import PushGroup, PushMember
from tests.simulation.brokers.rocketmq_member import UNIQUE_KEY
from tests.simulation.playing.book import GROUP, RecordPlace
from tests.simulation.playing.queue_ground import RocketGround

if TYPE_CHECKING:
    from holdfast.testing.brokers.kafka_group import Attempt
    from holdfast.testing.brokers.logs import Stored
    from holdfast.testing.process import Process
    from tests.simulation.brokers.rocketmq import RocketBroker
    from tests.simulation.drawing.world import FaultKind, Planned
    from tests.simulation.playing.book import LogName, Placed
    from tests.simulation.playing.stage import Stage

#: A member that loses its queues is not heard by others for so long.
_UNHEARD_S = 1.5


class PushedGround(RocketGround):
    """A message without a business key is claimed by its message id; a member also leases each queue that it reads."""

    without: frozenset[FaultKind] = frozenset(
        {"markers", "compact", "reset", "leaderless", "cut", "late", "twice", "foreign", "forget"}
    )

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._push = _Group(stage, self._rocket)
        #: (log, offset) of a producer's copy -> number of its record.
        self._copies: dict[tuple[LogName, int], int] = {}

    def source(self, process: Process, static_id: str | None) -> PushMember:
        """Implements `Ground.source`."""
        return PushMember(self._push, process.name, process.runtime)

    def lose(self, source: object) -> None:
        """Others do not hear that member for a while: they read its queues, and so does it."""
        if isinstance(source, PushMember):
            source.unheard_until = self._stage.scheduler.now + _UNHEARD_S
            self._push.heard.pop(source.name, None)

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """Implements `Ground.store`."""
        name, offset = self._send(number, plan, value)
        return RecordPlace(self._stage.log(Partition(plan.topic, plan.partition)), offset, name)

    def store_again(self, first: Placed) -> RecordPlace | None:
        """Implements `Ground.store_again`. A copy has the same message id."""
        (topic, number, _), _ = first.log
        self._copies[first.log, self.broker.store_again(topic, number, first.offset)] = first.number
        return None

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """Implements `Ground.number`."""
        if partition.broker:
            return _number(self._push.returned[offset].stored)
        copy = self._copies.get((self._stage.log(partition), offset))
        return copy if copy is not None else super().number(partition, offset, source)

    def judge(self, member: str, attempt: Attempt) -> None:
        """P1: all records below a committed offset are handled or were sent back."""
        for record in self._stage.book.logs.get(self._stage.log(attempt.partition), ()):
            if record.offset < attempt.offset and not (record.over or record.sent_back):
                self._stage.judges.broken(
                    "LOST",
                    f"{attempt.partition}@{attempt.offset} is committed by {member}, and {record} is not handled",
                )

    def done(self, record: Placed) -> bool:
        """Always False: records are skipped by key or message id, and never by position."""
        return record.unit.key is not None and self._stage.finished(record.unit.key)

    def _position(self, log: LogName) -> str:
        """The position's name; a topic that is made again keeps it."""
        (topic, number, _), _ = log
        return f"{GROUP}/{topic}/a/{number}"

    @property
    def progress(self) -> int:
        """Implements `Ground.progress`."""
        return super().progress + len(self._push.returned) - len(self._push.open)

    def behind(self) -> list[str]:
        """Implements `Ground.behind`. A commit that is under way may still move an offset back."""
        left = len(self._push.open)
        coming = self._group.coming
        return [
            *super().behind(),
            *([f"{left} messages were sent back and are not answered"] if left else []),
            *(["commits are on their way"] if coming else []),
        ]


class _Group(PushGroup):
    """Notes in the book which records were sent back."""

    def __init__(self, stage: Stage, broker: RocketBroker) -> None:
        super().__init__(broker, GROUP)
        self._stage = stage

    def send_back(self, topic: str, stored: Stored, now: float) -> None:
        """Implements `PushGroup.send_back`."""
        self._stage.book.records[_number(stored)].sent_back = True
        super().send_back(topic, stored, now)


def _number(stored: Stored) -> int:
    """The record's number in the book, by its message id."""
    return int((dict(stored.headers)[UNIQUE_KEY] or b"")[1:])
