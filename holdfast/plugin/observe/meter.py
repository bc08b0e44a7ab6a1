"""The meter: counts what one app does. Its snapshots are taken by `engine/snapshots.py`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from typing import TYPE_CHECKING

from holdfast.plugin.events import (
    ClientSkipped,
    DeadLettered,
    RebalanceReport,
    RecordFailed,
    RecordsExpired,
    SessionLost,
    SourceTrouble,
    StoreDown,
    StoreUp,
)
from holdfast.plugin.observe.snapshot import BUCKETS_S, MOST_REPORTS, HandlerFigures, RebalanceFigures, SourceFigures
from holdfast.plugin.observe.store_calls import StoreCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.plugin.events import Event
    from holdfast.timing import Clock


class _HandlerCounts:
    """The counts of one handler."""

    __slots__ = ("buckets", "calls", "dead_lettered", "failed_attempts", "max_s", "seconds")

    def __init__(self) -> None:
        self.calls, self.seconds, self.max_s = 0, 0.0, 0.0
        self.failed_attempts = self.dead_lettered = 0
        self.buckets = [0] * (len(BUCKETS_S) + 1)

    def add(self, calls: int, seconds: float) -> None:
        self.calls += calls
        self.seconds += seconds
        self.max_s = max(self.max_s, seconds)
        self.buckets[bisect_left(BUCKETS_S, seconds / calls)] += calls

    def figures(self) -> HandlerFigures:
        return HandlerFigures(
            calls=self.calls,
            seconds=self.seconds,
            max_s=self.max_s,
            buckets=tuple(self.buckets),
            failed_attempts=self.failed_attempts,
            dead_lettered=self.dead_lettered,
        )


class Meter:
    """The counters of one app. Only for the thread that runs the app."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.store_calls = StoreCalls(clock)
        #: Records that were polled, that were skipped since their position was known as done, and that a former owner
        #: had in hand and did not end.
        self.polled = self.suppressed = self.taken_up = 0
        #: Event's class -> how many were emitted.
        self.events: Counter[type[Event]] = Counter()
        self.drained = self.abandoned = self.expired = self.client_skipped = 0
        #: The store is down, and store_down="open".
        self.open = False
        #: (the last trouble of the source, its time); None once it is known to be over.
        self.trouble: tuple[str, float] | None = None
        self._handlers: dict[str, _HandlerCounts] = {}
        self._triggers: Counter[str] = Counter()
        self._reports: deque[RebalanceReport] = deque(maxlen=MOST_REPORTS)
        self._pauses: list[float] = [0.0, 0.0]
        self._recoveries: list[float] = [0.0, 0.0]

    def saw(self, event: Event) -> None:
        """Count an emitted event."""
        if isinstance(event, RebalanceReport):
            self._rebalanced(event)
        elif isinstance(event, RecordFailed):
            self.events[RecordFailed] += event.records
            self._of(event.handler).failed_attempts += event.records
        elif isinstance(event, DeadLettered):
            self.events[DeadLettered] += 1
            self._of(event.handler).dead_lettered += 1
        elif isinstance(event, SessionLost):
            self.events[SessionLost] += 1
        elif isinstance(event, RecordsExpired):
            self.expired += event.records
        elif isinstance(event, ClientSkipped):
            self.client_skipped += event.records
        elif isinstance(event, SourceTrouble):
            self.trouble = event.error, self._clock.now()
        elif isinstance(event, StoreDown):
            self.open = event.mode == "open"
        elif isinstance(event, StoreUp):
            self.open = False

    def _rebalanced(self, report: RebalanceReport) -> None:
        self._triggers[report.trigger] += 1
        self._reports.append(report)
        self.drained += report.drained
        self.abandoned += report.abandoned
        for sums, seconds in ((self._pauses, report.pause_s), (self._recoveries, report.recovered_s)):
            if seconds is not None:
                sums[0] += seconds
                sums[1] = max(sums[1], seconds)

    def took(self, timings: Iterable[tuple[str, int, float]]) -> None:
        """Count ended calls of handlers: (handler's name, number of calls, seconds of all)."""
        for handler, calls, seconds in timings:
            self._of(handler).add(calls, seconds)

    def _of(self, handler: str) -> _HandlerCounts:
        found = self._handlers.get(handler)
        if found is None:
            found = self._handlers[handler] = _HandlerCounts()
        return found

    def handlers(self) -> dict[str, HandlerFigures]:
        """Handler's name -> figures of its calls."""
        return {name: counts.figures() for name, counts in self._handlers.items()}

    def rebalances(self, source: SourceFigures) -> RebalanceFigures:
        """The figures of the rebalances that have a report."""
        return RebalanceFigures(
            by_trigger=dict(self._triggers),
            pause_s=self._pauses[0],
            pause_max_s=self._pauses[1],
            recovered_s=self._recoveries[0],
            recovered_max_s=self._recoveries[1],
            commits_sent=source.commits_sent,
            commits_refused=source.commits_refused,
            last=tuple(self._reports),
        )
