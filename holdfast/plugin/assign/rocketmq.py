"""RocketMQ's six strategies: what its own clients of these client ids would do."""

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
    """AllocateMessageQueueAveragely ("AVG"): what RocketMQ's own clients of these client ids would do; weights and the
    previous plan do not count.

    The first clients in order get one queue more, of each topic: with many topics they have more in all, and a client
    that comes or goes moves most queues of all others. For comparison, and for groups that rely on runs of queues.
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

    As uneven over several topics as "AVG", since each topic begins with the first client; a client that comes or goes
    moves as many queues or more.
    """
    ordered = [member.id for member in in_order(members)]
    return {
        queue: owner for found in by_topic(queues).values() for queue, owner in zip(found, cycle(ordered), strict=False)
    }


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


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """By client id, as RocketMQ's clients sort them. Two of one client id, which they cannot tell apart, by id."""
    return sorted(members, key=lambda member: (java_order(member.client_id), member.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoom:
    """AllocateMessageQueueByMachineRoom ("MACHINE_ROOM"): the queues of these rooms' brokers, shared among all clients.

    A broker says by its name where it is: `room@name`. **Queues of all other brokers are nobody's**: they are not read
    until the rooms are named. Weights and the previous plan do not count.

    Args:
        rooms: Java's consumeridcs.

    Raises:
        SettingError: there is no room, or one that no broker's name can say.
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
        previous: Mapping[Partition, str],  # noqa: ARG002 - it forgets
    ) -> dict[Partition, str]:
        """See `Strategy`."""
        ordered = [member.id for member in in_order(members)]
        owners: dict[Partition, str] = {}
        for found in by_topic(queue for queue in queues if self._reads(queue.broker)).values():
            each = len(found) // len(ordered)
            # A run for each, and what is left over one by one: not the runs of "AVG".
            runs, rest = found[: each * len(ordered)], found[each * len(ordered) :]
            owners |= {queue: ordered[i // each] for i, queue in enumerate(runs)}
            owners |= dict(zip(rest, ordered, strict=False))
        return owners

    def _reads(self, broker: str) -> bool:
        # As Java's split: empty parts at the end do not count.
        parts = broker.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoomNearby:
    """AllocateMachineRoomNearby ("MACHINE_ROOM_NEARBY-" and the inner one's name): the queues of a room to the clients
    in it; those of a room without clients to all.

    Args:
        broker_room: a broker's name -> its room, such as `lambda name: name.partition("@")[0]`.
        client_room: a client id -> its room. Client ids are address@instance name: let `instance_name` say where.
        inner: shares the queues of a room: one of RocketMQ's, or `sticky`, which is even in each room.

    Raises:
        SettingError: at construction; of the plan: there is a broker or a client whose room is empty or None.
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
        """Whether the inner one may."""
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
