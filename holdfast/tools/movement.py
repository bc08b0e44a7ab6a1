"""The moves of a new plan, from whom to whom, and how even it is before and after; in numbers and in words."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.plugin.assign.members import Weighed
    from holdfast.records import Partition

#: How much of a list is told in words; the rest is a number.
_TOLD = 8


class Move(NamedTuple):
    """A partition that changes hands."""

    partition: Partition
    source: str | None  #: None = nobody had it: it is new, or was left out
    target: str | None  #: None = nobody gets it


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many partitions each member has in one plan."""

    #: Member -> partitions, in the order of members' ids; 0 = idle.
    sizes: Mapping[str, int]
    #: Member -> what it would have if partitions could be divided: its part of all of them, by weight.
    shares: Mapping[str, float]

    @property
    def total(self) -> int:
        """All partitions that somebody has."""
        return sum(self.sizes.values())

    @property
    def idle(self) -> Sequence[str]:
        """Members that have nothing."""
        return [member for member, size in self.sizes.items() if not size]

    @property
    def spread(self) -> float:
        """From who is furthest below its share to who is furthest above. With equal weights: the largest number of
        partitions less the smallest; then 0 and 1 are as even as can be."""
        apart = [size - self.shares[member] for member, size in self.sizes.items()]
        return round(max(apart) - min(apart), 9) if apart else 0.0

    @property
    def even(self) -> bool:
        """Whether each member has its share, rounded up or down. Members that subscribe to different topics, or that
        are kept to machine rooms, may have no plan like that."""
        return all(abs(size - self.shares[member]) < 1 for member, size in self.sizes.items())

    def describe(self, names: Mapping[str, str] | None = None) -> str:
        """One sentence without a full stop, such as "2 members have 3 to 5 partitions (a 5, b 3): 2 apart".

        Where weights differ, with what each would have by weight: "a 5 of 5.333".
        """
        if not self.sizes:
            return "there is no member"
        least, most = min(self.sizes.values()), max(self.sizes.values())
        numbers = _count(most, "partition") if least == most else f"{least} to {_count(most, 'partition')}"
        each = " each" if least == most and len(self.sizes) > 1 else ""
        who = "1 member has" if len(self.sizes) == 1 else f"{len(self.sizes)} members have"
        text = f"{who} {numbers}{each} ({self._listed(names)})"
        if self.idle:
            text += f", {len(self.idle)} of them idle"
        return text + (": as even as can be" if self.even else f": {self.spread:.4g} apart")

    def _listed(self, names: Mapping[str, str] | None) -> str:
        """Each member's; of many, who has most and who has least."""
        told, skipped = [*self.sizes], 0
        if len(told) > _TOLD:
            told.sort(key=lambda member: -self.sizes[member])
            skipped = len(told) - _TOLD + 1
            del told[_TOLD // 2 : -(_TOLD // 2 - 1)]
        words = [f"{_name(member, names)} {self.sizes[member]}" for member in told]
        if len({*self.shares.values()}) > 1:
            words = [f"{said} of {self.shares[member]:.4g}" for said, member in zip(words, told, strict=True)]
        if skipped:
            words.insert(_TOLD // 2, f"{skipped} more")
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """From one plan to the next. Made by `movement`."""

    #: All that changes hands, by topic, broker and number.
    moves: Sequence[Move]
    #: How many partitions keep their owner.
    stayed: int
    #: Members of the second plan's group alone, and of the first's alone.
    joined: Sequence[str]
    left: Sequence[str]
    before: Load
    after: Load

    @property
    def moved(self) -> Sequence[Move]:
        """From one member to another."""
        return [move for move in self.moves if move.source is not None and move.target is not None]

    @property
    def begun(self) -> Sequence[Move]:
        """Partitions that nobody had before."""
        return [move for move in self.moves if move.source is None]

    @property
    def ended(self) -> Sequence[Move]:
        """Partitions that nobody has any more."""
        return [move for move in self.moves if move.target is None]

    @property
    def between_stayers(self) -> Sequence[Move]:
        """From a member that stays to one that was there before: nobody's coming or going asks for these by itself. A
        sticky plan has them only where it was uneven before, or weights and subscriptions have changed."""
        gone, new = {*self.left}, {*self.joined}
        return [move for move in self.moved if move.source not in gone and move.target not in new]

    @property
    def flows(self) -> Mapping[tuple[str | None, str | None], Sequence[Partition]]:
        """(from, to) -> the partitions that go this way; the largest first."""
        found: dict[tuple[str | None, str | None], list[Partition]] = defaultdict(list)
        for move in self.moves:
            found[move.source, move.target].append(move.partition)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0][0] or "", item[0][1] or "")))

    def describe(self, names: Mapping[str, str] | None = None) -> str:
        """All of it in a few lines, for people.

        Args:
            names: what to call members, by id; otherwise by their ids.
        """
        lines = [self._headline()]
        for verb, members in (("joins", self.joined), ("leaves", self.left)):
            if members:
                plural = verb if len(members) == 1 else verb.removesuffix("s")
                lines.append(f"{_listed([_name(member, names) for member in members])} {plural}")
        flows = list(self.flows.items())
        for (source, target), partitions in flows[:_TOLD]:
            way = f"from {_name(source, names)} to {_name(target, names)}"
            lines.append(f"  {way}: {len(partitions)} ({_listed([str(partition) for partition in partitions])})")
        if len(flows) > _TOLD:
            rest = sum(len(partitions) for _, partitions in flows[_TOLD:])
            lines.append(f"  {len(flows) - _TOLD} other ways: {rest}")
        if self.between_stayers:
            lines.append(f"{len(self.between_stayers)} of them between members that were there before and stay")
        lines += [f"before: {self.before.describe(names)}", f"after: {self.after.describe(names)}"]
        return "\n".join(lines)

    def _headline(self) -> str:
        moved, begun, ended = len(self.moved), len(self.begun), len(self.ended)
        total = self.stayed + len(self.moves)
        parts = [f"{moved} of {_count(total, 'partition')} move{'s' * (moved == 1)}" if moved else "nothing moves"]
        if begun:
            parts.append(f"{begun} had nobody before")
        if ended:
            parts.append(f"{ended} {'has' if ended == 1 else 'have'} nobody now")
        parts.append(f"{self.stayed} stay{'s' * (self.stayed == 1)}")
        return ", ".join(parts)


def movement(
    before: Mapping[Partition, str],
    after: Mapping[Partition, str],
    *,
    had: Iterable[Weighed],
    has: Iterable[Weighed],
) -> Movement:
    """Count the moves from one plan to another.

    Args:
        before: partition -> member id; partitions that nobody has are absent.
        after: likewise.
        had: the group's members before. Owners in the plan count whether or not they are named here.
        has: the members after; those that `had` has too stay.
    """
    weights_before, weights_after = _weights(had, before), _weights(has, after)
    moves = []
    stayed = 0
    for partition in sorted(before.keys() | after.keys(), key=lambda each: (each.topic, each.broker, each.number)):
        source, target = before.get(partition), after.get(partition)
        if source == target:
            stayed += 1
        else:
            moves.append(Move(partition, source, target))
    return Movement(
        moves=tuple(moves),
        stayed=stayed,
        joined=tuple(member for member in weights_after if member not in weights_before),
        left=tuple(member for member in weights_before if member not in weights_after),
        before=load(before, weights_before),
        after=load(after, weights_after),
    )


def load(plan: Mapping[Partition, str], weights: Mapping[str, int]) -> Load:
    """How many partitions each of these members has. Raises KeyError: the plan names another."""
    sizes = dict.fromkeys(weights, 0)
    for owner in plan.values():
        sizes[owner] += 1
    whole = sum(weights.values())
    return Load(sizes=sizes, shares={member: len(plan) * weight / whole for member, weight in weights.items()})


def _weights(members: Iterable[Weighed], plan: Mapping[Partition, str]) -> dict[str, int]:
    found = dict.fromkeys(plan.values(), 1) | {member.id: member.weight for member in members}
    return dict(sorted(found.items()))


def _name(member: str | None, names: Mapping[str, str] | None) -> str:
    """Members name themselves: a name may have no line of its own here."""
    return "nobody" if member is None else printable((names or {}).get(member, member))


def _listed(words: Sequence[str]) -> str:
    if len(words) <= _TOLD:
        return ", ".join(words)
    return f"{', '.join(words[: _TOLD - 1])} and {len(words) - _TOLD + 1} more"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
