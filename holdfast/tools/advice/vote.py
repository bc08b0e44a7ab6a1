"""Which assignor a classic group of Kafka takes: each member has a list, and the coordinator counts votes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.plugin.assign.java import java_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Buckets of a new HashMap in Java; it doubles when three quarters are used.
_BUCKETS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """How it ended.

    `winner` is None where no assignor is known to all: then the coordinator refuses whoever joins last
    (INCONSISTENT_GROUP_PROTOCOL).
    """

    winner: str | None
    #: Assignor -> votes, of those that all members know.
    votes: Mapping[str, int]
    #: Assignors that somebody lists and not everybody knows -> the members that lack them.
    lacking: Mapping[str, Sequence[str]]

    @property
    def tied(self) -> bool:
        """Whether others have as many votes: then the order of a Java HashMap decides."""
        return list(self.votes.values()).count(max(self.votes.values(), default=0)) > 1

    def describe(self, names: Mapping[str, str] | None = None) -> str:
        """A sentence for people, without a full stop."""

        def who(members: Sequence[str]) -> str:
            return ", ".join(member if names is None else names.get(member, member) for member in members)

        lacking = self.lacking.items()
        left = "; ".join(f"{each} is excluded: {who(members)} does not list it" for each, members in lacking)
        if self.winner is None:
            no = "no assignor is on every member's list, so the broker refuses the member that joins last"
            return f"{no} ({left or 'no member'})"
        counted = ", ".join(f"{each} {count}" for each, count in self.votes.items())
        tie = ": a tie, decided by the order of Java's HashMap" if self.tied else ""
        return f"{self.winner} by vote ({counted}{tie})" + (f"; {left}" if left else "")


def vote(lists: Mapping[str, Sequence[str]]) -> Vote:
    """Vote as the coordinator does (ClassicGroup.selectProtocol of Kafka 4): of the assignors that every member lists,
    each member votes for the first one on its own list.

    Args:
        lists: member -> its assignors, its favourite first (partition.assignment.strategy).
    """
    all_listed = {each for listed in lists.values() for each in listed}
    known = {each for each in all_listed if all(each in listed for listed in lists.values())}
    counts = Counter(next(each for each in listed if each in known) for listed in lists.values() if known)
    votes = dict(sorted(counts.items(), key=lambda item: (-item[1], _bucket(item[0]))))
    lacking = {
        each: [member for member, listed in lists.items() if each not in listed] for each in sorted(all_listed - known)
    }
    return Vote(winner=next(iter(votes), None), votes=votes, lacking=lacking)


def _bucket(name: str) -> int:
    """Where Java's HashMap has it: Stream.max keeps the first of equals, in the map's order."""
    hashed = java_hash(name) & 0xFFFFFFFF
    return (hashed ^ (hashed >> 16)) & (_BUCKETS - 1)
