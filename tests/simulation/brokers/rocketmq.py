"""RocketMQ in memory: queues, and offsets that every client may set.

A broker accepts each commit, from any client and however late; it knows no owner of a queue. The coordinator's plan
decides which member has a queue, and the lease in the store decides which one may handle its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.testing.brokers.kafka import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Container

    from holdfast.records import Partition
    from holdfast.runtime import Runtime


class Reader(Protocol):
    """A member, as its broker sees it."""

    @property
    def readers(self) -> Container[Partition]:
        """The queues that it reads."""
        ...

    def wake(self) -> None:
        """Wake a poll that waits: messages have come."""
        ...


class RocketBroker(MemoryBroker):
    """Topics of queues, and groups' offsets in a plain map. Any thread."""

    def __init__(self, runtime: Runtime, /, **topics: int) -> None:
        super().__init__(runtime, **topics)
        self.offsets: dict[tuple[str, Partition], int] = {}
        #: Resets that no pull has been told of. Until then commits are answered well, and ignored.
        self._resets: dict[tuple[str, Partition], int] = {}
        self.sources: list[Reader] = []
        #: The log that a queue had when a member gave it up, as members note beside the group.
        self.noted: dict[tuple[str, Partition], int] = {}

    def commit(self, group: str, queue: Partition, offset: int, member: object = None) -> bool:
        """Commit an offset, from any client. False = answered well and not applied, since a reset waits. Called with
        the lock."""
        if (group, queue) in self._resets:
            return False
        self.offsets[group, queue] = offset
        for watcher in self.watchers:
            watcher.on_commit(queue, offset, member, "")
        return True

    def reset(self, group: str, queue: Partition, offset: int) -> None:
        """Reset an offset as RocketMQ's tool does, also while members run."""
        with self.changed:
            self.offsets[group, queue] = self._resets[group, queue] = offset
            self._grew(queue)

    def reset_of(self, group: str, queue: Partition) -> int | None:
        """The reset that waits for this queue's next pull (OFFSET_RESET); told once. Called with the lock."""
        return self._resets.pop((group, queue), None)

    def _grew(self, partition: Partition) -> None:
        for source in self.sources:
            if partition in source.readers:
                source.wake()
        super()._grew(partition)

    def _forgotten(self, topic: str) -> None:
        for kept in [kept for kept in self.offsets if kept[1].topic == topic]:
            del self.offsets[kept]
