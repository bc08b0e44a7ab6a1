"""A group of RocketMQ's in the words of `MemoryGroup`, for whoever plays with either of them."""

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

#: How much later a commit comes that comes once more.
_LATE_S = 1.5


class RocketGroup(Watcher):
    """The committed offsets, and who committed them. Guarded by the broker's lock."""

    def __init__(self, broker: RocketBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.attempts: list[Attempt] = []
        #: How many commits of a queue are still to come once more.
        self._late: Counter[Partition] = Counter()
        #: Those that are on their way.
        self.coming = 0
        broker.watchers.append(self)

    @property
    def members(self) -> Sequence[object]:
        """Nobody: the broker knows no members that it would wait for."""
        return ()

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = nothing."""
        with self.broker.changed:
            return self.broker.offsets.get((self.name, partition))

    def set_offset(self, partition: Partition, offset: int | None) -> None:
        """By hand, while the group is empty or not: the next pull is told of it. Such a broker forgets none."""
        if offset is not None:
            self.broker.reset(self.name, partition, offset)

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """Such a broker refuses nothing: so many of the next commits of that queue arrive once more instead, when
        others may have it."""
        with self.broker.changed:
            self._late[partition] += len(fates)

    def lose(self, member: object) -> None:
        """Nothing: no broker takes queues away. Who stands still loses them."""

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
            if log is not None and self.broker.logs.get(partition) is log:  # nobody waits so long that it is another
                self.broker.commit(self.name, partition, offset, member)

        self.broker.after(self.broker.time, _LATE_S, once_more)
