"""A live look at a consumer group from the side, of either broker: what it shows, and the seam that each brings.

Nothing joins the group, and nothing is changed. None says that the broker does not tell, and never means zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.plugin.retrying.keeping import Keeping
    from holdfast.records import Partition
    from holdfast.timing import Deadline


class Node(NamedTuple):
    """A broker."""

    name: str  #: Kafka: the node's number; RocketMQ: the broker's name
    address: str  #: host:port


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member as the broker, or the group's coordinator in the store, sees it."""

    #: Kafka: the member id; RocketMQ: the client id, or the coordinator's id of a member that holdfast coordinates.
    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack: str = ""
    #: "classic" and "consumer" (Kafka); "remoting" (RocketMQ's own clients), "holdfast" (in the store's plan).
    protocol: Literal["classic", "consumer", "remoting", "holdfast"]
    #: What it subscribes to.
    topics: frozenset[str] | None = None
    #: RocketMQ: the same with each topic's expression.
    expressions: Mapping[str, str] | None = None
    #: What it has. None while a classic group rebalances: then a broker does not tell.
    partitions: frozenset[Partition] | None = None
    #: What it is to have, where that is told beside what it has: the consumer protocol, and a plan in the store.
    target: frozenset[Partition] | None = None
    #: The assignors that it knows, its favourite first. No broker tells those of a classic group's members, but for the
    #: one that was chosen.
    assignors: tuple[str, ...] | None = None
    #: The consumer protocol: behind the group's = it has yet to give up or to take something.
    epoch: int | None = None
    weight: int = 1
    #: Of a member that holdfast coordinates: until its lease ends; 0 = dead and not yet removed.
    lease_left_s: float | None = None
    #: RocketMQ: how many connections of this client id the broker has that has the most of them; a process has one.
    connections: int = 1
    #: The client library, as far as it says: "JAVA", "CPP"; "" = not told.
    client: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition as far as the group is concerned. Offsets are the next to read."""

    partition: Partition
    #: The group's; None = it has never committed here, or the offset has expired (and `fault` is empty).
    committed: int | None = None
    #: Where the group goes on by the store, held against `committed`; None = no store was asked, or it knows nothing.
    position: int | None = None
    #: The log's beginning and end. None = not told; see `fault`.
    first: int | None = None
    end: int | None = None
    #: None = it has none now.
    leader: Node | None = None
    #: Kafka: where its replicas are (broker.rack), as far as brokers say.
    racks: frozenset[str] = frozenset()
    #: False: the group has an offset, and there is no such topic or partition any more.
    exists: bool = True
    #: RocketMQ: messages are given out one by one (POP), as to gRPC clients. The offset then moves when one is given
    #: out, not when it is handled, and what is in hand counts nowhere.
    given_out: bool = False
    #: RocketMQ: when the last message before the group's offset was stored, in ms since 1970.
    read_up_to_ms: int | None = None
    #: Why something is not known; "" = everything is. For people.
    fault: str = ""

    @property
    def lag(self) -> int | None:
        """Records to read, at most: logs may have gaps. What the log has lost already does not count.

        None = nobody can say: the end is not known, there is no offset to count from, the log has not reached it
        (`beyond`), or it says nothing (`given_out`). Where the log has nothing, there is nothing to read: 0, with or
        without an offset.
        """
        at = self.at
        if at is None and self.end is not None and self.first == self.end:
            return 0
        if at is None or self.end is None or self.beyond or self.given_out:
            return None
        return self.end - min(max(at, self.first or 0), self.end)

    @property
    def at(self) -> int | None:
        """Where the group goes on, as far as is known: by the store, else as committed."""
        return self.committed if self.position is None else self.position

    @property
    def beyond(self) -> bool:
        """Whether the group's offset lies behind the log's end: the topic was made again, or has lost records."""
        return self.at is not None and self.end is not None and self.at > self.end

    @property
    def lost(self) -> int:
        """Records that the log has dropped before the group has read them (retention)."""
        if self.at is None or self.first is None:
            return 0
        return max(self.first - self.at, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment; what comes of several questions may be some milliseconds apart."""

    kind: Literal["kafka", "rocketmq"]
    group: str
    #: Kafka's word for it, in small letters: "stable", "empty", "preparing rebalance", "completing rebalance" and, of
    #: the consumer protocol, "assigning", "reconciling". RocketMQ: "stable" or "empty"; with a coordinator in the
    #: store, "rebalancing" while the plan is not for these members and queues.
    state: str
    #: How partitions are handed out: Kafka "classic" or "consumer"; RocketMQ "remoting" (each client by itself) or
    #: "holdfast" (a plan in the store). "" = not told: a group without members may be of either.
    protocol: Literal["", "classic", "consumer", "remoting", "holdfast"]
    #: Kafka: the one in use ("range", "cooperative-sticky", "uniform", ...). None = not told, or none now.
    assignor: str | None = None
    #: Rises with each rebalance: a classic group's generation, a group epoch, the plan's generation.
    generation: int | None = None
    #: Kafka: of the group; RocketMQ has none.
    coordinator: Node | None = None
    #: Kafka: the group's partition of `__consumer_offsets` by its name's hash, and who leads that partition.
    offsets_partition: int | None = None
    offsets_leader: Node | None = None
    #: Kafka: for how long the broker keeps offsets that are not renewed, asked where there are such. None = not told.
    offsets_retention_s: float | None = None
    members: tuple[MemberView, ...] = ()
    #: Of all topics that a member subscribes to or has, and of all in which the group has an offset.
    partitions: Mapping[Partition, PartitionView] = field(default_factory=dict)
    #: Topics of the group whose partitions cannot be told, and why: this user may not describe them, say.
    unseen: Mapping[str, str] = field(default_factory=dict)
    #: Kafka: how the group's retry topics keep their records, as far as they are known by their names.
    keeping: Mapping[str, Keeping] = field(default_factory=dict)
    #: What could not be found out, a sentence each, for people.
    notes: tuple[str, ...] = ()

    @property
    def not_known(self) -> list[str]:
        """The facts that could not be found out: the notes, and the topics that cannot be described. For people."""
        return [*self.notes, *(f"{topic}: {why}" for topic, why in self.unseen.items())]

    @property
    def rebalancing(self) -> bool:
        """Whether it is under way: what members have may change at any moment."""
        return self.state not in ("stable", "empty")

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are read or were."""
        return frozenset(partition.topic for partition in self.partitions)

    def only(self, topics: Collection[str]) -> GroupView:
        """This view with the partitions of these topics alone; none = all."""
        if not topics:
            return self
        return replace(self, partitions={each: one for each, one in self.partitions.items() if each.topic in topics})

    @property
    def owners(self) -> Mapping[Partition, MemberView]:
        """The owner of each partition, as far as told."""
        return {partition: member for member in self.members for partition in member.partitions or ()}


class GroupViews(Protocol):
    """Looks at a group. One thread; nothing joins. Every call ends with its deadline."""

    @property
    def group(self) -> str:
        """The group's name."""
        ...

    def view(self, deadline: Deadline, *, topics: Collection[str] = ()) -> GroupView:
        """The group now.

        Args:
            deadline: of the whole look.
            topics: to be shown too, though the group may have nothing to do with them yet.

        Raises:
            UnknownGroup: there is no such group.
            SourceUnavailable: no answer.
            NotAuthorised: the broker refuses the credentials, or the group or one of its topics may not be described.
            SourceError: anything else that the broker refuses; UnknownTopic for one of `topics`.
        """
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...
