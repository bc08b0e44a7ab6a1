"""Metrics: the table of all names, kinds, units and labels, with the function that reads each from a snapshot.

An exporter needs only this: `for metric in METRICS: for labels, value in metric.read(app.snapshot())`. A metric with
the label "partition" has a series for each partition; all others have few, also in a large group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, get_args

from holdfast.plugin.observe.snapshot import BUCKETS_S, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.plugin.observe.snapshot import CallFigures, HandlerFigures, PartitionFigures, Snapshot


class Kind(Enum):
    """The meaning of a metric's values."""

    COUNTER = "counter"  #: grows from 0, since the start of the app
    GAUGE = "gauge"
    HISTOGRAM = "histogram"  #: its values are `Histogram`s


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of values: `counts[i]` of them are at most `bounds[i]` and above the bound before; the last
    count is for values above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """The number of all values."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """(bound, number of values up to it) for each bound and "+Inf", as exporters need it."""
        return list(zip([*map(str, self.bounds), "+Inf"], accumulate(self.counts), strict=True))


Labels = tuple[str, ...]
Value = float | Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table."""

    #: Named by Prometheus' rules: base units, and counters end in _total.
    name: str
    kind: Kind
    #: "records", "seconds", "bytes", ...; empty = a plain number.
    unit: str
    help: str
    #: Names of the labels; their values come in this order.
    labels: tuple[str, ...] = ()
    #: The values in a snapshot, each with its labels' values.
    read: Callable[[Snapshot], Iterable[tuple[Labels, Value]]]

    @property
    def of_partitions(self) -> bool:
        """Whether it has a series for each partition."""
        return "partition" in self.labels


def _one(name: str, kind: Kind, unit: str, help_: str, read: Callable[[Snapshot], float]) -> Metric:
    return Metric(name=f"holdfast_{name}", kind=kind, unit=unit, help=help_, read=lambda s: [((), read(s))])


def _counter(name: str, unit: str, help_: str, read: Callable[[Snapshot], float]) -> Metric:
    return _one(f"{name}_total", Kind.COUNTER, unit, help_, read)


def _gauge(name: str, unit: str, help_: str, read: Callable[[Snapshot], float]) -> Metric:
    return _one(name, Kind.GAUGE, unit, help_, read)


def _of_handlers(
    name: str, kind: Kind, help_: str, read: Callable[[HandlerFigures], Value], unit: str = "seconds"
) -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        kind=kind,
        unit=unit,
        help=help_,
        labels=("handler",),
        read=lambda s: [((handler,), read(each)) for handler, each in s.handlers.items()],
    )


def _of_calls(name: str, unit: str, help_: str, read: Callable[[CallFigures], float]) -> Metric:
    return Metric(
        name=f"holdfast_{name}_total",
        kind=Kind.COUNTER,
        unit=unit,
        help=help_,
        labels=("call",),
        read=lambda s: [((call,), read(each)) for call, each in s.store.calls.items()],
    )


def _of_partitions(
    name: str, help_: str, read: Callable[[PartitionFigures], float | None], unit: str = "records"
) -> Metric:
    def values(snapshot: Snapshot) -> Iterable[tuple[Labels, Value]]:
        for each in snapshot.partitions:
            value = read(each)
            if value is not None:
                place = each.partition
                yield (place.topic, f"{place.broker}-{place.number}" if place.broker else str(place.number)), value

    return Metric(
        name=f"holdfast_partition_{name}",
        kind=Kind.GAUGE,
        unit=unit,
        help=help_,
        labels=("topic", "partition"),
        read=values,
    )


#: Exported from the start, since Prometheus' increase() does not count the first step of a counter that begins at 1.
_NO_REBALANCES = dict.fromkeys(("assigned", "revoked", "lost", "leave", "session lost"), 0)

METRICS: tuple[Metric, ...] = (
    Metric(
        name="holdfast_state",
        kind=Kind.GAUGE,
        unit="",
        help="1 for the current state of the app, 0 for all others.",
        labels=("state",),
        read=lambda s: [((state,), float(s.state == state)) for state in get_args(State)],
    ),
    _gauge("uptime_seconds", "seconds", "Time since run().", lambda s: s.uptime_s),
    # ---- records
    _counter("records_polled", "records", "Records that the client delivered.", lambda s: s.records.polled),
    _counter(
        "records_handled", "records", "Records that a handler handled without an error.", lambda s: s.records.handled
    ),
    _counter(
        "attempts_failed",
        "",
        "Failed handler attempts and failed dead-letter sends.",
        lambda s: s.records.failed_attempts,
    ),
    _counter("attempts_retried", "", "Handler attempts that followed a failed one.", lambda s: s.records.retried),
    _counter(
        "records_dead_lettered",
        "records",
        "Records whose dead letter the broker acknowledged.",
        lambda s: s.records.dead_lettered,
    ),
    Metric(
        name="holdfast_duplicates_suppressed_total",
        kind=Kind.COUNTER,
        unit="records",
        help="Records that were skipped because they were done already, by position or by business key.",
        labels=("by",),
        read=lambda s: [
            (("position",), s.records.suppressed_by_position),
            (("key",), s.records.suppressed_by_key),
        ],
    ),
    _counter(
        "records_handed_back",
        "records",
        "Records polled but not started before their partition moved away.",
        lambda s: s.records.handed_back,
    ),
    _counter(
        "records_released",
        "records",
        "Records whose handler failed after their partition had moved away; the new owner runs them.",
        lambda s: s.records.released,
    ),
    _counter(
        "records_taken_up",
        "records",
        "Records that a former owner started and did not finish; this member runs them again.",
        lambda s: s.records.taken_up,
    ),
    _counter("records_drained", "records", "Records whose handler ended within a drain.", lambda s: s.records.drained),
    _counter(
        "records_abandoned",
        "records",
        "Records whose handler was still running when a drain ended.",
        lambda s: s.records.abandoned,
    ),
    _counter(
        "records_expired",
        "records",
        "Upper bound of records that the log deleted before they were read.",
        lambda s: s.records.expired,
    ),
    _counter(
        "records_client_skipped",
        "records",
        "Records that the client skipped by a fault of its own; holdfast moved it back, and they were handled.",
        lambda s: s.records.client_skipped,
    ),
    # ---- what is in the process
    _gauge("handlers_running", "", "Handler calls that are running.", lambda s: s.load.running),
    _gauge("in_flight_records", "records", "Records polled and not done yet.", lambda s: s.load.in_flight),
    _gauge(
        "in_flight_bytes",
        "bytes",
        "Size of the records in flight, including headers.",
        lambda s: s.load.in_flight_bytes,
    ),
    _gauge(
        "marks_waiting",
        "records",
        "Records handled and not yet acknowledged by the store.",
        lambda s: s.load.waiting_for_marks,
    ),
    _gauge(
        "handlers_paused",
        "",
        "Handlers paused because they reached their limit of dead letters.",
        lambda s: s.load.handlers_paused,
    ),
    _gauge(
        "partitions_paused",
        "",
        "Partitions that are paused: they deliver no records for now.",
        lambda s: s.load.partitions_paused,
    ),
    _gauge(
        "waiting_for_claims_records",
        "records",
        "Records in flight that wait for a key claimed elsewhere, or for a former owner that may still handle them.",
        lambda s: sum(each.waiting_for_claims for each in s.partitions),
    ),
    _gauge(
        "waiting_for_turn_records",
        "records",
        "Records that were polled and are not in flight: their partition has its share of max_in_flight.",
        lambda s: sum(each.waiting_for_turn for each in s.partitions),
    ),
    _gauge(
        "oldest_record_seconds",
        "seconds",
        "How long, at most, a record has kept its partition's offset from advancing, or its call has run; "
        "queueing does not count.",
        lambda s: max((each.lowest.for_s for each in s.partitions if each.lowest is not None), default=0.0),
    ),
    Metric(
        name="holdfast_ramp_records_per_second",
        kind=Kind.GAUGE,
        unit="records per second",
        help="Rate that the ramp allows after an assignment; no value while the ramp limits nothing.",
        read=lambda s: [] if s.load.ramp_per_s is None else [((), s.load.ramp_per_s)],
    ),
    # ---- handlers
    _of_handlers(
        "handler_seconds",
        Kind.HISTOGRAM,
        "Duration of handler calls.",
        lambda each: Histogram(BUCKETS_S, each.buckets, each.seconds),
    ),
    _of_handlers("handler_max_seconds", Kind.GAUGE, "Longest handler call since the start.", lambda each: each.max_s),
    _of_handlers(
        "handler_attempts_failed_total",
        Kind.COUNTER,
        "As holdfast_attempts_failed_total, by handler.",
        lambda each: each.failed_attempts,
        "",
    ),
    _of_handlers(
        "handler_records_dead_lettered_total",
        Kind.COUNTER,
        "As holdfast_records_dead_lettered_total, by handler.",
        lambda each: each.dead_lettered,
        "records",
    ),
    _gauge("handlers_overdue", "", "Handler calls that have run past their timeout.", lambda s: s.load.overdue),
    _gauge("handlers_stuck", "", "Handler calls that were given up and are still running.", lambda s: s.load.stuck),
    _counter(
        "handlers_given_up",
        "",
        "Handler calls that were given up: they outlasted their timeout and its grace.",
        lambda s: s.load.given_up,
    ),
    # ---- the store
    _gauge("store_up", "", "1 if the store answered the last call, else 0.", lambda s: s.store.up),
    _of_calls("store_calls", "", "Calls to the store.", lambda each: each.calls),
    _of_calls("store_call_seconds", "seconds", "Total duration of calls to the store.", lambda each: each.seconds),
    _of_calls("store_call_failures", "", "Calls that the store did not answer.", lambda each: each.failures),
    _counter(
        "sessions_lost", "", "Store sessions that this member did not renew in time.", lambda s: s.store.sessions_lost
    ),
    # ---- rebalances
    Metric(
        name="holdfast_rebalances_total",
        kind=Kind.COUNTER,
        unit="",
        help="Rebalances that were reported.",
        labels=("trigger",),
        read=lambda s: [
            ((trigger,), float(count)) for trigger, count in {**_NO_REBALANCES, **s.rebalances.by_trigger}.items()
        ],
    ),
    _counter(
        "rebalance_pause_seconds",
        "seconds",
        "Total time from assignments until the first record of a gained partition started.",
        lambda s: s.rebalances.pause_s,
    ),
    _gauge(
        "rebalance_pause_max_seconds",
        "seconds",
        "Longest time from an assignment until the first record of a gained partition started.",
        lambda s: s.rebalances.pause_max_s,
    ),
    _counter(
        "rebalance_recovered_seconds",
        "seconds",
        "Total time from assignments until the lag found at the assignment was handled.",
        lambda s: s.rebalances.recovered_s,
    ),
    _gauge(
        "rebalance_recovered_max_seconds",
        "seconds",
        "Longest time from an assignment until the lag found at it was handled.",
        lambda s: s.rebalances.recovered_max_s,
    ),
    _counter(
        "commits_sent", "", "Offsets sent to the broker, counted per partition.", lambda s: s.rebalances.commits_sent
    ),
    _counter("commits_refused", "", "Offsets that the broker refused.", lambda s: s.rebalances.commits_refused),
    # ---- the audit
    _counter("audit_events", "events", "Audit events that were accepted.", lambda s: s.audit.events),
    _counter("audit_dropped", "events", "Audit events that were dropped.", lambda s: s.audit.dropped),
    # ---- partitions, together
    _gauge("partitions_assigned", "", "Partitions assigned to this member.", lambda s: len(s.partitions)),
    _gauge(
        "partitions_owned",
        "",
        "Assigned partitions that are taken over; records of the other assigned partitions wait.",
        lambda s: sum(each.phase == "owned" for each in s.partitions),
    ),
    Metric(
        name="holdfast_lag_records",
        kind=Kind.GAUGE,
        unit="records",
        help="Lag of all partitions: offsets not done yet; no value while the lag of a partition is unknown.",
        read=lambda s: [] if s.lag is None else [((), float(s.lag))],
    ),
    _gauge(
        "partitions_lag_unknown",
        "",
        "Assigned partitions whose lag is unknown: the log's end is unknown, or the takeover is not over.",
        lambda s: s.lag_unknown_in,
    ),
    # ---- partitions, each by itself
    _of_partitions("watermark_offset", "Offset below which every record is done.", lambda each: each.watermark),
    _of_partitions("next_offset", "The next offset to be polled.", lambda each: each.next),
    _of_partitions(
        "committed_offset", "Committed offset that the broker has acknowledged.", lambda each: each.committed
    ),
    _of_partitions("log_end_offset", "End of the log, as the client heard it last.", lambda each: each.log_end),
    _of_partitions("lag_records", "Lag: offsets not done yet.", lambda each: each.lag),
    _of_partitions("in_flight_records", "Records polled and not done yet.", lambda each: each.in_flight),
    _of_partitions(
        "waiting_for_claims_records",
        "Records in flight that wait for a key claimed elsewhere, or for a former owner that may still handle them.",
        lambda each: each.waiting_for_claims,
    ),
    _of_partitions(
        "waiting_for_turn_records",
        "Records that were polled and are not in flight: the partition has its share of max_in_flight.",
        lambda each: each.waiting_for_turn,
    ),
    _of_partitions(
        "oldest_record_seconds",
        "How long a record has kept the offset from advancing, or its call has run; queueing does not count.",
        lambda each: None if each.lowest is None else each.lowest.for_s,
        "seconds",
    ),
)
