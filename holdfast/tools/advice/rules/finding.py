"""Rules and their findings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Patient = TypeVar("Patient")


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"  #: does not work, or does harm now
    WARNING = "warning"  #: works until the next rebalance, crash or peak
    NOTE = "note"  #: worth knowing; may be meant

    @property
    def rank(self) -> int:
        """The worst is the highest."""
        return {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}[self]


class Effect(Enum):
    """The effect of a finding, in the words of who has the trouble."""

    REPEATS = "records repeated"
    SKIPS = "records skipped"
    STANDSTILL = "processing stops"
    STORM = "rebalance storm"
    UNEVEN = "uneven load"
    BACKLOG = "backlog"
    REFUSED = "does not start"
    IGNORED = "no effect"


class Seen(NamedTuple):
    """One thing that a rule has found. No text in it has a credential."""

    #: A setting's name, a member, a partition, or "group".
    where: str
    #: The value found.
    found: str
    #: Why it hurts.
    why: str
    remedy: str
    #: None: as the rule says.
    severity: Severity | None = None
    effect: Effect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Patient]):
    """One thing that may be wrong. `look` is pure: what it is given is all it knows."""

    name: str
    severity: Severity
    effect: Effect
    #: What it looks for, in one line, for the table of docs/operations/doctor.md.
    title: str
    look: Callable[[Patient], Iterable[Seen]]
    #: Other severities that some of its findings have, and which: likewise.
    also: tuple[tuple[Severity, str], ...] = ()
    #: It says nothing where nobody has said how long a handler takes.
    needs_handler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding of a rule, for people and for programs."""

    rule: str
    severity: Severity
    effect: Effect
    where: str
    found: str
    why: str
    remedy: str

    def __post_init__(self) -> None:
        for name in ("where", "found", "why", "remedy"):  # each may quote a value
            object.__setattr__(self, name, without_credentials(getattr(self, name)))

    def as_dict(self) -> dict[str, str]:
        """Fit for JSON."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "effect": self.effect.value,
            "where": self.where,
            "found": self.found,
            "why": self.why,
            "remedy": self.remedy,
        }


def look_at(patient: Patient, rules: Sequence[Rule[Patient]]) -> list[Finding]:
    """All that the rules find: the worst first, otherwise in the rules' order."""
    found = [
        Finding(
            rule=rule.name,
            severity=seen.severity or rule.severity,
            effect=seen.effect or rule.effect,
            where=seen.where,
            found=seen.found,
            why=seen.why,
            remedy=seen.remedy,
        )
        for rule in rules
        for seen in rule.look(patient)
    ]
    return sorted(found, key=lambda finding: -finding.severity.rank)
