"""RocketGroup: a RocketMQ group with the interface of `MemoryGroup`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.kafka_group import Attempt
from holdfast.testing.brokers.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Partition
    from tests.simulation.brokers.rocketmq import RocketBroker

#: The delay of a commit's second arrival.
_LATE_S = 1.5


class RocketGroup(Watcher):
    """The committed offsets, and the members that committed them. Guarded by the broker's lock."""

    def __init__(self, broker: RocketBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.attempts: list[Attempt] = []
        #: Queue -> how many of its next commits will arrive a second time.
        self._late: Counter[Partition] = Counter()
        #: How many second arrivals are under way.
        self.coming = 0
        broker.watchers.append(self)

    @property
    def members(self) -> Sequence[object]:
        """Always empty: the broker waits for no members."""
        return ()

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = none."""
        with self.broker.changed:
            return self.broker.offsets.get((self.name, partition))

    def set_offset(self, partition: Partition, offset: int | None) -> None:
        """Reset an offset, also while members run; the next pull is told. The broker never lets an offset expire."""
        if offset is not None:
            self.broker.reset(self.name, partition, offset)

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """The broker refuses no commit. Instead, so many of the next commits of that queue arrive a second time, when
        another member may have the queue."""
        with self.broker.changed:
            self._late[partition] += len(fates)

    def lose(self, member: object) -> None:
        """Nothing to do: the broker takes no queues away. A frozen member loses its queues."""

    # ---- Watcher
    def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
        """Implements `Watcher.on_commit`."""
        self.attempts.append(Attempt(member, partition, offset, CommitFate.DONE))
        if not self._late[partition]:
            return
        self._late[partition] -= 1
        self.coming += 1
        log = self.broker.logs.get(partition)

        def once_more() -> None:
            self.coming -= 1
            if log is not None and self.broker.logs.get(partition) is log:  # else the topic was made again
                self.broker.commit(self.name, partition, offset, member)

        self.broker.after(self.broker.time, _LATE_S, once_more)
