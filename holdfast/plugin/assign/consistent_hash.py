"""RocketMQ's consistent hash: clients and queues on one ring."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.assign.topics import in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.dedup.groups import GroupMember
    from holdfast.records import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentHash:
    """AllocateMessageQueueConsistentHash ("CONSISTENT_HASH"): each client lies at `virtual_nodes` places of a ring, and
    a queue belongs to the first client from its own place on.

    A client that comes or goes moves only queues of its own, but how many a client has is left to chance: with ten
    places each, one often has twice as many as another, or none. Weights and the previous plan do not count.

    Args:
        virtual_nodes: places of a client; Java's default is 10.

    Raises:
        SettingError: there is no place at all.
    """

    virtual_nodes: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.virtual_nodes, bool) or self.virtual_nodes < 1:
            remedy = "give a whole number from 1 up: a client without a place on the ring gets nothing"
            raise SettingError("virtual_nodes", self.virtual_nodes, remedy)

    def __call__(
        self,
        members: Sequence[GroupMember],
        queues: Sequence[Partition],
        previous: Mapping[Partition, str],  # noqa: ARG002 - it forgets
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        ring: dict[int, str] = {}
        known: Counter[str] = Counter()
        for member in in_order(members):
            # Members of one client id share its name on the ring and go on counting, as Java does.
            for i in range(self.virtual_nodes):
                ring[_place(f"{member.client_id}-{known[member.client_id] + i}")] = member.id
            known[member.client_id] += self.virtual_nodes
        places = sorted(ring)
        owners = [ring[place] for place in places]
        owners.append(owners[0])
        return {queue: owners[bisect_left(places, _place(_as_java_prints(queue)))] for queue in queues}


def _place(name: str) -> int:
    """The first four bytes of its MD5. Java writes half a surrogate pair as a question mark."""
    digest = hashlib.md5(name.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _as_java_prints(queue: Partition) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.number}]"
