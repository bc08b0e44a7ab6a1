"""The meter: collects the figures of one app on its loop's thread, and takes snapshots for all others."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from holdfast.plugin.events import (
    DeadLettered,
    RebalanceReport,
    RecordFailed,
    SessionLost,
    Status,
    Stopped,
    Stopping,
    StoreDown,
    StoreUp,
)
from holdfast.plugin.observe.snapshot import (
    BUCKETS_S,
    HandlerFigures,
    LoadFigures,
    RebalanceFigures,
    RecordFigures,
    Snapshot,
    SourceFigures,
    State,
    StoreFigures,
)
from holdfast.plugin.observe.store_calls import StoreCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.plugin.engine.core import Core
    from holdfast.plugin.events import Event
    from holdfast.runtime import Thread

#: How long `snapshot()` waits for the loop, which may be waiting for a broker or a store; then it gives the last one.
_WAIT_S = 1.0


class _Timings:
    """Calls of one handler."""

    __slots__ = ("buckets", "calls", "max_s", "seconds")

    def __init__(self) -> None:
        self.calls, self.seconds, self.max_s = 0, 0.0, 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)

    def add(self, calls: int, seconds: float) -> None:
        self.calls += calls
        self.seconds += seconds
        self.max_s = max(self.max_s, seconds)
        self.buckets[bisect_left(BUCKETS_S, seconds / calls)] += calls

    def figures(self) -> HandlerFigures:
        return HandlerFigures(calls=self.calls, seconds=self.seconds, max_s=self.max_s, buckets=tuple(self.buckets))


class Meter:
    """The figures. All belong to the thread that runs the app, but for `snapshot`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.store_calls = StoreCalls(core.clock)
        self.polled = 0
        self._timings: dict[str, _Timings] = {}
        self._events: Counter[type[Event]] = Counter()
        self._triggers: Counter[str] = Counter()
        self._drained = self._abandoned = 0
        self._pauses: list[float] = [0.0, 0.0]
        self._recoveries: list[float] = [0.0, 0.0]
        self._open = False  # a store that is down, with store_down="open"
        self._began: float | None = None
        self._state: State = "new"
        #: Store, dead letters and group were reached once.
        self.ran = False
        self._thread: Thread | None = None
        #: Somebody waits for a snapshot.
        self.wanted = False
        self._taken = core.runtime.condition()
        self._last = self.take()
        self._status_last = (0.0, 0)

    # ---- feeding it
    def started(self) -> None:
        """`run()` has begun, in this thread."""
        self._thread = self._core.runtime.current()
        self._began = self._core.clock.now()
        self._state = "starting"
        interval_s = self._core.settings.status_interval_s
        if interval_s:
            self._status_last = (self._began, 0)
            self._core.timers.after(interval_s, self._status)

    def running(self) -> None:
        """Store, dead letters and group are reached."""
        self._state = "running"
        self.ran = True

    def stopping(self, why: str) -> None:
        """The app begins to leave."""
        core, load = self._core, self.take().load
        drain_s = core.settings.drain_timeout_s
        core.tell(
            Stopping(group=core.group, why=why, running=load.running, in_flight=load.in_flight, drain_timeout_s=drain_s)
        )

    def stopped(self, in_hand: int) -> None:
        """`run()` ends: the summary, and the last snapshot."""
        self._state = "stopped"
        taken = self.take()
        records = taken.records
        self._core.tell(
            Stopped(
                group=taken.group,
                uptime_s=taken.uptime_s,
                handled=records.handled,
                skipped=records.suppressed_by_position + records.suppressed_by_key,
                repeated=records.retried + records.taken_up,
                dead_lettered=records.dead_lettered,
                failed_attempts=records.failed_attempts,
                in_hand=in_hand,
            )
        )
        self._thread = None
        self.publish()

    def saw(self, event: Event) -> None:
        """An event that was told."""
        if isinstance(event, RebalanceReport):
            self._triggers[event.trigger] += 1
            self._drained += event.drained
            self._abandoned += event.abandoned
            for sums, seconds in ((self._pauses, event.pause_s), (self._recoveries, event.recovered_s)):
                if seconds is not None:
                    sums[0] += seconds
                    sums[1] = max(sums[1], seconds)
        elif isinstance(event, RecordFailed):
            self._events[RecordFailed] += event.records
        elif isinstance(event, (DeadLettered, SessionLost)):
            self._events[type(event)] += 1
        elif isinstance(event, StoreDown):
            self._open = event.mode == "open"
        elif isinstance(event, StoreUp):
            self._open = False

    def took(self, timings: Iterable[tuple[str, int, float]]) -> None:
        """Calls of handlers that have ended: the handler's name, how many, how long they took together."""
        for handler, calls, seconds in timings:
            found = self._timings.get(handler)
            if found is None:
                found = self._timings[handler] = _Timings()
            found.add(calls, seconds)

    # ---- taking snapshots
    def snapshot(self) -> Snapshot:
        """The figures of now; where the loop does not come to it within a second, those it took last. Any thread."""
        if self._thread == self._core.runtime.current():
            return self.take()  # an observer, or a signal handler: it may not wait for itself
        before = self._last
        if self._thread is not None:
            self.wanted = True
            self._core.workers.wake.set()
            with self._taken:
                self._taken.wait_for(lambda: self._last is not before, _WAIT_S)
        return self._last

    def publish(self) -> None:
        """Take one for those who wait."""
        taken = self.take()
        with self._taken:
            self._last, self.wanted = taken, False
            self._taken.notify_all()

    @property
    def state(self) -> State:
        """In words."""
        if self._state == "running":
            if self._core.stopping:
                return "leaving"
            if self._core.stalled:
                return "paused: store down"
        return self._state

    # ---- inside
    def _status(self) -> None:
        """One line now, and the next after the interval."""
        core, taken = self._core, self.take()
        now = core.clock.now()
        since, handled = self._status_last
        self._status_last = (now, taken.records.handled)
        core.timers.after(core.settings.status_interval_s, self._status)
        records, load = taken.records, taken.load
        core.tell(
            Status(
                state=taken.state,
                group=core.group,
                handled=records.handled,
                rate_s=(records.handled - handled) / max(now - since, 1e-9),
                in_flight=load.in_flight,
                running=load.running,
                lag=taken.lag,
                partitions=len(taken.partitions),
                store="none" if core.storeless else "up" if taken.store.up else "down",
                duplicates=records.suppressed_by_position + records.suppressed_by_key,
                failed_attempts=records.failed_attempts,
                dead_lettered=records.dead_lettered,
                overdue=load.overdue,
                stuck=load.stuck,
            )
        )

    def take(self) -> Snapshot:
        """The figures of now, for whoever owns the app at the moment."""
        core = self._core
        family = getattr(core, "family", None)
        source = SourceFigures() if family is None else family.figures()
        return Snapshot(
            state=self.state,
            group=core.group,
            at_ms=core.runtime.wall_ms(),
            uptime_s=0.0 if self._began is None else core.clock.now() - self._began,
            error=None if core.error is None else str(core.error),
            records=RecordFigures(
                polled=self.polled,
                handled=core.outcomes.handled,
                failed_attempts=self._events[RecordFailed],
                retried=core.outcomes.retried,
                dead_lettered=self._events[DeadLettered],
                suppressed_by_position=source.suppressed,
                suppressed_by_key=core.settling.skipped,
                handed_back=core.outcomes.handed_back,
                released=core.outcomes.released,
                taken_up=source.taken_up,
                drained=self._drained,
                abandoned=self._abandoned,
            ),
            load=LoadFigures(
                running=core.workers.running,
                in_flight=core.intake.records,
                in_flight_bytes=core.intake.bytes,
                waiting_for_marks=core.settling.waiting,
                overdue=core.hung.overdue,
                stuck=core.workers.stuck,
                given_up=core.hung.given_up,
                partitions_paused=core.intake.paused,
                handlers_paused=len(core.outcomes.brakes.paused),
                ramp_per_s=None if core.intake.climb.over else core.intake.climb.rate,
            ),
            handlers={name: timings.figures() for name, timings in self._timings.items()},
            store=StoreFigures(
                up=not (core.outage.down or self._open),
                session=core.session.id if core.session is not None else "",
                sessions_lost=self._events[SessionLost],
                calls=self.store_calls.figures(),
            ),
            rebalances=RebalanceFigures(
                by_trigger=dict(self._triggers),
                pause_s=self._pauses[0],
                pause_max_s=self._pauses[1],
                recovered_s=self._recoveries[0],
                recovered_max_s=self._recoveries[1],
                commits_sent=source.commits_sent,
                commits_refused=source.commits_refused,
            ),
            audit=core.recorder.figures(),
            partitions=source.partitions,
        )
