"""The state of a group while its events come; of a stream it goes through a checkpoint, as plain data. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import SettingError
from holdfast.plugin.audit.schema import Outcome
from holdfast.tools.audit_report.judge.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.tools.audit_report.verdicts import Ended

    Span = list[Any]

#: A span as it is kept. `old`: its executions have been judged.
FIRST, NEXT, OUTCOME, RECORDS, BEGAN, ENDED, RUN, EPOCH, SEQ, OLD = range(10)
#: Outcomes whose records are counted.
OUTCOMES = tuple(each.value for each in Outcome if each not in (Outcome.ABSENT, Outcome.EXPIRED))
#: The version of `Kept.state`.
_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How long is waited, and how far back is known. Times are those of events, by the members' clocks.

    Args:
        lateness_s: what a member tells may be so late: its `flush_s`, and the difference of the members' clocks.
        quiet_s: a run that was heard so long before the newest event is waited for no more, and was killed.
        gather_s: as in AuditSettings.
        before_s: as in AuditSettings.
        after_s: a rebalance is told so long after it, or at the next one.
        remember_s: a repetition of what was executed longer ago is not seen.
    """

    lateness_s: float = 10.0
    quiet_s: float = 30.0
    gather_s: float = 5.0
    before_s: float = 30.0
    after_s: float = 30.0
    remember_s: float = 3600.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise SettingError(name, getattr(self, name), "give a time of more than 0 seconds")
        if self.remember_s < self.before_s + self.after_s + self.lateness_s + self.quiet_s:
            raise SettingError(
                "remember_s", self.remember_s, "give more than lateness_s, quiet_s, before_s and after_s together"
            )


class Change(NamedTuple):
    """One partition in one `assigned` or `revoked`."""

    at_ms: int
    kind: str
    trigger: str | None
    run: str
    seq: int
    topic: str
    partition: str


@dataclass(slots=True, kw_only=True)
class Run:
    """A run, as far as its events tell."""

    member: str
    from_ms: int
    last_ms: int = 0
    heard_ms: int = 0  #: when its last event came, by the newest of all: its own clock may be behind
    protocol: str | None = None
    source: str | None = None
    next_seq: int = 0
    events: int = 0
    sound: bool = True  #: all its events up to the last one came, and none was dropped
    dropped: int = 0
    records: dict[str, int] = field(default_factory=dict)  #: by outcome, as spans told them
    stopped: bool = False
    clean: bool = False
    complete: bool = False
    unreported: int | None = None
    ended: bool = False  #: its row is written

    def row(self, name: str, how: Ended) -> dict[str, Any]:
        """The row of `members`, without columns that depend on other runs."""
        made: dict[str, Any] = {"member": self.member, "run": name, "protocol": self.protocol, "source": self.source}
        made |= {"started_ms": self.from_ms, "ended_ms": self.last_ms, "ended": how.value, "complete": self.complete}
        made |= {"events": self.events, "missing": self.next_seq - self.events, "dropped": self.dropped}
        return made | {"unreported": self.unreported} | {name: self.records.get(name, 0) for name in OUTCOMES}


@dataclass(slots=True, kw_only=True)
class JudgedPartition:
    """One partition."""

    owners: list[Owner] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    #: Positions of owners that are not judged yet: run, seq of its `assigned`, at_ms, position, whether all had come.
    says: list[list[Any]] = field(default_factory=list)
    #: Owners whose rows are written: run, seq of its `assigned`.
    told: list[list[Any]] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)  #: by outcome, since the last row of `coverage`
    begin: int | None = None
    floor: int = 0  #: nothing below is looked at any more

    def owner(self, run: str, epoch: int | None) -> Owner | None:
        """The ownership that a run speaks of: of that epoch; its last one, where it does not say. None: of that one
        nothing has come."""
        last: Owner | None = None
        for each in reversed(self.owners):
            if each.run == run:
                if epoch is None or each.epoch == epoch:
                    return each
                if each.epoch is None:
                    last = last or each
        return last

    def hear(self, until_ms: float) -> bool:
        """Count what owners have said before that moment. Returns whether anything was."""
        later = []
        for each in self.says:
            run, seq, at_ms, position, sound = each
            if at_ms >= until_ms:
                later.append(each)
                continue
            owner = next((one for one in reversed(self.owners) if one.run == run and one.from_seq == seq), None)
            if owner is not None and position is not None:
                owner.said = position if owner.said is None else max(owner.said, position)
                if sound:
                    owner.told = position if owner.told is None else max(owner.told, position)
        heard = len(later) < len(self.says)
        self.says = later
        return heard

    def close(self, runs: Mapping[str, Run]) -> None:
        """Owners in their turns, and what the ends of their runs say of them."""
        self.owners = by_turn(self.owners)
        for turn, owner in enumerate(self.owners, start=1):
            owner.turn = turn
            run = runs.get(owner.run)
            if run is None:
                continue  # long ago, or its `assigned` says all that is known
            owner.killed = not run.stopped
            owner.complete = owner.complete or run.complete
            if run.unreported:  # events of it are missing, and it is not known which
                owner.complete, owner.told = False, None
            if owner.ended_by is None and run.stopped:
                owner.to_ms, owner.ended_by = run.last_ms, "stopped"


def by_turn(owners: Sequence[Owner]) -> list[Owner]:
    """In which order they came: by epoch where all are known, else by the members' clocks."""
    if all(each.epoch is not None for each in owners):
        return sorted(owners, key=lambda each: (each.epoch or 0, each.from_ms, each.run))
    return sorted(owners, key=lambda each: (each.from_ms, each.run))


@dataclass(slots=True, kw_only=True)
class Kept:
    """All that is known of a group."""

    newest_ms: int = 0
    settled_ms: int = 0
    told_ms: int = 0  #: rebalances that ended before are told
    runs: dict[str, Run] = field(default_factory=dict)
    #: Runs of which nothing could be read but their names ("": not even that), and when.
    unheard: dict[str, int] = field(default_factory=dict)
    places: dict[tuple[str, str], JudgedPartition] = field(default_factory=dict)
    intake: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  #: for the next row of `summary`

    def count(self, name: str, more: int = 1) -> None:
        """For the summary."""
        self.counts[name] = self.counts.get(name, 0) + more

    def member(self, run: str) -> str:
        """The member's name."""
        found = self.runs.get(run)
        return run if found is None else found.member

    def state(self) -> dict[str, Any]:
        """For JSON, at once: lists and dictionaries in it are those of the group, which goes on writing into them.
        To copy the spans would cost more than all the judging."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "version": _VERSION,
            "runs": {run: _fields(each) for run, each in self.runs.items()},
            "places": [
                [*where, _fields(each) | {"owners": [_fields(owner) for owner in each.owners]}]
                for where, each in self.places.items()
            ],
            "intake": [[*of, *sums] for of, sums in self.intake.items()],
            "changes": [list(each) for each in self.changes],
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Kept:
        """Read what `state` gave.

        Raises:
            SettingError: another version of holdfast gave it.
        """
        if state.get("version") != _VERSION:
            remedy = "another version of holdfast has written it: start with a new checkpoint and a new output"
            raise SettingError("checkpoint", state.get("version"), remedy)
        made = cls(**{name: state[name] for name in _PLAIN})
        made.runs = {run: Run(**each) for run, each in state["runs"].items()}
        for topic, partition, each in state["places"]:
            owners = [Owner(**one) for one in each["owners"]]
            made.places[topic, partition] = JudgedPartition(**each | {"owners": owners})
        made.intake = {(run, second): sums for run, second, *sums in state["intake"]}
        made.changes = [Change(*each) for each in state["changes"]]
        return made


_PLAIN = ("newest_ms", "settled_ms", "told_ms", "unheard", "counts")


def _fields(of: Run | JudgedPartition | Owner) -> dict[str, Any]:
    return {name: getattr(of, name) for name in of.__slots__}
