"""Book: what is known, from outside, of every record of a world: where it is, who ran it, what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition
    from tests.simulation.drawing.world import Handling, Planned


#: Of all members.
GROUP = "g"


class LogName(NamedTuple):
    """One log: a topic that is made again has another."""

    partition: Partition
    log: int

    def __str__(self) -> str:
        return f"{self.partition}" if self.log < 2 else f"{self.partition}#{self.log}"


class RecordPlace(NamedTuple):
    """Where a record is."""

    log: LogName
    offset: int
    #: By which it is claimed where it has no business key; None: its position is enough.
    identity: str | None = None


@dataclass(slots=True, eq=False)
class Unit:
    """One piece of work: all records of one business key in its scope, or one record."""

    name: str
    #: None: it is known by its record's position alone.
    key: tuple[str, str] | None = None
    #: Its key is a business key, and not only the name of one message.
    business: bool = False
    #: Calls for it that ended well, or run.
    runs: list[Run] = field(default_factory=list)
    #: One of them ended well.
    handled: bool = False


@dataclass(slots=True, eq=False)
class Placed:
    """One record in its log."""

    number: int
    plan: Planned
    handling: Handling
    log: LogName
    offset: int
    unit: Unit
    #: Seconds after the world's begin: the plan's time, or later, where the producer had to try again.
    written_s: float
    #: What is handled one after the other with it, and where it stands among these; None = nothing.
    lane: Lane | None = None
    turn: int = 0
    #: No handler can be called with it: it is sent away, in no order.
    unfit: bool = False
    #: Calls for it that failed, all in all.
    failures: int = 0
    #: One of them with an error that the handler's retries take for one that nothing cures.
    hopeless: bool = False
    #: A call for it ran past its timeout.
    overdue: bool = False
    #: When it was delivered, where it may be long before it is begun: claimed from then on.
    delivered_at: float | None = None
    #: In a retry topic: before that time nobody gets it.
    due_s: float = 0.0
    #: The session whose dead letter was taken by the broker.
    letter_of: str | None = None
    #: Sessions whose dead letter of it was taken, also before a reset: the marks of these may come later than that.
    letters_of: set[str] = field(default_factory=set)
    #: Somebody has skipped it on purpose, or it is not in its log any more, or it was sent away by a member that took
    #: its log for another.
    excused: bool = False
    #: A reset replays it: that its name was known as done says nothing of the replay.
    replayed: bool = False
    #: Its client has sent it back, so that it comes again from elsewhere: its place says nothing any more.
    sent_back: bool = False

    @property
    def over(self) -> bool:
        """Nobody needs to handle it any more."""
        return self.unit.handled or self.letter_of is not None or self.excused

    @property
    def runs(self) -> bool:
        """Whether a handler runs with it."""
        return any(run.record is self and run.ended_at is None for run in self.unit.runs)

    def __str__(self) -> str:
        unit = f" {self.unit.name}" if self.unit.business else ""
        return f"{self.log}@{self.offset}{unit}"


@dataclass(slots=True, eq=False)
class Lane:
    """Records that are handled one after the other, as their log has them."""

    records: list[Placed] = field(default_factory=list)
    #: All before that one are over.
    first: int = 0
    running: list[Run] = field(default_factory=list)

    def behind(self) -> int:
        """The turn of the first record that is not over."""
        records, at = self.records, self.first
        while at < len(records) and records[at].over:
            at += 1
        self.first = at
        return at


@dataclass(slots=True, eq=False)
class Run:
    """One record in one call of a handler."""

    record: Placed
    member: str
    session: str
    since: float
    #: When it may have been claimed.
    claimed_at: float
    #: The fence that its handler has seen.
    epoch: int = 0
    #: The records of that call, this one included.
    together: list[Run] = field(default_factory=list)
    ended_at: float | None = None
    #: The engine waits for it no more.
    given_up: bool = False
    #: It is of a log that was made anew, and its member takes that for the one before: the store knows nothing of it
    #: under its own name.
    blind: bool = False


class Sight(Protocol):
    """Questions of the judges to store and broker: the truth, not what a member was told."""

    def alive(self, session: str) -> bool:
        """Whether that session lives, by the store's clock."""
        ...

    def done(self, record: Placed) -> bool:
        """Whether the store knows that record as done, by its position."""
        ...

    def finished(self, key: tuple[str, str]) -> bool:
        """Whether the store knows that key as done."""
        ...

    def logs(self) -> Collection[LogName]:
        """All logs, also those without a record."""
        ...

    def owner(self, log: LogName) -> str | None:
        """The session that owns that log at the store; None: nobody does."""
        ...

    def owned(self, log: LogName) -> Hashable:
        """The store's knowledge of who owns that log, and of what was handed over there."""
        ...

    def held(self, key: tuple[str, str]) -> Hashable:
        """The store's knowledge of that key."""
        ...


class Book:
    """All records of a world."""

    def __init__(self, settings: Settings, *, ordered: bool = True) -> None:
        self._ordering, self._missing, self._ordered = settings.ordering, settings.missing_key, ordered
        #: By their number, which each carries in its value.
        self.records: dict[int, Placed] = {}
        self.logs: dict[LogName, list[Placed]] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._units: dict[tuple[str, str], Unit] = {}

    def place(self, number: int, at: RecordPlace, plan: Planned, handling: Handling, written_s: float) -> Placed:
        """A producer's record is in its log."""
        record = Placed(number, plan, handling, at.log, at.offset, self._unit(plan, handling, at), written_s)
        lacks = handling.keyed and plan.unit is None and self._missing == "error"
        record.unfit = plan.unreadable or lacks
        lane = None if record.unfit else self._lane(record)
        if lane is not None:
            record.lane, record.turn = lane, len(lane.records)
            lane.records.append(record)
        self.records[number] = record
        self.logs.setdefault(at.log, []).append(record)
        return record

    def at(self, log: LogName, offset: int) -> Placed | None:
        """The record in that place; None: there is none."""
        return next((each for each in self.logs.get(log, ()) if each.offset == offset), None)

    def _unit(self, plan: Planned, handling: Handling, at: RecordPlace) -> Unit:
        scope = "shared" if handling.shared_scope else f"{GROUP}/{plan.topic}"
        if not handling.keyed or plan.unit is None or plan.unreadable:
            return Unit(f"{at.log}@{at.offset}", None if at.identity is None else (scope, f"s:{at.identity}"))
        key = (scope, f"s:{plan.unit}")  # as `dedup.keys.key_text` writes texts
        return self._units.setdefault(key, Unit(plan.unit, key, business=True))

    def _lane(self, record: Placed) -> Lane | None:
        """The record's lane as `Settings.ordering` promises it; a batch has consecutive records of its partition in any
        case. Records that are leased one by one come in any order."""
        if not self._ordered:
            return None
        if record.handling.batch is not None or self._ordering == "partition":
            name: Hashable = record.log
        elif self._ordering == "key" and record.plan.key is not None:
            name = (record.log, record.plan.key)
        else:
            return None
        return self._lanes.setdefault(name, Lane())
