"""RocketMQ's fixed assignment."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from holdfast.errors import SettingError
from holdfast.plugin.assign.topics import in_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember
    from holdfast.records import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ByConfig:
    """AllocateMessageQueueByConfig ("CONFIG"): each client has the queues of its own list.

    **Queues of no list are nobody's, and so are those of a client that is not there**: nothing is read of them
    meanwhile. In Java each process has a list of its own, and two lists may name the same queue; here all members are
    given all lists, since whoever makes the plan makes it for all, and a queue is in one of them.

    Args:
        queues: a client -> its queues, such as `{"shop-1": [Partition("orders", 0, "broker-a")]}`. A client is named by
            its `instance_name`, by "address@instance name", or by its whole client id, which is another one at each
            start. Of several that are there by one name, the first has them.

    Raises:
        SettingError: two clients have the same queue, or nobody has any.
    """

    leaves_out: ClassVar[bool] = True

    queues: Mapping[str, Collection[Partition]]

    def __post_init__(self) -> None:
        owners: dict[Partition, str] = {}
        for client, queues in self.queues.items():
            for queue in queues:
                if owners.setdefault(queue, client) != client:
                    remedy = f"{owners[queue]!r} and {client!r} both have it: leave it to one of them"
                    raise SettingError("queues", queue, remedy)
        if not owners:
            raise SettingError("queues", self.queues, "give a list of queues for each client id")
        frozen = {client: frozenset(queues) for client, queues in self.queues.items()}
        object.__setattr__(self, "queues", MappingProxyType(frozen))

    def __call__(
        self,
        members: Sequence[GroupMember],
        queues: Sequence[Partition],
        previous: Mapping[Partition, str],  # noqa: ARG002 - it goes by its lists
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        there = {*queues}
        ids: dict[str, str] = {}
        for member in in_order(members):
            for name in _names(member.client_id):
                ids.setdefault(name, member.id)
        return {
            queue: ids[client]
            for client, listed in self.queues.items()
            if client in ids
            for queue in listed
            if queue in there
        }


def _names(client_id: str) -> list[str]:
    """Of "10.0.0.7@shop-1#holdfast#9f86d081": all of it, up to the first #, and the instance name alone."""
    place = client_id.partition("#")[0]
    return [client_id, place, place.partition("@")[2]]
