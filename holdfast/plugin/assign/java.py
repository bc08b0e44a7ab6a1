"""Java's hash and order of strings, which brokers and Java clients use: String.hashCode, String.compareTo."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.records import Partition


def java_hash(text: str) -> int:
    """String.hashCode. Brokers compare tags by it, Kafka finds a group's coordinator, and Java's producers choose the
    queue of a key."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def java_order(text: str) -> str:
    """A sort key for Java's order of strings, which is by UTF-16 code units: characters above U+FFFF, which are two
    units, sort before some below it."""
    if text.isascii():
        return text
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` whose leader coordinates a Kafka group: Utils.abs(hashCode) % count, where
    abs of the lowest int is 0."""
    hashed = java_hash(group)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def by_topic(queues: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Topic -> its queues, topics sorted, queues in the order of Java's MessageQueue: broker name, then queue id."""
    topics: dict[str, list[Partition]] = defaultdict(list)
    for queue in queues:
        topics[queue.topic].append(queue)
    brokers = {queue.broker: java_order(queue.broker) for found in topics.values() for queue in found}
    for found in topics.values():
        found.sort(key=lambda queue: (brokers[queue.broker], queue.number))
    return dict(sorted(topics.items()))
