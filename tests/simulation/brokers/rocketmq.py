"""RocketMQ in memory: queues, and offsets that anybody may set.

Its brokers refuse no commit, of whomever, however late; they know no owner. So who has a queue is the coordinator's
plan, and who may work on it is the store's lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.testing.brokers.kafka import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Container

    from holdfast.records import Partition
    from holdfast.runtime import Runtime


class Reader(Protocol):
    """A member, as its broker knows it."""

    @property
    def readers(self) -> Container[Partition]:
        """The queues that it reads."""
        ...

    def wake(self) -> None:
        """Something came."""
        ...


class RocketBroker(MemoryBroker):
    """Topics of queues, and groups' offsets in a plain map. Any thread."""

    def __init__(self, runtime: Runtime, /, **topics: int) -> None:
        super().__init__(runtime, **topics)
        self.offsets: dict[tuple[str, Partition], int] = {}
        #: Resets that no pull has met yet: until then commits are answered well, and ignored.
        self._resets: dict[tuple[str, Partition], int] = {}
        self.sources: list[Reader] = []
        #: Which log a queue had when a member gave it up, as members note beside the group.
        self.noted: dict[tuple[str, Partition], int] = {}

    def commit(self, group: str, queue: Partition, offset: int, member: object = None) -> bool:
        """Of anybody. False = answered well and not applied, as a reset waits. Called with the lock."""
        if (group, queue) in self._resets:
            return False
        self.offsets[group, queue] = offset
        for watcher in self.watchers:
            watcher.on_commit(queue, offset, member, "")
        return True

    def reset(self, group: str, queue: Partition, offset: int) -> None:
        """Reset an offset as a person does, by a tool: also while members run."""
        with self.changed:
            self.offsets[group, queue] = self._resets[group, queue] = offset
            self._grew(queue)

    def reset_of(self, group: str, queue: Partition) -> int | None:
        """OFFSET_RESET: told to the next pull, once. Called with the lock."""
        return self._resets.pop((group, queue), None)

    def _grew(self, partition: Partition) -> None:
        for source in self.sources:
            if partition in source.readers:
                source.wake()
        super()._grew(partition)

    def _forgotten(self, topic: str) -> None:
        for kept in [kept for kept in self.offsets if kept[1].topic == topic]:
            del self.offsets[kept]
