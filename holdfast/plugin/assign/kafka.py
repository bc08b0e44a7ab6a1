"""Kafka's own assignors of the classic protocol: "range", the default, and "roundrobin"."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.plugin.assign.java import by_topic, java_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.plugin.assign.members import Subscriber
    from holdfast.records import Partition

    Racks = Mapping[Partition, Collection[str]]


def range_(
    members: Collection[Subscriber],
    partitions: Collection[Partition],
    previous: Mapping[Partition, str] | None = None,  # noqa: ARG001 - not used by this strategy
    *,
    racks: Racks | None = None,
) -> dict[Partition, str]:
    """Plan as RangeAssignor ("range") does, member for member. Partitions of topics without a subscriber are left out.

    The first members get one partition more of each topic: with many topics they have more in all. Topics of equal size
    with the same subscribers are co-partitioned: partitions of one number have one owner.

    Args:
        members: in any order.
        partitions: in any order.
        previous: not used.
        racks: partition -> the racks of its replicas. A member whose rack is known (`Subscriber.rack`) gets partitions
            with a replica there, if that leaves the numbers unchanged.
    """
    consumers: dict[str, dict[str, str]] = defaultdict(dict)
    for member in in_order(members):
        for topic in member.topics:
            consumers[topic][member.id] = member.rack
    topics = [
        _Topic(found, consumers[topic], racks or {})
        for topic, found in by_topic(partitions).items()
        if topic in consumers
    ]
    if any(topic.racks_matter for topic in topics):
        _near(topics)
    owners: dict[Partition, str] = {}
    for each in topics:
        each.rest()
        owners.update(each.owners)
    return owners


class _Topic:
    """One topic while it is assigned. Follows Java's TopicAssignmentState, also in when its numbers change."""

    def __init__(self, partitions: Sequence[Partition], consumers: dict[str, str], racks: Racks) -> None:
        self.partitions = partitions
        #: Member -> rack, in order; empty: not known.
        self.consumers = consumers
        self.owners: dict[Partition, str] = {}
        self._has = dict.fromkeys(consumers, 0)
        self._each, self._more = divmod(len(partitions), len(consumers))
        #: None: no member of this topic knows its rack.
        self.racks: list[set[str]] | None = None
        self.racks_matter = False
        theirs = set(consumers.values()) - {""}
        if theirs:
            self.racks = [set(racks.get(partition, ())) for partition in partitions]
            everywhere: set[str] = set().union(*self.racks)
            # If each partition has a replica in each rack, racks make no difference.
            self.racks_matter = bool(theirs & everywhere) and any(found != everywhere for found in self.racks)

    def room(self, member_id: str) -> int:
        return max(0, self._each + (self._more > 0) - self._has[member_id])

    def give(self, member_id: str, partitions: Sequence[Partition]) -> None:
        self.owners.update(dict.fromkeys(partitions, member_id))
        self._has[member_id] += len(partitions)
        if self._has[member_id] > self._each:
            self._more -= 1

    def near(self) -> None:
        """Give each member in turn partitions of its rack; a member without a known rack takes any."""
        for member_id, rack in self.consumers.items():
            fitting = (
                partition
                for partition, racks in zip(self.partitions, self.racks or (), strict=True)
                if partition not in self.owners and (not rack or rack in racks)
            )
            found = list(islice(fitting, self.room(member_id)))
            if found:
                self.give(member_id, found)

    def rest(self) -> None:
        """Give each member in turn the remaining partitions."""
        rest = iter([partition for partition in self.partitions if partition not in self.owners])
        for member_id in self.consumers:
            found = list(islice(rest, self.room(member_id)))
            if found:
                self.give(member_id, found)


def _near(topics: Sequence[_Topic]) -> None:
    """Assign by racks: topics of the same size with the same members together."""
    groups: dict[object, list[_Topic]] = defaultdict(list)
    for topic in topics:
        groups[tuple(topic.consumers.items()), len(topic.racks or ())].append(topic)
    for group in groups.values():
        if len(group) > 1:
            _near_together(group)
        elif group[0].racks_matter:
            group[0].near()


def _near_together(topics: Sequence[_Topic]) -> None:
    """Assign partitions of one number to one member that is in the rack of a replica of each.

    All these topics are assigned in the same way, so the first shows how much a member may have of each.
    """
    first = topics[0]
    remaining = dict(first.consumers)
    for number, racks in enumerate(zip(*(topic.racks or () for topic in topics), strict=True)):
        common = set.intersection(*racks)
        member_id = next((m for m, rack in remaining.items() if (not rack or rack in common) and first.room(m)), None)
        if member_id is None:
            continue
        for topic in topics:
            topic.give(member_id, [topic.partitions[number]])
        if not first.room(member_id):
            del remaining[member_id]


def round_robin(
    members: Collection[Subscriber],
    partitions: Collection[Partition],
    previous: Mapping[Partition, str] | None = None,  # noqa: ARG001 - not used by this strategy
) -> dict[Partition, str]:
    """Plan as RoundRobinAssignor ("roundrobin") does. Partitions of topics without a subscriber are left out.

    The plan is even if all members subscribe to the same topics. Otherwise the circle skips members that do not
    subscribe to a topic, and the numbers may differ widely.
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


def in_order(members: Iterable[Subscriber]) -> list[Subscriber]:
    """Sort members as Kafka's range and round robin do: static members by `group.instance.id`, then the others by id.

    A static member that restarts with another member id therefore keeps its place, and its partitions.
    """
    return sorted(members, key=lambda member: (member.instance_id is None, java_order(member.instance_id or member.id)))
