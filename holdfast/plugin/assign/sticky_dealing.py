"""Chooses each member's partitions, once their numbers are known: few moves, topics spread evenly, near replicas."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.records import Partition


class Dealing:
    """Assigns the topics to which the same members subscribe.

    Args:
        weights: member -> weight, for members that have or get partitions; in the order of dealing.
        topics: topic -> its partitions.
        previous: partition -> former owner. Partitions of other members count as without an owner.
        near: the racks, if they are known.
    """

    def __init__(
        self,
        weights: Mapping[str, int],
        topics: Mapping[str, list[Partition]],
        previous: Mapping[Partition, str],
        near: Near | None = None,
    ) -> None:
        self._weights = weights
        self._weight = sum(weights.values())
        self._topics = topics
        self._near = near
        self._owners: dict[Partition, str] = {}
        #: Topic -> partitions without an owner.
        self._pool: dict[str, list[Partition]] = {}
        for topic, partitions in topics.items():
            pool = self._pool[topic] = []
            for partition in partitions:
                owner = previous.get(partition)
                if owner is not None and owner in weights:
                    self._owners[partition] = owner
                else:
                    pool.append(partition)
        counts = Counter(self._owners.values())
        self.sizes = {member_id: counts[member_id] for member_id in weights}
        #: Member whose size changes -> topic -> its partitions, in order.
        self._has: dict[str, dict[str, list[Partition]]] = {}

    def deal(self, shares: Mapping[str, int]) -> dict[Partition, str]:
        """Give each member its share: members with more give up partitions, members with less get them. No other
        partition moves."""
        self._has = {member_id: {} for member_id, share in shares.items() if share != self.sizes[member_id]}
        # Usually few members change; partitions of the others are not touched.
        for partition, owner in self._owners.items():
            if owner in self._has:
                self._has[owner].setdefault(partition.topic, []).append(partition)
        for member_id, share in shares.items():
            if self.sizes[member_id] > share and self._near:
                self._give_up_far(self._near, member_id, share)
            if self.sizes[member_id] > share:
                self._give_up(member_id, self.sizes[member_id] - share)
        room = {member_id: share - self.sizes[member_id] for member_id, share in shares.items()}
        if self._near:
            self._give_near(self._near, room)
        self._give(room)
        return self._owners

    def _give_up(self, member_id: str, count: int) -> None:
        """Give up partitions of those topics of which the member has most above its share."""
        has, weight = self._has[member_id], self._weights[member_id]

        def standing(topic: str) -> tuple[int, float, str]:
            size = len(self._topics[topic])
            # Among equals, the topic of which others have given up least, so that a new member gets some of each.
            return size * weight - len(has[topic]) * self._weight, len(self._pool[topic]) / size, topic

        heap = [standing(topic) for topic, partitions in has.items() if partitions]
        heapq.heapify(heap)
        self.sizes[member_id] -= count
        for _ in range(count):
            topic = heap[0][2]
            self._pool[topic].append(has[topic].pop())
            if has[topic]:
                heapq.heapreplace(heap, standing(topic))
            else:
                heapq.heappop(heap)

    def _give_up_far(self, near: Near, member_id: str, share: int) -> None:
        """Give up partitions without a replica in the member's rack first."""
        for topic, partitions in self._has[member_id].items():
            far = [each for each in partitions if near.far(member_id, each)][: self.sizes[member_id] - share]
            self._pool[topic] += far
            partitions[:] = [each for each in partitions if each not in far]
            self.sizes[member_id] -= len(far)

    def _give_near(self, near: Near, room: dict[str, int]) -> None:
        """Give partitions to members in the rack of a replica first."""
        matches = near.matches([each for partitions in self._pool.values() for each in partitions], room)
        for partition, member_id in matches:
            self._owners[partition] = member_id
            self._has[member_id].setdefault(partition.topic, []).append(partition)
            room[member_id] -= 1
        taken = {partition for partition, _ in matches}
        for partitions in self._pool.values():
            partitions[:] = [each for each in partitions if each not in taken]

    def _give(self, room: dict[str, int]) -> None:
        """Give one by one, in a circle that continues from topic to topic and skips members that have enough of a
        topic."""
        circle = [member_id for member_id in self._weights if room[member_id] > 0]
        after = dict(pairwise([*circle, *circle[:1]]))
        last = circle[-1] if circle else ""
        for topic, partitions in self._pool.items():
            level, passed = 1, 0
            counts: dict[str, int] = {}
            for partition in partitions:
                while True:
                    member_id = after[last]
                    count = counts.get(member_id)
                    if count is None:
                        count = len(self._has[member_id].get(topic, ()))
                    if count < level * self._weights[member_id]:
                        break
                    last, passed = member_id, passed + 1
                    if passed >= len(after):
                        level, passed = level + 1, 0
                self._owners[partition] = member_id
                counts[member_id] = count + 1
                passed = 0
                room[member_id] -= 1
                if room[member_id]:
                    last = member_id
                else:
                    after[last] = after.pop(member_id)


class Near:
    """The racks of members and replicas.

    Args:
        members: member id -> rack, for members whose rack is known.
        replicas: partition -> the racks of its replicas.
    """

    def __init__(self, members: Mapping[str, str], replicas: Mapping[Partition, Collection[str]]) -> None:
        self._members, self._replicas = members, replicas

    def far(self, member_id: str, partition: Partition) -> bool:
        """Whether no replica is in the member's rack. A member without a known rack is near to all."""
        rack = self._members.get(member_id)
        return rack is not None and rack not in self._replicas.get(partition, ())

    def matches(self, partitions: Iterable[Partition], room: Mapping[str, int]) -> list[tuple[Partition, str]]:
        """Match partitions with members that have room in the rack of a replica; greedy, without a search for the
        optimum.

        Partitions with the least room near them come first. Each goes to the rack with the most room, in a circle
        there.
        """
        waiting: dict[str, deque[str]] = defaultdict(deque)
        free: dict[str, int] = defaultdict(int)
        left = dict(room)
        for member_id, rack in self._members.items():
            if left.get(member_id, 0) > 0:
                waiting[rack].append(member_id)
                free[rack] += left[member_id]
        beside = {each: sorted({*self._replicas.get(each, ())} & free.keys()) for each in partitions}
        found = []
        for partition in sorted(beside, key=lambda partition: sum(free[rack] for rack in beside[partition])):
            racks = [rack for rack in beside[partition] if free[rack]]
            if not racks:
                continue
            rack = max(racks, key=free.__getitem__)
            member_id = waiting[rack].popleft()
            found.append((partition, member_id))
            free[rack] -= 1
            left[member_id] -= 1
            if left[member_id]:
                waiting[rack].append(member_id)
        return found
