"""RocketMQ's two strategies for brokers and clients in several machine rooms."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.dedup.groups import leaves_out
from holdfast.errors import SettingError
from holdfast.plugin.assign.average import average
from holdfast.plugin.assign.java import java_order
from holdfast.plugin.assign.topics import by_topic, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember, Strategy
    from holdfast.records import Partition


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
