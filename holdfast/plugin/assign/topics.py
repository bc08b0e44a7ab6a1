"""Queues by topic and members, in RocketMQ's order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.plugin.assign.java import java_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.dedup.groups import GroupMember
    from holdfast.records import Partition


def by_topic(queues: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Topics in order, and the queues of each in that of Java's MessageQueue: broker name, then queue id."""
    topics: dict[str, list[Partition]] = defaultdict(list)
    for queue in queues:
        topics[queue.topic].append(queue)
    brokers = {queue.broker: java_order(queue.broker) for found in topics.values() for queue in found}
    for found in topics.values():
        found.sort(key=lambda queue: (brokers[queue.broker], queue.number))
    return dict(sorted(topics.items()))


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """By client id, as RocketMQ's clients sort them. Two of one client id, which they cannot tell apart, by id."""
    return sorted(members, key=lambda member: (java_order(member.client_id), member.id))
