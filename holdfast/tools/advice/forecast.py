"""The forecast of a rebalance: members that join or leave, topics that grow, another assignor. Pure.

The arithmetic is that of plugin/assign; here is what it is given, and what can be relied on. START HERE: `forecast`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from holdfast.dedup.groups import GroupMember
from holdfast.errors import SettingError
from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.names import strategy_of
from holdfast.plugin.assign.sticky import sticky
from holdfast.records import Partition
from holdfast.tools.movement import movement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.assign.members import Subscriber
    from holdfast.tools.movement import Movement

#: What a forecast is worth.
EXACT: Final = "exact, as the group computes the same"
NUMBERS: Final = "counts are exact; which partitions move is an estimate"
ESTIMATE: Final = "an estimate, since the broker or client that computes the assignment considers more"

#: Kafka's, by the names that members list, and the broker's own ("uniform", "range" of the consumer protocol).
KAFKA: Final = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")
_NUMBERED: Final = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as a rebalance finds it."""

    kind: Literal["kafka", "rocketmq"]
    #: Kafka: "classic" or "consumer"; RocketMQ: "remoting" or "holdfast".
    protocol: Literal["classic", "consumer", "remoting", "holdfast"]
    assignor: str
    members: tuple[Subscriber, ...]
    partitions: tuple[Partition, ...]
    #: Partition -> member id, of what members have now.
    owners: Mapping[Partition, str] = field(default_factory=dict)
    #: RocketMQ: member id -> client id, where they differ: its strategies go by client ids.
    clients: Mapping[str, str] = field(default_factory=dict)
    #: Kafka: the racks of each partition's replicas, as far as known.
    racks: Mapping[Partition, Collection[str]] = field(default_factory=dict)

    def with_owners(self, owners: Mapping[Partition, str]) -> Group:
        """This group, its partitions owned so."""
        return replace(self, owners=owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a group that is to be forecast."""

    join: tuple[Subscriber, ...] = ()
    #: Member ids.
    leave: frozenset[str] = frozenset()
    #: Topic -> its partitions afterwards (Kafka), or its queues on each broker (RocketMQ).
    grow: Mapping[str, int] = field(default_factory=dict)
    #: None = the group's.
    assignor: str | None = None

    def with_assignor(self, assignor: str) -> Change:
        """This change, with that assignor for the group."""
        return replace(self, assignor=assignor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The outcome of a change."""

    before: Mapping[Partition, str]
    after: Mapping[Partition, str]
    had: tuple[Subscriber, ...]
    has: tuple[Subscriber, ...]
    #: All that the group reads afterwards, with those that are nobody's.
    partitions: tuple[Partition, ...]
    movement: Movement
    assignor: str
    #: EXACT, NUMBERS or ESTIMATE.
    worth: str
    #: What else to know, a sentence each.
    notes: tuple[str, ...]
    #: Partitions that nobody works on while the change goes on, of those that somebody had: eager assignors take all
    #: away from everybody. RocketMQ's own clients pause nothing, and repeat instead.
    paused: int


def forecast(group: Group, change: Change) -> Forecast:
    """Forecast the group as it is when the change is through.

    Raises:
        SettingError: an assignor that is not known, a member that joins twice or does not exist, a topic that shrinks.
    """
    notes: list[str] = []
    has = _members(group, change)
    partitions = _partitions(group, change.grow)
    assignor = change.assignor or group.assignor
    then = replace(group, assignor=assignor, members=has, partitions=partitions)
    after = assigned(then)
    move = movement(group.owners, after, had=group.members, has=has)
    if change.assignor is None and group.owners and not _is_made_by(group):
        notes.append(f"{group.assignor} would not assign the partitions as they are now: some move in any case")
    if change.join and _goes_by_ids(group, assignor):
        notes.append(
            "the assignor goes through the members in the order of their ids, which begin with their client ids; the "
            "forecast takes the client ids shown here for new members (--join sets others)"
        )
    if group.protocol == "remoting" and move.moved:
        notes.append("RocketMQ's own clients hand nothing over: messages in progress of the queues that move run again")
    return Forecast(
        before=group.owners,
        after=after,
        had=group.members,
        has=has,
        partitions=partitions,
        movement=move,
        assignor=assignor,
        worth=_worth(then, assignor, joins=bool(change.join)),
        notes=tuple(notes),
        paused=_paused(group, assignor, move),
    )


def assigned(group: Group) -> dict[Partition, str]:
    """The plan of the group's assignor. Raises SettingError."""
    if not group.members:
        return {}
    if group.kind == "rocketmq":
        members = [GroupMember(each.id, group.clients.get(each.id, each.id), each.weight) for each in group.members]
        return dict(strategy_of(group.assignor)(members, list(group.partitions), group.owners))
    if group.assignor == "range":
        return range_(group.members, group.partitions, group.owners, racks=group.racks)
    if group.assignor == "roundrobin":
        return round_robin(group.members, group.partitions, group.owners)
    if group.assignor in ("sticky", "cooperative-sticky", "uniform"):
        return sticky(group.members, group.partitions, group.owners, racks=group.racks)
    raise SettingError("assignor", group.assignor, f"use one of {', '.join(KAFKA)}")


def next_names(known: Sequence[str], count: int) -> list[str]:
    """The names that new members would get: till-3 after till-1 and till-2."""
    found = [_NUMBERED.fullmatch(name) for name in known]
    prefixes = {each[1] for each in found if each is not None}
    if known and all(found) and len(prefixes) == 1:
        [prefix] = prefixes
        last = max(int(each[2]) for each in found if each is not None)
    else:
        prefix, last = "joining-", 0
    return [f"{prefix}{number}" for number in range(last + 1, last + 1 + count)]


def usual_topics(members: Collection[Subscriber]) -> frozenset[str]:
    """The topics that most members subscribe to; of equals, the larger set."""
    counted = Counter(member.topics for member in members)
    return max(counted, key=lambda topics: (counted[topics], len(topics), sorted(topics)), default=frozenset())


def _members(group: Group, change: Change) -> tuple[Subscriber, ...]:
    here = {member.id for member in group.members}
    if strangers := change.leave - here:
        raise SettingError("leave", min(strangers), "the group has no such member")
    if twice := here & {member.id for member in change.join}:
        raise SettingError("join", min(twice), "the group already has a member with this name: use another one")
    return (*(member for member in group.members if member.id not in change.leave), *change.join)


def _partitions(group: Group, grow: Mapping[str, int]) -> tuple[Partition, ...]:
    found = set(group.partitions)
    for topic, count in grow.items():
        here = [each for each in group.partitions if each.topic == topic]
        if not here:
            raise SettingError("grow", topic, "the group does not read this topic")
        if count <= max(each.number for each in here) + 1:
            raise SettingError(
                "grow",
                f"{topic}={count}",
                f"it already has {max(each.number for each in here) + 1}: use a higher number",
            )
        found |= {Partition(topic, number, each.broker) for each in here for number in range(count)}
    return tuple(sorted(found))


def _is_made_by(group: Group) -> bool:
    """Whether an assignor that remembers nothing would leave everything where it is."""
    return not _forgets(group, group.assignor) or assigned(group) == dict(group.owners)


def _paused(group: Group, assignor: str, move: Movement) -> int:
    if group.protocol == "remoting":
        return 0
    if group.protocol == "classic" and assignor != "cooperative-sticky":
        return len(group.owners)
    return sum(each.source is not None for each in move.moves)


def _forgets(group: Group, assignor: str) -> bool:
    if group.kind == "kafka":
        return group.protocol == "classic" and assignor in ("range", "roundrobin")
    return assignor != "sticky"


def _goes_by_ids(group: Group, assignor: str) -> bool:
    return _forgets(group, assignor)


def _worth(group: Group, assignor: str, *, joins: bool) -> str:
    if _forgets(group, assignor):
        return EXACT
    if group.kind == "rocketmq":
        if group.protocol == "remoting":
            return ESTIMATE
        return NUMBERS if joins else EXACT  # among equals the ids decide, and new ones end in something random
    same = len({member.topics for member in group.members}) <= 1
    # For a rack's sake Kafka moves more than evenness asks for.
    racked = bool(group.racks) and any(member.rack for member in group.members)
    if group.protocol == "consumer" and assignor != "uniform":
        return ESTIMATE
    return NUMBERS if same and not racked else ESTIMATE
