"""The findings of an audit, as values: what the report says and draws. Times are wall clock, in milliseconds since
1970."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from holdfast.tools.audit_report.verdicts import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Row_co = TypeVar("Row_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[Row_co]):
    """The rows that matter most, of `total`."""

    rows: Sequence[Row_co] = ()
    total: int = 0

    @property
    def left_out(self) -> int:
        """How many are not among the rows."""
        return max(self.total - len(self.rows), 0)


class Run(NamedTuple):
    """A member's process, from its start to its end."""

    member: str
    run: str
    began_ms: int
    ended_ms: int
    #: `tables.Ended`.
    ended: str
    handled: int
    skipped: int
    dead_lettered: int
    sent_back: int
    failed: int
    client_skipped: int
    #: The part of the group's handled records, from 0 to 1; None: none was handled.
    share: float | None
    #: Against an even share among those at work at the same time; None: not known.
    skew: float | None
    #: Events that never came: given up, or lost on the way.
    missing_events: int


class Gap(NamedTuple):
    """Offsets that no member has reported as done."""

    topic: str
    #: Topic and partition as one name, such as orders-3: two topics may have one in common.
    partition: str
    first: int
    next: int
    #: `tables.Verdict`, `tables.Reason`.
    verdict: str
    reason: str
    #: When what lies just before it had ended.
    after_ms: int | None
    #: Members that read there.
    members: str

    @property
    def records(self) -> int:
        """At most: the log may have holes."""
        return self.next - self.first


class Duplicate(NamedTuple):
    """Records that ran more than once."""

    topic: str
    partition: str
    first: int
    next: int
    records: int
    #: All executions of each record; and the repeated ones that are due to this cause.
    executions: int
    repeats: int
    #: `tables.Cause`.
    cause: str
    again_ms: int | None
    members: str


class DuplicateKey(NamedTuple):
    """A business key that ran more than once."""

    key: str
    executions: int
    #: `tables.KeyCause`.
    cause: str
    first: str
    again: str


class Rebalance(NamedTuple):
    """One change of owners. Seconds, and records a second; None: not known."""

    number: int
    began_ms: int
    ended_ms: int
    triggers: str
    members: int
    moved: int
    #: The longest time in which no member of the group ended a record.
    stop_s: float | None
    stop_from_ms: int | None
    #: The longest time in which nothing ended in a partition that moved.
    pause_s: float | None
    lag: int | None
    recovered_s: float | None
    steady_per_s: float | None
    peak_per_s: float | None
    #: Peak intake over steady.
    spike: float | None


class Pause(NamedTuple):
    """A partition between the last record of one owner and the first of the next."""

    partition: str
    rebalance: int
    from_ms: int
    to_ms: int
    old: str
    new: str

    @property
    def seconds(self) -> float:
        """How long."""
        return (self.to_ms - self.from_ms) / 1000


class Lagging(NamedTuple):
    """How far a partition was behind at the end, and at worst."""

    partition: str
    position: int | None
    end: int | None
    most: int

    @property
    def lag(self) -> int | None:
        """At the end: its log's end less the group's position, both as members have said last."""
        if self.position is None or self.end is None:
            return None
        return max(self.end - self.position, 0)


class Stretch(NamedTuple):
    """A member, by its place among the names, had a partition for a while."""

    member: int
    from_ms: int
    to_ms: int
    #: Without an event of its end: `to_ms` is the member's last event.
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One partition's owners over time."""

    partition: str
    stretches: Sequence[Stretch]
    #: (from, to), in milliseconds.
    pauses: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values at even steps; None = nothing is known of that step."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Series over the same steps."""

    from_ms: int
    step_ms: int
    series: Sequence[Series] = ()


class Mark(NamedTuple):
    """A stretch of offsets in which something is wrong."""

    first: int
    next: int
    #: A gap's verdict, or "repeated".
    kind: str
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A partition's offsets, and what is wrong with some."""

    partition: str
    begin: int
    end: int
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """One group's."""

    group: str
    #: 0 and 0 if no event of it can be read.
    from_ms: int
    to_ms: int
    partitions: int
    #: Records that ran at least once (a lower bound if logs have holes), and all executions.
    records: int
    executions: int
    #: Records that were known as done and not run again.
    suppressed: int
    dead_lettered: int
    #: Records by verdict: lost, unknown, pending, left, expired.
    gaps: Mapping[str, int]
    #: Executions beyond the first, by cause: an upper bound if logs have holes.
    repeats: Mapping[str, int]
    #: Executions too many of keys that were sent more than once; None = events carry no keys.
    sent_twice: int | None
    #: Processes that fell silent; events that never came.
    killed: int
    missing_events: int
    #: Processes of which nothing could be read; records that last words count and no span tells of.
    unheard: int
    unreported: int
    #: Lines of the whole input that could not be read.
    unreadable: int
    #: Records that the Kafka client had gone past, and gave when it was sent back.
    client_skipped: int
    #: The longest of all rebalances, also of those that are not listed, in seconds; and the highest peak over steady.
    #: None = none is known.
    stop_s: float | None
    pause_s: float | None
    spike: float | None
    #: How many starts of members.
    processes: int
    #: More than figures is known: of the groups in which most is wrong.
    detailed: bool = False
    #: Distinct names, in the order of their appearance: what stretches point at. Here begin the details.
    members: Sequence[str] = ()
    runs: Listed[Run] = field(default_factory=Listed)
    gap_rows: Listed[Gap] = field(default_factory=Listed)
    duplicates: Listed[Duplicate] = field(default_factory=Listed)
    duplicate_keys: Listed[DuplicateKey] = field(default_factory=Listed)
    rebalances: Listed[Rebalance] = field(default_factory=Listed)
    pauses: Listed[Pause] = field(default_factory=Listed)
    lagging: Listed[Lagging] = field(default_factory=Listed)
    owned: Listed[Owned] = field(default_factory=Listed)
    lag: Curves | None = None
    intake: Curves | None = None
    strips: Listed[Strip] = field(default_factory=Listed)

    @property
    def lost(self) -> int:
        """Records that no member handled, although one has reported a position beyond them."""
        return self.gaps.get("lost", 0)

    @property
    def unknown(self) -> int:
        """Records that may have been handled by a member that was killed before it could report them."""
        return self.gaps.get("unknown", 0)

    @property
    def expired(self) -> int:
        """Records that the log had deleted before the group read them."""
        return self.gaps.get("expired", 0)

    @property
    def behind(self) -> int:
        """Records that no member has reported as done: still to come, or left when the group ended."""
        return self.gaps.get("pending", 0) + self.gaps.get("left", 0)

    @property
    def repeated(self) -> int:
        """Executions beyond the first, without those that a reset has asked for."""
        return sum(count for cause, count in self.repeats.items() if cause != Cause.RESET)

    @property
    def wrong(self) -> bool:
        """Whether something is lost or was deleted unread, or ran again without being asked for."""
        return bool(self.lost or self.expired or self.repeated or self.sent_twice)

    @property
    def unsure(self) -> bool:
        """Whether not all is known."""
        return bool(self.unknown or self.missing_events or self.unheard or self.unreported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All groups that the events tell of."""

    groups: Sequence[GroupAudit]

    @property
    def worst_first(self) -> list[GroupAudit]:
        """The groups, those in which most is wrong first."""
        return sorted(self.groups, key=_how_wrong)

    def sum(self, figure: Callable[[GroupAudit], int]) -> int:
        """The sum of a figure over all groups."""
        return sum(map(figure, self.groups))


def _how_wrong(group: GroupAudit) -> tuple[int | str, ...]:
    again = group.repeated + (group.sent_twice or 0)
    return -group.lost, -group.expired, -again, -group.unknown, group.group
