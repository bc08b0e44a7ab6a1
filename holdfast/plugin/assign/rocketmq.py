"""RocketMQ's six strategies: the same plans as RocketMQ's own clients with these client ids."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import cycle, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from holdfast.dedup.groups import leaves_out
from holdfast.errors import SettingError
from holdfast.plugin.assign.java import by_topic, java_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember, Strategy
    from holdfast.records import Partition


def average(
    members: Sequence[GroupMember],
    queues: Sequence[Partition],
    previous: Mapping[Partition, str],  # noqa: ARG001 - it forgets
) -> dict[Partition, str]:
    """AllocateMessageQueueAveragely ("AVG"): the plan of RocketMQ's own clients with these client ids. Weights and the
    previous plan do not count.

    The first clients in order get one queue more of each topic: with many topics they have more in all. A client that
    joins or leaves moves most queues of all others. For comparison, and for groups that rely on runs of queues.
    """
    ordered = in_order(members)
    owners: dict[Partition, str] = {}
    for found in by_topic(queues).values():
        each, more = divmod(len(found), len(ordered))
        rest = iter(found)
        for i, member in enumerate(ordered[: len(found)]):
            owners.update(dict.fromkeys(islice(rest, each + (i < more)), member.id))
    return owners


def by_circle(
    members: Sequence[GroupMember],
    queues: Sequence[Partition],
    previous: Mapping[Partition, str],  # noqa: ARG001 - it forgets
) -> dict[Partition, str]:
    """AllocateMessageQueueAveragelyByCircle ("AVG_BY_CIRCLE"): one queue after the other to one client after the other.

    As uneven over several topics as "AVG", since each topic begins with the first client. A client that joins or leaves
    moves as many queues or more.
    """
    ordered = [member.id for member in in_order(members)]
    return {
        queue: owner for found in by_topic(queues).values() for queue, owner in zip(found, cycle(ordered), strict=False)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentHash:
    """AllocateMessageQueueConsistentHash ("CONSISTENT_HASH"): each client has `virtual_nodes` points on a ring, and a
    queue belongs to the client of the first point from its own on.

    A client that joins or leaves moves only its own queues, but the numbers are random: with ten points each, a client
    often has twice as many queues as another, or none. Weights and the previous plan do not count.

    Args:
        virtual_nodes: points of each client; Java's default is 10.

    Raises:
        SettingError: there are no points.
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
        previous: Mapping[Partition, str],  # noqa: ARG002 - the plan does not depend on it
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        ring: dict[int, str] = {}
        numbered: Counter[str] = Counter()
        for member in in_order(members):
            # Members with the same client id share its name on the ring and continue the numbering, as in Java.
            for i in range(self.virtual_nodes):
                ring[_point(f"{member.client_id}-{numbered[member.client_id] + i}")] = member.id
            numbered[member.client_id] += self.virtual_nodes
        points = sorted(ring)
        owners = [ring[point] for point in points]
        owners.append(owners[0])  # behind the last point comes the first one again
        return {queue: owners[bisect_left(points, _point(_as_java_prints(queue)))] for queue in queues}


def _point(name: str) -> int:
    """A point on the ring: the first four bytes of the MD5. Java encodes a lone surrogate as a question mark."""
    digest = hashlib.md5(name.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _as_java_prints(queue: Partition) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.number}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByConfig:
    """AllocateMessageQueueByConfig ("CONFIG"): each client has the queues of its own list.

    **Queues in no list have no owner, nor have those of a client that is not running**: they are not read meanwhile. In
    Java each process has its own list, and two lists may have the same queue. Here all members get all lists, since one
    member makes the plan for all, and a queue is in one list only.

    Args:
        queues: client -> its queues, such as `{"shop-1": [Partition("orders", 0, "broker-a")]}`. A client is named by
            its `instance_name`, by "address@instance name", or by its whole client id, which differs at each start. If
            several running clients match a name, the first has the queues.

    Raises:
        SettingError: two clients have the same queue, or there is no queue at all.
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
        previous: Mapping[Partition, str],  # noqa: ARG002 - the lists alone decide
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
    """The names of a client id such as "10.0.0.7@shop-1#holdfast#9f86d081": the whole id, the part up to the first #,
    and the instance name alone."""
    place = client_id.partition("#")[0]
    return [client_id, place, place.partition("@")[2]]


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Sort by client id, as RocketMQ's clients do. Two members with the same client id are sorted by member id."""
    return sorted(members, key=lambda member: (java_order(member.client_id), member.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoom:
    """AllocateMessageQueueByMachineRoom ("MACHINE_ROOM"): the queues of these rooms' brokers, shared among all clients.

    A broker's name has its room: `room@name`. **Queues of all other brokers have no owner**: they are not read until
    their rooms are named. Weights and the previous plan do not count.

    Args:
        rooms: the rooms; Java's consumeridcs.

    Raises:
        SettingError: there is no room, or one that cannot be in a broker's name.
    """

    leaves_out: ClassVar[bool] = True

    rooms: Collection[str]

    def __post_init__(self) -> None:
        if isinstance(self.rooms, str) or not self.rooms:
            raise SettingError("rooms", self.rooms, 'give the rooms whose queues are read, such as {"hz1", "hz2"}')
        for room in self.rooms:
            if "@" in room:
                raise SettingError("rooms", room, "give what brokers' names say before their @")
        object.__setattr__(self, "rooms", frozenset(self.rooms))

    def __call__(
        self,
        members: Sequence[GroupMember],
        queues: Sequence[Partition],
        previous: Mapping[Partition, str],  # noqa: ARG002 - the plan does not depend on it
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        ordered = [member.id for member in in_order(members)]
        owners: dict[Partition, str] = {}
        for found in by_topic(queue for queue in queues if self._reads(queue.broker)).values():
            each = len(found) // len(ordered)
            # A run of queues for each client, and the remaining queues one by one: not the same runs as "AVG".
            runs, rest = found[: each * len(ordered)], found[each * len(ordered) :]
            owners |= {queue: ordered[i // each] for i, queue in enumerate(runs)}
            owners |= dict(zip(rest, ordered, strict=False))
        return owners

    def _reads(self, broker: str) -> bool:
        # Java's split drops empty parts at the end.
        parts = broker.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoomNearby:
    """AllocateMachineRoomNearby ("MACHINE_ROOM_NEARBY-" and the name of the inner strategy): the queues of a room go to
    the clients in it; those of a room without clients go to all clients.

    Args:
        broker_room: broker's name -> its room, such as `lambda name: name.partition("@")[0]`.
        client_room: client id -> its room. Client ids are address@instance name: put the room into `instance_name`.
        inner: assigns the queues of a room: one of RocketMQ's strategies, or `sticky`, which is even in each room.

    Raises:
        SettingError: at construction: an argument is no function; in a plan: a room is empty or None.
    """

    broker_room: Callable[[str], str | None]
    client_room: Callable[[str], str | None]
    inner: Strategy = average

    def __post_init__(self) -> None:
        for name in ("broker_room", "client_room", "inner"):
            if not callable(getattr(self, name)):
                raise SettingError(name, getattr(self, name), f"give {_EXPECTED[name]}")

    @property
    def leaves_out(self) -> bool:
        """Whether the inner strategy may leave queues without an owner."""
        return leaves_out(self.inner)

    def __call__(
        self, members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        clients: dict[str, list[GroupMember]] = defaultdict(list)
        for member in members:
            clients[self._room("client_room", member.client_id)].append(member)
        rooms: dict[str, list[Partition]] = defaultdict(list)
        brokers = sorted({queue.broker for queue in queues})
        room_of = {broker: self._room("broker_room", broker) for broker in brokers}
        for queue in queues:
            rooms[room_of[queue.broker]].append(queue)
        owners: dict[Partition, str] = {}
        for room in sorted(rooms, key=java_order):
            owners.update(self.inner(clients.get(room, members), rooms[room], previous))
        return owners

    def _room(self, by: str, name: str) -> str:
        room = (self.client_room if by == "client_room" else self.broker_room)(name)
        if not room:
            raise SettingError(by, room, f"name the machine room of {name!r}: nobody knows who is near to it")
        return room


_EXPECTED = {
    "broker_room": 'a function from a broker\'s name to its room, such as lambda name: name.partition("@")[0]',
    "client_room": "a function from a client id to its room",
    "inner": "a function like those in holdfast.plugin.assign",
}
