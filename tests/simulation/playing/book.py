"""Book: each record of a world, as seen from outside: its place, its runs and their outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition
    from tests.simulation.drawing.world import Handling, Planned


#: The group of all members.
GROUP = "g"


class LogName(NamedTuple):
    """One log. A topic that is made again has others."""

    partition: Partition
    log: int

    def __str__(self) -> str:
        return f"{self.partition}" if self.log < 2 else f"{self.partition}#{self.log}"


class RecordPlace(NamedTuple):
    """The place of a record."""

    log: LogName
    offset: int
    #: The message id by which it is claimed without a business key; None = its position is enough.
    identity: str | None = None


@dataclass(slots=True, eq=False)
class Unit:
    """One piece of work: all records of one business key in its scope, or one record."""

    name: str
    #: None = the store knows it by its record's position alone.
    key: tuple[str, str] | None = None
    #: Whether its key is a business key, and not a message id.
    business: bool = False
    #: Runs that ended well, or have not ended.
    runs: list[Run] = field(default_factory=list)
    #: Whether one of them ended well.
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
    #: Seconds after the world's begin: the plan's time, or later if the producer had to retry.
    written_s: float
    #: Its lane, and its index there; None = its order does not matter.
    lane: Lane | None = None
    turn: int = 0
    #: No handler can be called with it: it is dead-lettered, in no order.
    unfit: bool = False
    #: Calls for it that failed, at all members.
    failures: int = 0
    #: Whether one of them failed with an error that the handler's retries give up on.
    hopeless: bool = False
    #: Whether a call for it ran past its timeout.
    overdue: bool = False
    #: When it was delivered, if that may be long before it starts: it may be claimed from then on.
    delivered_at: float | None = None
    #: In a retry topic: the time before which no handler gets it.
    due_s: float = 0.0
    #: The session whose dead letter of it the broker took.
    letter_of: str | None = None
    #: Sessions whose dead letter of it was taken, also before a reset: their marks may come later than the reset.
    letters_of: set[str] = field(default_factory=set)
    #: It was skipped on purpose, or deleted from its log, or dead-lettered by a member that took its log for another.
    excused: bool = False
    #: A reset replays it: a finished message id says nothing about the replay.
    replayed: bool = False
    #: When it was reset so.
    replayed_at: float = -math.inf
    #: Its client has sent it back, and it comes again from another place.
    sent_back: bool = False

    @property
    def over(self) -> bool:
        """Whether no member needs to handle it any more."""
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
    """Records that are handled one after the other, in the order of their log."""

    records: list[Placed] = field(default_factory=list)
    #: All records before this index are over.
    first: int = 0
    running: list[Run] = field(default_factory=list)

    def behind(self) -> int:
        """The index of the first record that is not over."""
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
    #: The earliest time at which it may have been claimed.
    claimed_at: float
    #: The fence that its handler has seen.
    epoch: int = 0
    #: All runs of that call, this one included.
    together: list[Run] = field(default_factory=list)
    ended_at: float | None = None
    #: The transaction in which it runs; and whether its member gave its partition up before it knew how that ended.
    tx: Tx | None = None
    left: bool = False
    #: The engine has given it up.
    given_up: bool = False
    #: Its log was made anew, and its member takes it for the one before: the store does not know the run under the new
    #: log's name.
    blind: bool = False


class Tx(Protocol):
    """A handler's transaction."""

    @property
    def is_open(self) -> bool:
        """Whether it is open at the server."""
        ...

    @property
    def idled(self) -> bool:
        """Whether the server has ended it, since nothing happened in it."""
        ...

    def add(self, numbers: Sequence[int]) -> None:
        """Write the effects of these records."""
        ...


class Sight(Protocol):
    """The state of store and broker, for judges. It may differ from what a member was told."""

    def alive(self, session: str) -> bool:
        """Whether that session lives, by the store's clock."""
        ...

    def done(self, record: Placed) -> bool:
        """Whether that record is marked as done in its position."""
        ...

    def finished(self, key: tuple[str, str]) -> bool:
        """Whether that key is finished at the store."""
        ...

    def logs(self) -> Collection[LogName]:
        """All logs, also those without a record."""
        ...

    def owner(self, log: LogName) -> str | None:
        """The session that owns that log at the store; None = no session does."""
        ...

    def owned(self, log: LogName) -> Hashable:
        """The store's state of that log: its owner, and the offsets that were handed over."""
        ...

    def held(self, key: tuple[str, str]) -> Hashable:
        """The store's state of that key."""
        ...


class Book:
    """All records of a world."""

    def __init__(self, settings: Settings, *, ordered: bool = True) -> None:
        self._ordering, self._missing, self._ordered = settings.ordering, settings.missing_key, ordered
        #: Records by number, which each has in its value.
        self.records: dict[int, Placed] = {}
        self.logs: dict[LogName, list[Placed]] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._units: dict[tuple[str, str], Unit] = {}

    def place(self, number: int, at: RecordPlace, plan: Planned, handling: Handling, written_s: float) -> Placed:
        """Note that a producer's record is stored."""
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
        """The record at that offset; None = there is none."""
        return next((each for each in self.logs.get(log, ()) if each.offset == offset), None)

    def _unit(self, plan: Planned, handling: Handling, at: RecordPlace) -> Unit:
        scope = "shared" if handling.shared_scope else f"{GROUP}/{plan.topic}"
        if not handling.keyed or plan.unit is None or plan.unreadable:
            return Unit(f"{at.log}@{at.offset}", None if at.identity is None else (scope, f"s:{at.identity}"))
        key = (scope, f"s:{plan.unit}")  # `dedup.keys.key_text` of a text
        return self._units.setdefault(key, Unit(plan.unit, key, business=True))

    def _lane(self, record: Placed) -> Lane | None:
        """The record's lane, by the promise of `Settings.ordering`. A batch always has consecutive records of its
        partition. Leased records come in any order."""
        if not self._ordered:
            return None
        if record.handling.batch is not None or self._ordering == "partition":
            name: Hashable = record.log
        elif self._ordering == "key" and record.plan.key is not None:
            name = (record.log, record.plan.key)
        else:
            return None
        return self._lanes.setdefault(name, Lane())
