"""Java's view of a string, by which brokers and Java clients decide: String.hashCode, String.compareTo."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.records import Partition


def java_hash(text: str) -> int:
    """String.hashCode: brokers compare tags by it, Kafka finds a group's coordinator, and a key leads to the queue to
    which Java's producers send it."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def java_order(text: str) -> str:
    """A key that sorts as Java sorts that string: by UTF-16, where letters outside of the first 65,536 come as two
    before some that are inside."""
    if text.isascii():
        return text
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` whose leader coordinates a group of Kafka: Utils.abs(hashCode) % count, in
    which the absolute value of the lowest number is 0."""
    hashed = java_hash(group)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def by_topic(queues: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Topics in order, and the queues of each in that of Java's MessageQueue: broker name, then queue id."""
    topics: dict[str, list[Partition]] = defaultdict(list)
    for queue in queues:
        topics[queue.topic].append(queue)
    brokers = {queue.broker: java_order(queue.broker) for found in topics.values() for queue in found}
    for found in topics.values():
        found.sort(key=lambda queue: (brokers[queue.broker], queue.number))
    return dict(sorted(topics.items()))
