"""Members and partitions by racks: who reads from a replica beside it."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.records import Partition


class Near:
    """Where members run, and where replicas are.

    Args:
        members: id -> rack, of those who know theirs.
        replicas: partition -> the racks of its replicas.
    """

    def __init__(self, members: Mapping[str, str], replicas: Mapping[Partition, Collection[str]]) -> None:
        self._members, self._replicas = members, replicas

    def far(self, member_id: str, partition: Partition) -> bool:
        """Whether none of its replicas is in the member's rack. Who does not know its own is near to all."""
        rack = self._members.get(member_id)
        return rack is not None and rack not in self._replicas.get(partition, ())

    def matches(self, partitions: Iterable[Partition], room: Mapping[str, int]) -> list[tuple[Partition, str]]:
        """Partitions with members beside them that have room; one by one, without looking for the very best.

        First those with the least room beside them; each into the rack with the most of it, there in a circle.
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
