"""Kafka in memory: topics and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runtime import MACHINE
from holdfast.testing.brokers.kafka_group import MemoryGroup, Rebalancing
from holdfast.testing.brokers.kafka_topics import KafkaTopics

if TYPE_CHECKING:
    from holdfast.runtime import Runtime


class MemoryBroker(KafkaTopics):
    """One broker with topics and groups. Any thread.

    Args:
        runtime: of the machine that it runs on. In a simulated world: of a process that is not preempted.
        topics: topic -> number of partitions.
    """

    def __init__(self, runtime: Runtime = MACHINE, /, **topics: int) -> None:
        self._groups: dict[str, MemoryGroup] = {}
        super().__init__(runtime, **topics)

    def group(self, name: str = "g", *, protocol: Rebalancing = "consumer") -> MemoryGroup:
        """The group of that name. The first call for a name decides the protocol."""
        with self.changed:
            if name not in self._groups:
                self.groups[name] = self._groups[name] = MemoryGroup(self, name, protocol)
            return self._groups[name]
