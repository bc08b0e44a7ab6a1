"""Kafka's RoundRobinAssignor ("roundrobin"): all partitions in turn, in one circle of members."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from holdfast.plugin.assign.members import in_order
from holdfast.plugin.assign.topics import by_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.plugin.assign.members import Subscriber
    from holdfast.records import Partition


def round_robin(
    members: Collection[Subscriber],
    partitions: Collection[Partition],
    previous: Mapping[Partition, str] | None = None,  # noqa: ARG001 - it forgets
) -> dict[Partition, str]:
    """What the Java class does, member for member; partitions of topics that nobody wants are absent.

    Even where all want the same. Where they do not, the circle passes over who does not want a topic, and how much each
    gets is left to chance.
    """
    circle = in_order(members)
    owners: dict[Partition, str] = {}
    at = 0
    for topic, found in by_topic(partitions).items():
        wanting = [i for i, member in enumerate(circle) if topic in member.topics]
        if not wanting:
            continue
        turn = bisect_left(wanting, at)
        for partition in found:
            at = wanting[turn % len(wanting)]
            owners[partition] = circle[at].id
            turn += 1
        at = (at + 1) % len(circle)
    return owners
