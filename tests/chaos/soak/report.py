"""What a soak has shown: one row a fault and protocol."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.harness.group import referee

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.chaos.soak.stores import StoreName
    from tests.chaos.soak.vitals import Look
    from tests.harness.group.config import Protocol
    from tests.harness.group.outcome import Outcome


@dataclass(slots=True, kw_only=True)
class Played:
    """One fault, played once: from its beginning until the next one's it answers for what happens."""

    fault: str
    began_ns: int
    #: When it was healed, and when the group had recovered.
    healed_ns: int = 0
    recovered_ns: int = 0
    #: Records produced meanwhile that nobody ended.
    lost: int = 0
    #: Executions that began meanwhile: repeats that no death excuses, and those of what a dead member had in hand.
    repeated: int = 0
    in_hand: int = 0
    #: The longest that a partition had a record to start, and started none.
    pause_s: float = 0.0
    #: Whether its leg came to its end, so that all this is known.
    judged: bool = False

    @property
    def recovery_s(self) -> float:
        return (self.recovered_ns - self.healed_ns) / 1e9


@dataclass(slots=True, kw_only=True)
class Leg:
    """A part of a soak: one protocol, so many brokers, one kind of store."""

    protocol: Protocol
    brokers: int
    store: StoreName
    seed: int
    minutes: float
    played: list[Played] = field(default_factory=list)
    records: int = 0
    #: What the ledger says; None = it did not come to its end.
    faults: list[str] | None = None
    #: Where the audit does not say the same; None = not asked.
    audit: list[str] | None = None
    looks: list[Look] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    group: str = ""
    error: str | None = None

    @property
    def where(self) -> tuple[str, str, str]:
        """As in the table."""
        return self.protocol, str(self.brokers), self.store

    @property
    def held(self) -> bool:
        return not (self.error or self.faults or self.audit or self.grown) and self.faults is not None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"held": self.held}


def attribute(played: Sequence[Played], outcome: Outcome) -> None:
    """Give each fault what happened in its time. What happened before the first is the first one's."""
    for each in played:
        each.judged = True
    begins = [each.began_ns for each in played]

    def at(ns: int) -> Played:
        return played[max(0, bisect_right(begins, ns) - 1)]

    if outcome.by_key:
        keys = referee.lost_keys(outcome.produced, outcome.ran, outcome.given_up)
        gone = [each for each in outcome.produced if each.key in keys]
    else:
        gone = referee.lost(outcome.produced, outcome.ran, outcome.given_up)
    for record in gone:
        at(record.at_ns).lost += 1
    unexcused = set(map(id, outcome.unexcused))
    for run in outcome.repeats:
        if id(run) in unexcused:
            at(run.start_ns).repeated += 1
        else:
            at(run.start_ns).in_hand += 1
    for run, seconds in referee.waits(outcome.produced, outcome.ran):
        each = at(run.start_ns)
        each.pause_s = max(each.pause_s, seconds)


_HEAD = ("fault", "protocol", "brokers", "store", "times", "lost", "repeated", "in hand", "pause s", "recovery s")
#: Columns that are no numbers.
_WORDS = 4


def rows(legs: Iterable[Leg]) -> list[tuple[str, ...]]:
    """By fault and where it was played."""
    groups: dict[tuple[str, ...], list[Played]] = defaultdict(list)
    for leg in legs:
        for each in leg.played:
            groups[each.fault, *leg.where].append(each)
    return [
        (*names, str(len(found)), *_counted(found), f"{max(each.recovery_s for each in found):.1f}")
        for names, found in sorted(groups.items())
    ]


def _counted(found: Sequence[Played]) -> tuple[str, ...]:
    if not all(each.judged for each in found):
        return ("?", "?", "?", "?")
    return (
        str(sum(each.lost for each in found)),
        str(sum(each.repeated for each in found)),
        str(sum(each.in_hand for each in found)),
        f"{max(each.pause_s for each in found):.1f}",
    )


def text(legs: Sequence[Leg]) -> str:
    """The table, and what each leg came to."""
    table = [_HEAD, *rows(legs)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if number < _WORDS else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    for leg in legs:
        where = f"{leg.protocol}, {leg.brokers} broker(s), store: {leg.store}"
        lines += ["", f"{where}, seed {leg.seed}, {leg.minutes:.1f} minutes: {_verdict(leg)}"]
        lines += [f"    {each}" for each in [*(leg.faults or ()), *(leg.audit or ()), *leg.grown]]
        lines += [f"    {leg.error.splitlines()[0]}"] if leg.error else []
        lines += [f"    {each.text}" for each in leg.looks]
    return "\n".join(lines)


def _verdict(leg: Leg) -> str:
    if leg.error:
        return "it did not come to its end"
    audit = "not asked" if leg.audit is None else "another" if leg.audit else "the same"
    ledger = "broken" if leg.faults else "held"
    return f"{leg.records} records; by the ledger the promises {ledger}; by the audit {audit}"
