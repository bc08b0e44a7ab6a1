"""Kafka in memory: topics and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runtime import MACHINE
from holdfast.testing.brokers.kafka_group import MemoryGroup, Rebalancing
from holdfast.testing.brokers.kafka_topics import KafkaTopics

if TYPE_CHECKING:
    from holdfast.runtime import Runtime


class MemoryBroker(KafkaTopics):
    """One broker: so many partitions of each topic, and groups. Any thread.

    Args:
        runtime: the machine that it runs on. In a simulated world a process of its own, which nobody overtakes.
        topics: by name, how many partitions each has.
    """

    def __init__(self, runtime: Runtime = MACHINE, /, **topics: int) -> None:
        self._groups: dict[str, MemoryGroup] = {}
        super().__init__(runtime, **topics)

    def group(self, name: str = "g", *, protocol: Rebalancing = "consumer") -> MemoryGroup:
        """The group of that name; the first who asks says how it rebalances."""
        with self.changed:
            if name not in self._groups:
                self.groups[name] = self._groups[name] = MemoryGroup(self, name, protocol)
            return self._groups[name]
