"""A snapshot: what an app knows of itself at one moment, frozen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.observe.joining import Joining
    from holdfast.plugin.observe.silence import Silence
    from holdfast.records import Partition

State = Literal["new", "starting", "joining", "running", "paused: store down", "leaving", "stopped"]

#: Upper bounds, in seconds, of the counts in `HandlerFigures.buckets`.
BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFigures:
    """Records since the start."""

    polled: int = 0
    #: Their handlers ended well.
    handled: int = 0
    #: Attempts that failed (of handlers, and to send a dead letter), and those of handlers that were tried again.
    failed_attempts: int = 0
    retried: int = 0
    dead_lettered: int = 0
    #: Duplicates that were not run: known as done by their position, or by their business key.
    suppressed_by_position: int = 0
    suppressed_by_key: int = 0
    #: Not started here, or started and failed after their partition went: the next owner's.
    handed_back: int = 0
    released: int = 0
    #: That a former owner had in hand and did not end: they run here once more.
    taken_up: int = 0
    #: Handlers that ended within a drain, and that outlived it; as reports tell them.
    drained: int = 0
    abandoned: int = 0
    #: That the log had deleted (retention) before they were read; at most.
    expired: int = 0
    #: That the client had gone past, and gave when it was sent back.
    client_skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """The records that are in the process now."""

    running: int = 0
    in_flight: int = 0
    in_flight_bytes: int = 0
    #: Handled, and not acknowledged by the store.
    waiting_for_marks: int = 0
    #: Calls that run for longer than they may; that were given up and have not ended; all that were given up.
    overdue: int = 0
    stuck: int = 0
    given_up: int = 0
    partitions_paused: int = 0
    #: Handlers that are paused at the limit of their dead letters.
    handlers_paused: int = 0
    #: Records a second that the ramp lets through after an assignment; None = it holds nothing back.
    ramp_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFigures:
    """Calls of one handler that have ended. Quick ones are timed several at a time and count with their mean; `max_s`
    may then be too high by the others of that time, 2 ms as a rule."""

    calls: int = 0
    seconds: float = 0.0
    max_s: float = 0.0
    #: Calls that took no longer than the bound of the same place in `BUCKETS_S`, one place more for all others.
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """Calls of one kind to the store, each for many items."""

    calls: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """The store, as seen from here."""

    #: The last call was answered. True where there is none.
    up: bool = True
    session: str = ""
    sessions_lost: int = 0
    calls: Mapping[str, CallFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceFigures:
    """Rebalances that were reported: gains are, when their effects are over."""

    by_trigger: Mapping[str, int] = field(default_factory=dict)
    #: Sums and maxima of `RebalanceReport.pause_s` and `recovered_s`.
    pause_s: float = 0.0
    pause_max_s: float = 0.0
    recovered_s: float = 0.0
    recovered_max_s: float = 0.0
    commits_sent: int = 0
    commits_refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A record that has come and is not done."""

    offset: int
    #: The name of its handler.
    handler: str
    #: Seconds since it became the lowest one that is not done, or since its call began, if that was before. While it
    #: waits for a worker: no longer than since workers were last given something.
    for_s: float
    #: In words.
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One partition that is assigned. Offsets are the next one to read; None = not known."""

    partition: Partition
    #: A phase of `Ownership` in lower case: "owned" is what works.
    phase: str
    #: Everything below is done; the next one to be polled; what the broker has acknowledged; the log's end, as the
    #: client has heard last.
    watermark: int | None = None
    next: int | None = None
    committed: int | None = None
    log_end: int | None = None
    in_flight: int = 0
    #: Of those in flight: their key is claimed by another, or a former owner may still work on them.
    waiting_for_claims: int = 0
    #: Rises at each change of ownership: what records of now carry as their fence.
    epoch: int | None = None
    #: The lowest of those in flight: all others may be done, and the offset to commit is still this one's.
    lowest: OpenRecord | None = None
    #: Of a retry topic that is paused: when its next record is due, in milliseconds since 1970.
    next_retry_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets that are not done yet."""
        if self.log_end is None or self.watermark is None:
            return None
        return max(0, self.log_end - self.watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """The figures that a family of sources adds to a snapshot."""

    suppressed: int = 0
    taken_up: int = 0
    commits_sent: int = 0
    commits_refused: int = 0
    partitions: tuple[PartitionFigures, ...] = ()
    silence: Silence | None = None
    #: See `KnowsItsPlace`.
    in_group: bool = True
    #: See `Snapshot`.
    member: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFigures:
    """Events of the audit that were taken, and that were given up: no room, or their sink has lost them."""

    events: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All figures of one app, taken between two steps of its loop: they fit together as the loop sees them.

    What workers do meanwhile (the handlers that run, the calls that have just ended) is as of the loop's last look, a
    few milliseconds ago. Counters begin at 0 with the app and only grow.
    """

    state: State
    group: str
    #: What brokers and tools call this member; None = the source does not say.
    member: str | None = None
    #: Milliseconds since 1970 when it was taken.
    at_ms: int
    #: Seconds since `run()`.
    uptime_s: float = 0.0
    #: Why the app stops or has stopped, where that is an error.
    error: str | None = None
    #: The name of that error's class: `error` may have what a handler's own error says, and that is the application's.
    error_type: str | None = None
    records: RecordFigures = RecordFigures()
    load: LoadFigures = LoadFigures()
    #: By the handler's name.
    handlers: Mapping[str, HandlerFigures] = field(default_factory=dict)
    store: StoreFigures = field(default_factory=StoreFigures)
    rebalances: RebalanceFigures = field(default_factory=RebalanceFigures)
    audit: AuditFigures = AuditFigures()
    #: In order; of a source without partitions empty.
    partitions: tuple[PartitionFigures, ...] = ()
    #: The brokers do not answer; None = they do, as far as the source looks.
    silence: Silence | None = None
    #: The group has not let this member in, or has thrown it out; None = it is a member.
    joining: Joining | None = None

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where it is not known of each: what is not known is not 0."""
        return self.lag_known if self.partitions and not self.lag_unknown_in else None

    @property
    def lag_known(self) -> int:
        """Of those partitions of which it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_unknown_in(self) -> int:
        """Partitions of which it is not known: the log's end was not heard yet, or they wait for their take-over."""
        return sum(each.lag is None for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """The snapshot for `json.dumps`."""
        found = asdict(self)
        found |= {"lag": self.lag, "lag_known": self.lag_known, "lag_unknown_in": self.lag_unknown_in}
        for each, partition in zip(found["partitions"], self.partitions, strict=True):
            each.update(partition=str(partition.partition), lag=partition.lag)
        return found


class Told(Protocol):
    """An app, as far as exporters ask it. Any thread but that of an event loop."""

    def snapshot(self) -> Snapshot:
        """The figures of now, within about a second."""
        ...


def check_groups(apps: Sequence[Told]) -> None:
    """Series and reasons go by the group. Raises SettingError: no app, or two of one group."""
    groups = [app.snapshot().group for app in apps]
    if not apps or len(set(groups)) < len(groups):
        raise SettingError("apps", groups, "give one app or more, each with a group of its own")
