"""One number for a queue, also where several brokers have queues of one topic: 3 of broker-b is 1003."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.records import Partition

_A_BROKER = 1_000


def number_of(partition: Partition) -> int:
    """On Kafka the partition's own. Brokers are named "broker-a", "broker-b", ... as RocketMQServer names them."""
    if not partition.broker:
        return partition.number
    return partition.number + _A_BROKER * (ord(partition.broker[-1]) - ord("a"))


def number_of_label(label: str) -> int:
    """The same of a partition as events name it: 3, broker-b-3."""
    broker, _, number = label.rpartition("-")
    return int(number) + _A_BROKER * (ord(broker[-1]) - ord("a") if broker else 0)
