"""A group's members restarted one after the other on paper, with the plans that Kafka would make. Pure.

What is taken from the real thing (Kafka 4.3.1, kafka-clients 4.3.1; the tests play it through): a dynamic member leaves
when it stops; a static one comes back unheard, unless the vote over strategies comes out differently with it; eager
members say of nothing that they have it, and give up all at each rebalance; cooperative ones hand over in two rounds;
the consumer protocol begins with what everybody has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.errors import SettingError
from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.sticky import sticky
from holdfast.tools.movement import Movement, movement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.plugin.assign.members import Subscriber
    from holdfast.records import Partition

    Plan = Mapping[Partition, str]

#: How a member takes part: with eager strategies alone, with the cooperative one first and an eager one after it, with
#: the cooperative one alone, or in the consumer protocol.
Mode = Literal["eager", "both", "cooperative", "consumer"]

_MODES: Mapping[str, Mode] = {
    "range": "eager",
    "roundrobin": "eager",
    "sticky": "eager",
    "cooperative-sticky": "cooperative",
    "uniform": "consumer",
}
_COOPERATIVE = "cooperative-sticky"


def mode_of(assignor: str) -> Mode:
    """How the members of a group take part that uses it. Raises SettingError: it is not one of Kafka's own."""
    if assignor not in _MODES:
        raise SettingError(
            "assignor", assignor, f"use one of {', '.join(_MODES)}; the moves of others cannot be predicted"
        )
    return _MODES[assignor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Living:
    """A group as it is."""

    members: tuple[Subscriber, ...]
    #: All partitions of the subscribed topics.
    partitions: frozenset[Partition]
    plan: Plan
    #: The one in use: "range", "roundrobin", "sticky", "cooperative-sticky", "uniform".
    assignor: str = "range"
    #: Where the replicas of each partition are, as far as known.
    racks: Mapping[Partition, Collection[str]] = field(default_factory=dict)


class Rebalance(NamedTuple):
    """The effect of one rebalance."""

    movement: Movement
    #: Partitions that stand still for it though they stay with their owner.
    held_up: int


class Restart(NamedTuple):
    """One member stops, and comes back in another mode. None = nobody hears of it, and nothing moves."""

    member: str
    away: Rebalance | None
    back: Rebalance | None

    @property
    def moved(self) -> int:
        """Partitions that change hands, there and back."""
        return sum(len(each.movement.moves) for each in (self.away, self.back) if each is not None)

    @property
    def held_up(self) -> int:
        """Partitions that stand still for nothing, there and back."""
        return sum(each.held_up for each in (self.away, self.back) if each is not None)


class Rehearsal:
    """One group on paper. A member that comes back is still called as before."""

    def __init__(self, living: Living) -> None:
        mode = mode_of(living.assignor)
        self._members = {member.id: member for member in living.members}
        self._modes: dict[str, Mode] = dict.fromkeys(self._members, mode)
        self._partitions, self._racks = living.partitions, living.racks
        self._eager = living.assignor if mode == "eager" else "range"
        self.plan: Plan = {partition: owner for partition, owner in living.plan.items() if owner in self._members}

    @property
    def order(self) -> list[str]:
        """The members, in the order in which they restart."""
        return sorted(self._members)

    def all_are(self, mode: Mode) -> None:
        """Whether every member is known to be in this mode."""
        self._modes = dict.fromkeys(self._members, mode)

    def restart(self, member: str, mode: Mode) -> Restart:
        """Stop it, and start it in another mode."""
        if self._members[member].instance_id is None:
            others = {each: found for each, found in self._modes.items() if each != member}
            away = self._rebalance(others)
            return Restart(member, away, self._rebalance({**others, member: mode}))
        before = self._strategy()
        self._modes[member] = mode
        # A static member that comes back gets what it had, and the others are asked only if another strategy is used.
        changed = self._strategy() not in (before, "uniform")
        return Restart(member, None, self._rebalance(self._modes, back=member) if changed else None)

    def all_anew(self, mode: Mode) -> Restart:
        """Stop all, and start all."""
        before, everybody = self.plan, [*self._members.values()]
        self.all_are(mode)
        self.plan = self._made({})
        found = movement(before, self.plan, had=everybody, has=everybody)
        return Restart("all", None, Rebalance(found, found.stayed))

    def _rebalance(self, modes: dict[str, Mode], back: str = "") -> Rebalance:
        """Make these the members. `back`: has just come back to its partitions; nobody held these up but itself."""
        before, had = self.plan, self._present()
        self._modes = modes
        self.plan = self._made({partition: owner for partition, owner in before.items() if owner in modes})
        return Rebalance(movement(before, self.plan, had=had, has=self._present()), self._held_up(before, back))

    def _present(self) -> list[Subscriber]:
        return [self._members[member] for member in sorted(self._modes)]

    def _made(self, owned: Plan) -> Plan:
        """The next plan. `owned`: by members that are there."""
        members = self._present()
        if not members:
            return {}
        match self._strategy():
            case "range":
                return range_(members, self._partitions, racks=self._racks)
            case "roundrobin":
                return round_robin(members, self._partitions)
            case "uniform" | "sticky":
                return sticky(members, self._partitions, owned, racks=self._racks)
        while True:
            # Two rounds: what a member is to give up is nobody's until it has.
            said = {partition: owner for partition, owner in owned.items() if self._modes[owner] == "cooperative"}
            target = sticky(members, self._partitions, said, racks=self._racks)
            owned = {partition: owner for partition, owner in target.items() if said.get(partition, owner) == owner}
            if len(owned) == len(target):
                return owned

    def _strategy(self) -> str:
        """The strategy on which the members agree: each votes for the first in its list that all have."""
        modes = Counter(self._modes.values())
        if modes["consumer"]:
            return "uniform"
        return self._eager if modes["eager"] else _COOPERATIVE

    def _held_up(self, before: Plan, back: str) -> int:
        """How many partitions eager members give up and get back."""
        eager = {member for member, mode in self._modes.items() if mode in ("eager", "both") and member != back}
        kept = Counter(owner for partition, owner in self.plan.items() if before.get(partition) == owner)
        had, has = Counter(before.values()), Counter(self.plan.values())
        if self._strategy() == "uniform":  # members that keep all their partitions give none up
            eager = {member for member in eager if not kept[member] == had[member] == has[member]}
        return sum(kept[member] for member in eager)
