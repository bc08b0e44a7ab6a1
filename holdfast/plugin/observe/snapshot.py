"""A snapshot: the figures of an app at one moment, frozen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.errors import SettingError
from holdfast.plugin.event_line import ranges_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.events import RebalanceReport
    from holdfast.plugin.observe.source_state import Joining, Silence
    from holdfast.records import Partition

State = Literal["new", "starting", "joining", "running", "paused: store down", "leaving", "stopped"]

#: Upper bounds, in seconds, of the counts in `HandlerFigures.buckets`.
BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
#: Reports of rebalances that a snapshot has.
MOST_REPORTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFigures:
    """Records since the start."""

    polled: int = 0
    #: Records handled without an error.
    handled: int = 0
    #: Failed handler attempts and failed dead-letter sends; handler attempts that followed a failed one.
    failed_attempts: int = 0
    retried: int = 0
    dead_lettered: int = 0
    #: Duplicates that were skipped: known as done by their position, or by their business key.
    suppressed_by_position: int = 0
    suppressed_by_key: int = 0
    #: Left to the next owner: records not started before their partition moved away, and records whose handler failed
    #: after that.
    handed_back: int = 0
    released: int = 0
    #: Records that a former owner started and did not finish; they run here again.
    taken_up: int = 0
    #: Records whose handler ended within a drain, and whose handler outlived it, as in `RebalanceReport`.
    drained: int = 0
    abandoned: int = 0
    #: Upper bound of records that the log deleted (retention) before they were read.
    expired: int = 0
    #: Records that the client skipped, and delivered after holdfast had moved it back.
    client_skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """Records and handler calls that are in the process now."""

    running: int = 0
    in_flight: int = 0
    in_flight_bytes: int = 0
    #: Records handled and not yet acknowledged by the store.
    waiting_for_marks: int = 0
    #: Calls that run past their timeout; calls that were given up and still run; all calls that were given up.
    overdue: int = 0
    stuck: int = 0
    given_up: int = 0
    partitions_paused: int = 0
    #: Handlers that are paused at the limit of their dead letters.
    handlers_paused: int = 0
    #: Records a second that the ramp allows after an assignment; None = it limits nothing.
    ramp_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFigures:
    """Calls of one handler that have ended. Quick calls are timed several at a time and count with their mean; `max_s`
    may then be too high by the time of the other calls, usually 2 ms."""

    calls: int = 0
    seconds: float = 0.0
    max_s: float = 0.0
    #: Number of calls up to the bound at the same index of `BUCKETS_S`, and one more number for all longer calls.
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)
    #: As in `RecordFigures`, of this handler.
    failed_attempts: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """Calls of one kind to the store; each call is for many items."""

    calls: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """The store, as this process sees it."""

    #: The store answered the last call. True without a store.
    up: bool = True
    session: str = ""
    sessions_lost: int = 0
    calls: Mapping[str, CallFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceFigures:
    """Reported rebalances. A rebalance with gained partitions is reported when its effects are over."""

    by_trigger: Mapping[str, int] = field(default_factory=dict)
    #: Sums and maxima of `RebalanceReport.pause_s` and `recovered_s`.
    pause_s: float = 0.0
    pause_max_s: float = 0.0
    recovered_s: float = 0.0
    recovered_max_s: float = 0.0
    commits_sent: int = 0
    commits_refused: int = 0
    #: The last `MOST_REPORTS` reports, the newest last.
    last: tuple[RebalanceReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecord:
    """A record that was polled and is not done."""

    offset: int
    #: The name of its handler.
    handler: str
    #: Seconds since it became the lowest one that is not done, or since its call began, if that was earlier. While it
    #: waits for a worker: at most the time since a worker got a record last.
    for_s: float
    #: The reason of the wait, in words.
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One assigned partition. An offset is that of the next record to read; None = unknown."""

    partition: Partition
    #: A phase of `Ownership` in lower case; records are handled in the phase "owned". "unnamed": the broker has not
    #: reported which log it is.
    phase: str
    #: The offset below which everything is done; the next one to poll; the committed one that the broker acknowledged;
    #: the log's end, as the client heard it last.
    watermark: int | None = None
    next: int | None = None
    committed: int | None = None
    log_end: int | None = None
    in_flight: int = 0
    #: Records in flight that wait for a key claimed elsewhere, or for a former owner that may still handle them.
    waiting_for_claims: int = 0
    #: Records that were polled and are not in flight: the partition has its share of what may be.
    waiting_for_turn: int = 0
    #: Grows at each change of the partition's owner; records carry it in their fence.
    epoch: int | None = None
    #: The lowest record in flight. All others may be done, and the offset to commit is still this record's.
    lowest: OpenRecord | None = None
    #: Why the client delivers nothing of the partition for now, in words; None = nothing holds it back.
    paused: str | None = None
    #: When the next record of a paused retry topic is due, in milliseconds since 1970.
    next_retry_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets that are not done yet; None = unknown."""
        if self.log_end is None or self.watermark is None:
            return None
        return max(0, self.log_end - self.watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """The figures that a family of sources adds to a snapshot."""

    commits_sent: int = 0
    commits_refused: int = 0
    partitions: tuple[PartitionFigures, ...] = ()
    silence: Silence | None = None
    #: See `KnowsMembership`.
    in_group: bool = True
    #: See `Snapshot`.
    member: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFigures:
    """Audit events that were accepted, and those that were dropped: the buffer was full, or the sink lost them."""

    events: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All figures of one app, taken between two steps of its loop, so that they fit together.

    Figures of the workers (running handlers, calls that have just ended) are those of the loop's last look, some
    milliseconds ago. Counters begin at 0 with the app and only grow.
    """

    state: State
    group: str
    #: This member's name at brokers and in tools; None = the source has none.
    member: str | None = None
    #: When the snapshot was taken, in milliseconds since 1970.
    at_ms: int
    #: Seconds since `run()`.
    uptime_s: float = 0.0
    #: The error that stops or has stopped the app.
    error: str | None = None
    #: The name of that error's class. The text in `error` may come from a handler, so endpoints show the class alone.
    error_type: str | None = None
    records: RecordFigures = RecordFigures()
    load: LoadFigures = LoadFigures()
    #: Handler's name -> its calls.
    handlers: Mapping[str, HandlerFigures] = field(default_factory=dict)
    store: StoreFigures = field(default_factory=StoreFigures)
    rebalances: RebalanceFigures = field(default_factory=RebalanceFigures)
    audit: AuditFigures = AuditFigures()
    #: Sorted; empty for a source without partitions.
    partitions: tuple[PartitionFigures, ...] = ()
    #: Set while the brokers do not answer; None = they answer, as far as the source checks.
    silence: Silence | None = None
    #: Set while the group has not let this member in, or has thrown it out; None = it is a member.
    joining: Joining | None = None

    @property
    def lag(self) -> int | None:
        """The lag of all partitions; None while the lag of one is unknown."""
        return self.lag_known if self.partitions and not self.lag_unknown_in else None

    @property
    def lag_known(self) -> int:
        """The lag of the partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_unknown_in(self) -> int:
        """Number of partitions whose lag is unknown: the log's end is unknown, or the takeover is not over."""
        return sum(each.lag is None for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """The snapshot for `json.dumps`."""
        found = asdict(replace(self, rebalances=replace(self.rebalances, last=())))
        found["rebalances"]["last"] = [_report(each) for each in self.rebalances.last]
        found |= {
            "buckets_s": BUCKETS_S,
            "lag": self.lag,
            "lag_known": self.lag_known,
            "lag_unknown_in": self.lag_unknown_in,
        }
        for each, partition in zip(found["partitions"], self.partitions, strict=True):
            each.update(partition=str(partition.partition), lag=partition.lag)
        return found


def _report(report: RebalanceReport) -> dict[str, Any]:
    """A report for `json.dumps`, its partitions in the short form of log lines: a group may have thousands."""
    found = {each.name: getattr(report, each.name) for each in fields(report)}
    return found | {"gained": ranges_of(report.gained), "given": ranges_of(report.given)}


class HasSnapshot(Protocol):
    """The part of an app that exporters call. Any thread but that of an event loop."""

    def snapshot(self) -> Snapshot:
        """The current figures, within about a second."""
        ...


def check_groups(apps: Sequence[HasSnapshot]) -> None:
    """Check that each app has a group of its own, since metrics and reasons are labelled by group. Raises
    SettingError."""
    groups = [app.snapshot().group for app in apps]
    if not apps or len(set(groups)) < len(groups):
        raise SettingError("apps", groups, "give one app or more, each with a group of its own")
