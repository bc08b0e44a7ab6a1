"""Recorder: reports the engine's work to the audit. Without an audit it does nothing.

A record counts as *handled* when the loop sees its handler's end (5 ms later at most), whether or not the store learns
of it: it is an execution even if its mark is lost and the record runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.audit.schema import AuditPartition, Outcome, Rebalanced, label
from holdfast.plugin.events import RebalanceReport
from holdfast.plugin.observe.snapshot import AuditFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.timers import Timers
    from holdfast.plugin.events import Event
    from holdfast.plugin.observe.snapshot import PartitionFigures
    from holdfast.records import Partition
    from holdfast.runtime import Runtime

#: After partitions came: by then the client has heard of the ends of their logs, as a rule.
_SOON_S = 0.5


class Recorder:
    """Without an audit: does nothing. One thread, the one that runs the app (or holds a `Driven` engine's lock)."""

    #: Whether there is an audit.
    on = False

    def open(self) -> None:
        """Before the group is joined. Raises SettingError, OSError: nothing can be told there."""

    def started(self, family: Family) -> None:
        """The group is joined."""

    def stopped(self, *, clean: bool, in_hand: int, error: Exception | None) -> None:
        """Nothing more will happen."""

    def begins(self, entries: Iterable[Entry]) -> None:
        """Entries are given to their handler."""

    def ended(self, entry: Entry, outcome: Outcome) -> None:
        """All records of an entry have ended so."""

    def passed(self, owner: Ownership, offsets: range, outcome: Outcome) -> None:
        """Offsets that no handler is called for: known as done, absent from the log, or passed by the client."""

    def acquired(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """Partitions are taken over."""

    def released(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """Partitions are let go, or lost."""

    def flush(self) -> None:
        """Write what is noted: a hand-over comes to the broker, and the process may not outlive it."""

    def figures(self) -> AuditFigures:
        """For a snapshot."""
        return AuditFigures()


class EngineRecorder(Recorder):
    """Writes into a book; also an observer, for the reports of rebalances."""

    on = True

    def __init__(self, audit: Audit, *, group: str, timers: Timers, runtime: Runtime) -> None:
        self._timers, self._wall_ms, self._every_s = timers, runtime.wall_ms, audit.progress_s
        self._family: Family | None = None
        from holdfast.plugin.audit.book import Book  # noqa: PLC0415 - most apps have no audit

        self._book = Book(audit, group)
        self._add, self._keys = self._book.add, self._book.keys
        self._soon = False

    def open(self) -> None:
        """See `Recorder`."""
        self._book.open()

    def started(self, family: Family) -> None:
        """See `Recorder`."""
        self._family = family
        source = getattr(family, "source", None)
        name = getattr(source, "known_as", type(source).__name__)
        self._book.start(name, getattr(source, "protocol", None), ordered=family.by_position)
        self._timers.after(self._every_s, self._look)

    def stopped(self, *, clean: bool, in_hand: int, error: Exception | None) -> None:
        """See `Recorder`."""
        self._book.stop(clean=clean, in_hand=in_hand, error=None if error is None else type(error).__name__)

    def begins(self, entries: Iterable[Entry]) -> None:
        """See `Recorder`."""
        now = self._wall_ms()
        for entry in entries:
            entry.began_ms = now

    def ended(self, entry: Entry, outcome: Outcome) -> None:
        """See `Recorder`."""
        owner, now = entry.owner, self._wall_ms()
        keys: Iterable[tuple[int, str]] = ()
        if self._keys and (claims := entry.asked_for):
            keys = [(offset, claim.key.key) for offset, claim in zip(entry.offsets, claims, strict=True)]
        offset = entry.record.offset
        offsets = (range(offset, offset + 1),) if entry.count == 1 else entry.ranges
        self._add(owner, outcome, offsets, (entry.began_ms or now, now), keys)

    def passed(self, owner: Ownership, offsets: range, outcome: Outcome) -> None:
        """See `Recorder`."""
        now = self._wall_ms()
        self._add(owner, outcome, (offsets,), (now, now))

    def acquired(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """See `Recorder`."""
        if places:
            self._book.acquired(places, trigger)
            if not self._soon:
                self._soon = True
                self._timers.after(_SOON_S, self._progress)

    def released(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """See `Recorder`."""
        if places:
            self._book.released(places, trigger)

    def flush(self) -> None:
        """See `Recorder`."""
        self._book.flush()
        self._book.emitter.wake()

    def figures(self) -> AuditFigures:
        """See `Recorder`."""
        return AuditFigures(events=self._book.emitter.taken, dropped=self._book.emitter.dropped)

    def on_event(self, event: Event) -> None:
        """Record an event, as an observer does."""
        if isinstance(event, RebalanceReport):
            self._book.tell(_rebalanced(event))

    # ---- inside
    def _look(self) -> None:
        self._timers.after(self._every_s, self._look)
        self._progress()

    def _progress(self) -> None:
        self._soon = False
        partitions = self._family.figures().partitions if self._family is not None else ()
        places = [_place(each) for each in partitions if each.watermark is not None]
        if places:
            self._book.stands(places)


def place_of(
    partition: Partition, epoch: int, position: int | None, end: int | None, in_flight: int | None = None
) -> AuditPartition:
    """Return how a partition stands, for the audit."""
    return AuditPartition(
        topic=partition.topic,
        partition=label(partition),
        epoch=epoch or None,
        position=position,
        end=end,
        in_flight=in_flight,
    )


def _place(each: PartitionFigures) -> AuditPartition:
    return place_of(each.partition, each.epoch or 0, each.watermark, each.log_end, each.in_flight)


def _rebalanced(report: RebalanceReport) -> Rebalanced:
    return Rebalanced(
        trigger=report.trigger,
        gained=len(report.gained),
        given=len(report.given),
        drained=report.drained,
        abandoned=report.abandoned,
        handed_back=report.handed_back,
        duplicates_suppressed=report.duplicates_suppressed,
        phases_s={phase: round(seconds, 6) for phase, seconds in report.phases_s.items()},
        pause_s=report.pause_s,
        recovered_s=report.recovered_s,
        steady_intake_per_s=report.steady_intake_per_s,
        peak_intake_per_s=report.peak_intake_per_s,
        ramp_s=report.ramp_s,
    )
