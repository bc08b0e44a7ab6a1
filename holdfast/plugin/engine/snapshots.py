"""Snapshots: take the app's figures on its loop's thread for other threads, and report its start and end.

Snapshots are taken by the loop's thread, on demand: no other thread may walk its dictionaries, and it costs
nothing unasked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.events import DeadLettered, RecordFailed, SessionLost, Status, Stopped, Stopping
from holdfast.plugin.observe.snapshot import LoadFigures, RecordFigures, Snapshot, SourceFigures, State, StoreFigures
from holdfast.plugin.observe.source_state import Joining

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.parts import Parts
    from holdfast.runtime import Thread

#: How long `snapshot()` waits for the loop, which may be waiting for a broker or a store; then it gives the last one.
_WAIT_S = 1.0


class Snapshots:
    """All belongs to the thread that runs the app, but for `snapshot`."""

    def __init__(self, parts: Parts, source: Callable[[], SourceFigures]) -> None:
        self._parts, self._source = parts, source
        self._began: float | None = None
        self._state: State = "new"
        #: Store, dead letters and group were reached once.
        self.ran = False
        self._thread: Thread | None = None
        #: Since when it was seen to be no member.
        self._outside_since: float | None = None
        #: Whether another thread waits for a snapshot.
        self.wanted = False
        self._taken = parts.runtime.condition()
        self._last = self.take()
        self._status_last = (0.0, 0)

    # ---- the app's life
    def started(self) -> None:
        """`run()` has begun, in this thread."""
        self._thread = self._parts.runtime.current()
        self._began = self._parts.runtime.now()
        self._state = "starting"
        self.publish()
        interval_s = self._parts.settings.status_interval_s
        if interval_s:
            self._status_last = (self._began, 0)
            self._parts.timers.after(interval_s, self._status)

    def running(self) -> None:
        """Store, dead letters and group are reached."""
        self._state, self._outside_since = "running", self._parts.runtime.now()
        self.ran = True
        self.publish()

    def stopping(self, why: str) -> None:
        """The app begins to leave."""
        load = self.take().load
        drain_s = self._parts.settings.drain_s
        self._parts.tell(
            Stopping(
                group=self._parts.group,
                why=why,
                running=load.running,
                in_flight=load.in_flight,
                drain_timeout_s=drain_s,
            )
        )

    def stopped(self, in_hand: int) -> None:
        """`run()` ends: the summary, and the last snapshot."""
        self._state = "stopped"
        taken = self.take()
        records = taken.records
        self._parts.tell(
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

    # ---- taking them
    def snapshot(self, wake: Callable[[], None] | None = None) -> Snapshot:
        """The figures of now; where the loop does not come to it within a second, those it took last. Any thread.

        Args: wake: wakes who publishes them; None: the app's loop does.
        """
        if self._thread == self._parts.runtime.current():
            return self.take()  # an observer, or a signal handler: it may not wait for itself
        before = self._last
        if self._thread is not None:
            self.wanted = True
            self._parts.workers.wake.set()
            if wake is not None:
                wake()
            with self._taken:
                self._taken.wait_for(lambda: self._last is not before, _WAIT_S)
        return self._last

    def publish(self) -> None:
        """Take one for those who wait."""
        taken = self.take()
        with self._taken:
            self._last, self.wanted = taken, False
            self._taken.notify_all()

    # ---- inside
    def _state_now(self, *, in_group: bool) -> State:
        if self._state == "running":
            if self._parts.stopping.begun:
                return "leaving"
            if self._parts.sessions.stalled:
                return "paused: store down"
            if not in_group:
                return "joining"
        return self._state

    def _joining(self, *, in_group: bool) -> Joining | None:
        """Since when it is no member, and what was said of that."""
        meter = self._parts.meter
        if self._state != "running" or self._parts.stopping.begun:
            return None
        if in_group:
            self._outside_since = meter.trouble = None
            return None
        now = self._parts.runtime.now()
        self._outside_since = now if self._outside_since is None else self._outside_since
        said, at = meter.trouble or (None, now)
        return Joining(for_s=now - self._outside_since, trouble=said, trouble_s=None if said is None else now - at)

    def _status(self) -> None:
        """One line now, and the next after the interval."""
        taken = self.take()
        now = self._parts.runtime.now()
        since, handled = self._status_last
        self._status_last = (now, taken.records.handled)
        self._parts.timers.after(self._parts.settings.status_interval_s, self._status)
        records, load = taken.records, taken.load
        self._parts.tell(
            Status(
                state=taken.state,
                group=self._parts.group,
                handled=records.handled,
                rate_s=(records.handled - handled) / max(now - since, 1e-9),
                in_flight=load.in_flight,
                running=load.running,
                lag=taken.lag,
                lag_known=taken.lag_known if taken.lag_unknown_in else None,
                lag_unknown_in=taken.lag_unknown_in or None,
                partitions=len(taken.partitions),
                store="none" if self._parts.sessions.storeless else "up" if taken.store.up else "down",
                duplicates=records.suppressed_by_position + records.suppressed_by_key,
                failed_attempts=records.failed_attempts,
                dead_lettered=records.dead_lettered,
                overdue=load.overdue,
                stuck=load.stuck,
            )
        )

    def take(self) -> Snapshot:
        """The figures of now. Only for the thread that owns the app at the moment."""
        parts, meter = self._parts, self._parts.meter
        source = self._source()
        return Snapshot(
            state=self._state_now(in_group=source.in_group),
            group=parts.group,
            member=source.member,
            at_ms=parts.runtime.wall_ms(),
            uptime_s=0.0 if self._began is None else parts.runtime.now() - self._began,
            error=None if parts.stopping.error is None else str(parts.stopping.error),
            error_type=None if parts.stopping.error is None else type(parts.stopping.error).__name__,
            records=RecordFigures(
                polled=meter.polled,
                handled=parts.outcomes.handled,
                failed_attempts=meter.events[RecordFailed],
                retried=parts.outcomes.retried,
                dead_lettered=meter.events[DeadLettered],
                suppressed_by_position=meter.suppressed,
                suppressed_by_key=parts.settling.skipped,
                handed_back=parts.outcomes.handed_back,
                released=parts.outcomes.released,
                taken_up=meter.taken_up,
                drained=meter.drained,
                abandoned=meter.abandoned,
                expired=meter.expired,
                client_skipped=meter.client_skipped,
            ),
            load=LoadFigures(
                running=parts.workers.running,
                in_flight=parts.intake.records,
                in_flight_bytes=parts.intake.bytes,
                waiting_for_marks=parts.settling.waiting,
                overdue=parts.hung.overdue,
                stuck=parts.workers.stuck,
                given_up=parts.hung.given_up,
                partitions_paused=parts.intake.paused,
                handlers_paused=len(parts.outcomes.brakes.paused),
                ramp_per_s=None if parts.intake.climb.over else parts.intake.climb.rate,
            ),
            handlers=meter.handlers(),
            store=StoreFigures(
                up=not (parts.outage.down or meter.open),
                session=parts.sessions.session.id if parts.sessions.session is not None else "",
                sessions_lost=meter.events[SessionLost],
                calls=meter.store_calls.figures(),
            ),
            rebalances=meter.rebalances(source),
            audit=parts.recorder.figures(),
            partitions=source.partitions,
            silence=source.silence,
            joining=self._joining(in_group=source.in_group),
        )
