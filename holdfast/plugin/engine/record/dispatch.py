"""Dispatch: gives ready records to the workers, the kinds of handlers in turn."""

from __future__ import annotations

import math
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.flow.intake import Intake
    from holdfast.plugin.engine.record.entry import Entry, Lane
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.engine.record.recorder import Recorder
    from holdfast.plugin.engine.record.settling import Unacked
    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.engine.timers import Timers
    from holdfast.plugin.handlers import BatchOf, Kind
    from holdfast.timing import Clock


class Dispatch:
    """One thread, the one that runs the app.

    Args:
        collect: take what has ended.
        stalled: whether nothing new may start.
        turn_s: how long handlers in the polling thread may hold up a turn.
    """

    def __init__(
        self,
        *,
        lanes: Lanes,
        unacked: Unacked,
        workers: Workers,
        timers: Timers,
        clock: Clock,
        recorder: Recorder,
        collect: Callable[[], None],
        stalled: Callable[[], bool],
        intake: Intake,
        turn_s: float,
    ) -> None:
        self._lanes, self._unacked, self._workers, self._timers = lanes, unacked, workers, timers
        self._clock, self._recorder = clock, recorder
        self._collect, self._stalled, self._turn_s = collect, stalled, turn_s
        self._intake = intake
        self._turns = 0
        #: Lanes whose batch waits for more.
        self._incomplete: dict[Lane, None] = {}

    def step(self) -> None:
        """Start what can be started, until no kind of handler can start more."""
        until = self._clock.now() + self._turn_s
        if self._incomplete and self._intake.crowded:
            incomplete, self._incomplete = self._incomplete, {}
            for lane in incomplete:  # what waits for more may wait for itself
                self._lanes.wake(lane)
        kinds = deque(self._lanes.kinds)
        # The next turn begins with another one: in the polling thread a turn may be over before all had theirs.
        kinds.rotate(-self._turns)
        self._turns += 1
        while kinds and not self._stalled():
            jobs = self._next_of(kinds[0])
            if jobs is None:
                kinds.popleft()
                continue
            kinds.rotate(-1)
            if jobs:
                self._start(jobs)
                if self._workers.inline:  # it has run: what has ended is not to wait for all others
                    self._collect()
                    if self._clock.now() >= until:
                        return

    def _start(self, jobs: list[list[Entry]]) -> None:
        now = self._workers.given_at = self._clock.now()
        for entry in chain.from_iterable(jobs):
            entry.given_at, owner = now, entry.owner
            if owner.first_start is None:
                owner.first_start = now
        for entries in jobs:
            self._recorder.begins(entries)
            self._workers.submit(entries)

    def _next_of(self, kind: Kind) -> list[list[Entry]] | None:
        """Take what of that kind starts next, in jobs. None: nothing can; empty: a batch that waits for more, so look
        on."""
        if self._workers.room(kind) <= 0 or self._unacked.room(kind) <= 0:
            return None
        lane = self._lanes.next(kind)
        head = lane.head() if lane else None
        if lane is None or head is None:
            return None
        if head.handler.batch:
            return self._take_batch(lane, head, head.handler.batch)
        return self._take(lane, head)

    def _take(self, lane: Lane, head: Entry) -> list[list[Entry]] | None:
        """One record, or as many as make a chunk: of this lane, and of others if all workers get as much. Of coroutines
        that go alone, each a job, as many as may start."""
        handler = head.handler
        room = self._unacked.room(handler.kind)
        if lane.keys is not None and room < head.count:
            self._lanes.wait(lane)  # it goes as a whole, so those behind it wait too, or it might wait for ever
            return None
        if lane.keys is not None:
            return [self._lanes.take(lane, 1)]
        if handler.is_async:
            chunk = fair = min(self._workers.together(handler), room)  # one thread runs them all
            if chunk == 1:
                room = min(room, self._workers.room(handler.kind))
                jobs = [self._lanes.take(lane, 1)]
                while len(jobs) < room and (more := self._lanes.next_of(handler)) is not None:
                    jobs.append(self._lanes.take(more, 1))
                return jobs
        else:
            chunk = min(self._workers.chunk, room)
            fair = min(chunk, self._lanes.ready(handler.kind) // self._workers.count)
        entries = self._lanes.take(lane, chunk)
        records = sum(entry.count for entry in entries)
        partition = head.record.partition
        while records < fair and (more := self._lanes.next_of(handler, partition)) is not None:
            taken = self._lanes.take(more, fair - records)
            records += sum(entry.count for entry in taken)
            entries += taken
        return [entries]

    def _take_batch(self, lane: Lane, head: Entry, batch: BatchOf) -> list[list[Entry]] | None:
        """A full batch; or what there is, once its first record has waited for long enough, or where no more can come:
        another handler's record is next, or the process is full."""
        waited = self._clock.now() - head.since
        records = min(batch.records, self._unacked.share(head.handler.kind))
        ready = lane.ready(records)
        if (
            ready < records
            and waited < batch.wait_s
            and not (self._intake.brings_no_more(head.owner, ready) or lane.is_mixed)
        ):
            self._incomplete[lane] = None
            due = head.since + batch.wait_s
            if lane.due != due:  # else each record that comes would leave one timer more
                lane.due = due
                if due < math.inf:
                    self._timers.after(batch.wait_s - waited, lambda: self._is_due(lane))
            return []
        if self._unacked.room(head.handler.kind) < ready:
            self._lanes.wait(lane)  # rather a whole batch a little later than a small one now
            return None
        self._incomplete.pop(lane, None)
        return [self._lanes.take(lane, records)]

    def _is_due(self, lane: Lane) -> None:
        lane.due = 0.0  # a little early, as floats go: then it waits once more
        self._lanes.wake(lane)
