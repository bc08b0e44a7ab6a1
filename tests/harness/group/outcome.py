"""An outcome: everything that one run of a scenario left behind, and what the referee says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tests.harness.group import referee

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.harness.group.ledger import Entry, Where

_SHOWN = 5


class Happened(NamedTuple):
    """Something that a member told of, beside its work: a session that it has lost."""

    at_ns: int
    member: str
    pid: int
    event: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened. `key`: judged by business key instead of by record."""

    produced: list[referee.Produced]
    entries: list[Entry]
    protocol: str
    deaths: list[referee.Death]
    samples: list[referee.Sample]
    ends: Mapping[str, Mapping[int, int]]
    committed: Mapping[str, Mapping[int, int]]
    group: str = ""
    #: Processes that were killed, or might have been: what they did last, they could not tell.
    silenced: frozenset[int] = frozenset()
    #: What excuses nothing, and may explain it.
    happened: tuple[Happened, ...] = ()
    by_key: bool = False
    given_up: frozenset[str] = frozenset()
    #: How often each record is to be executed on purpose besides the first time (a reset by hand).
    replayed: Mapping[Where, int] = field(default_factory=dict)
    #: Partition -> end of the log of the dead letters.
    dead_letters: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def ran(self) -> list[referee.Execution]:
        return referee.executions(self.entries)

    @cached_property
    def lost(self) -> int:
        if self.by_key:
            return len(referee.lost_keys(self.produced, self.ran, self.given_up))
        return len(referee.lost(self.produced, self.ran, self.given_up))

    @cached_property
    def repeats(self) -> list[referee.Execution]:
        """All repeats but those that were asked for."""
        again = referee.key_repeats(self.ran) if self.by_key else referee.repeats(self.ran)
        wanted = dict(self.replayed)
        left = []
        for each in again:
            if wanted.get(each.where, 0) > 0:
                wanted[each.where] -= 1
            else:
                left.append(each)
        return left

    @cached_property
    def unexcused(self) -> list[referee.Execution]:
        return referee.unexcused(self.repeats, self.ran, self.deaths, by_key=self.by_key)

    @cached_property
    def concurrent(self) -> list[tuple[referee.Execution, referee.Execution]]:
        return referee.concurrent(self.ran, self.deaths)

    @cached_property
    def skipped(self) -> set[Where]:
        """Settled without the end of a handler: duplicates of a business key, of which only one record is executed, and
        records whose handlers never end."""
        ran = {each.where for each in self.ran}
        hang = {each.where for each in self.ran if each.outcome is None and each.key in self.given_up}
        return hang | {each.where for each in self.produced if each.where not in ran and self.by_key}

    @cached_property
    def longest_pause_s(self) -> float:
        return max(referee.pauses(self.produced, self.ran).values(), default=0.0)

    def faults(self, *, may_repeat: bool = False) -> list[str]:
        """What broke a promise, in words; empty = all held."""
        found: list[str] = []
        if self.lost:
            found.append(f"{self.lost} of {len(self.produced)} records are lost")
        if self.unexcused and not may_repeat:
            found.append(f"{len(self.unexcused)} repeats that no death excuses: {self._story(self.unexcused[0].where)}")
        hands = {each.where for death in self.deaths for each in referee.in_hand(self.ran, death)}
        together = [pair for pair in self.concurrent if pair[0].where not in hands]
        if together and not may_repeat:
            found.append(f"{len(together)} executed twice at the same time: {self._story(together[0][0].where)}")
        early = referee.ahead(self.samples, self.produced, self.ran, self.skipped)
        if early:
            sample, where = early[0]
            found.append(f"{len(early)} commits ahead of the work: {sample.committed} while {self._story(where)}")
        # What a dead member had in hand may still run there while its successor is further: a stall does that.
        wrong = [pair for pair in referee.disorder(self.ran, self.deaths) if pair[0].where not in hands]
        if wrong and not may_repeat:
            first, second = wrong[0]
            found.append(f"{len(wrong)} times order was broken within a key: {first} then {second}")
        for topic, ends in self.ends.items():
            missing = referee.uncommitted(ends, self.committed[topic])
            if missing:
                found.append(
                    f"after a clean stop {topic} is not committed to its end (partition: end, committed): {missing}"
                )
        return found

    def _story(self, where: Where) -> str:
        lines = [
            f"{each.at_ns / 1e9:.3f} {each.what} by {each.member} (pid {each.pid}, epoch {each.epoch})"
            for each in self.entries
            if each.where == where
        ]
        deaths = [f"{each.at_ns / 1e9:.3f} death of {each.member} (pid {each.pid})" for each in self.deaths]
        told = [f"{each.at_ns / 1e9:.3f} {each.event} of {each.member} (pid {each.pid})" for each in self.happened]
        return f"{where}: " + "; ".join(sorted([*lines[: 2 * _SHOWN], *deaths, *told[:_SHOWN]]))
