"""START HERE: the loop of one app. One thread runs it, owns the client, and decides; workers only call handlers.

    turn = poll > admit > collect > settle > claim > dispatch > tend

What differs between the two families of source is behind `family.py`. A rebalance happens inside `poll`:
`rebalance.py` has its whole path.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import SourceError, StoreError, StoreUnavailable
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.parts import make_parts
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.engine.record.entry import Gate
from holdfast.plugin.engine.snapshots import Snapshots
from holdfast.plugin.events import SourceTrouble
from holdfast.plugin.ports import NOTHING
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.dedup.claims import ClaimSession, ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.record.coroutines import Home
    from holdfast.plugin.engine.record.entry import Entry, Lane
    from holdfast.plugin.engine.stopping import Stopping
    from holdfast.plugin.handlers import BatchOf, Kind, Routes
    from holdfast.plugin.ports import Batch, DeadLetters, Observer
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition, Record
    from holdfast.runtime import Runtime
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

#: The longest a poll blocks while nothing is in the process. A signal is seen within that time.
_IDLE_S = 0.1
#: The longest a turn waits while something is in the process: it bounds how late a mark can be.
_BUSY_S = 0.005
_STARTUP_AGAIN_S = 0.5
_CLOSE_S = 5.0


class Start(Deadline):
    """How long a start may take. Over as soon as somebody asks the app to stop: whatever waits then looks at it."""

    __slots__ = ("_stopping",)

    def __init__(self, seconds: float, clock: Clock, stopping: Stopping) -> None:
        super().__init__(seconds, clock)
        self._stopping = stopping

    def left_s(self, at_most: float | None = None) -> float:
        """Nothing, once it was asked to stop."""
        return 0.0 if self._stopping.asked else super().left_s(at_most)

    @property
    def passed(self) -> bool:
        """Also if it was asked to stop."""
        return self._stopping.asked or super().passed


class Engine:
    """The turn that moves the parts. One thread runs it; `stop` and `subscribe` may come from any.

    Args:
        family: makes what differs between the kinds of source.
        how: see `make_parts`.
    """

    def __init__(
        self,
        *,
        family: Callable[[Engine], Family],
        store: ClaimStore,
        routes: Routes,
        settings: Settings,
        letters: DeadLetters | None,
        observers: Sequence[Observer],
        group: str,
        audit: Audit | None = None,
        runtime: Runtime = MACHINE,
        home: Home | None = None,
    ) -> None:
        self.parts = parts = make_parts(
            store=store,
            routes=routes,
            settings=settings,
            letters=letters,
            observers=observers,
            group=group,
            audit=audit,
            runtime=runtime,
            host=self,
            home=home,
        )
        self.group, self.settings, self.routes, self.letters = group, settings, routes, letters
        self.runtime, self.clock = runtime, runtime
        self.stops, self.tell, self.timers, self.recorder = parts.stopping, parts.tell, parts.timers, parts.recorder
        self.meter, self.unacked, self.lanes, self.owed = parts.meter, parts.unacked, parts.lanes, parts.owed
        self.intake, self.outage, self.workers, self.claiming = (
            parts.intake,
            parts.outage,
            parts.workers,
            parts.claiming,
        )
        self.settling, self.outcomes, self.hung, self.sessions = (
            parts.settling,
            parts.outcomes,
            parts.hung,
            parts.sessions,
        )
        self.fail = parts.stopping.fail
        self._new_topics: Collection[str] | None = None
        self._turns = 0
        self.family = family(self)
        self.admission = Admission(
            family=self.family,
            routes=routes,
            settings=settings,
            group=group,
            clock=runtime,
            lanes=self.lanes,
            intake=self.intake,
            claiming=self.claiming,
            workers=self.workers,
            unacked=self.unacked,
        )
        self.snapshots = Snapshots(parts, self.family.figures)

    # ---- what is asked of it most
    def stop(self, *, leave: bool = False, why: str = "stop()") -> None:
        """See `Stopping.stop`."""
        self.stops.stop(leave=leave, why=why)

    @property
    def stopping(self) -> bool:
        """Whether the app is on its way out: nothing new is taken over."""
        return self.stops.begun

    @property
    def hurry(self) -> bool:
        """Whether somebody has asked twice to stop."""
        return self.stops.hurry

    @property
    def error(self) -> Exception | None:
        """Why the app stops by itself; raised by `run()`."""
        return self.stops.error

    @property
    def store(self) -> ClaimStore:
        """The store as the engine uses it: an open one, with `store_down="open"`."""
        return self.sessions.store

    @property
    def session(self) -> ClaimSession | None:
        """None between the loss of one session and the beginning of the next."""
        return self.sessions.session

    @property
    def stalled(self) -> bool:
        """Nothing new may start: there is no session, or the store gives no answer."""
        return self.sessions.stalled

    # ---- its turns
    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription in a turn to come. Any thread."""
        self._new_topics = tuple(topics)

    def run(self) -> None:
        """Consume until `stop()`, then drain and leave. Raises what stopped it otherwise."""
        try:
            self.snapshots.started()
            if self._open(self.routes.topics):
                self.snapshots.running()
                while not self.stopping:
                    self.turn()
                self.snapshots.stopping(self.stops.why)
                self._leave()
        except Exception as error:  # noqa: BLE001 - raised below, after the client was closed
            self.fail(error)
        finally:
            self._close()
        if self.error is not None:
            raise self.error

    def turn(self) -> None:
        """One round: the whole way of records, once."""
        try:
            self._take_in(self._poll())
            self.work()
            self._resubscribe()
            self.family.tend()
        except Exception as error:  # noqa: BLE001 - leaving in good order comes first; run() raises it
            self.fail(error)

    def work(self) -> None:
        """A turn without the client: also what goes on inside a rebalance, for the partitions that stay."""
        if self.session is not None:
            self.session.vouch(self.family.patience_s)
        self.collect()
        self.settle()
        self._claim()
        self._dispatch()
        self.workers.begin_coroutines()
        self.timers.run_due()
        self.hung.step()
        self.sessions.tend()
        if self.snapshots.wanted:
            self.snapshots.publish()

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Work until `over()` or the deadline: a drain inside a rebalance."""
        while not over() and not deadline.passed and not self.hurry:
            self.workers.wake.wait(min(_BUSY_S, deadline.left_s()))
            self.work()

    def collect(self) -> None:
        """Take what the workers have ended."""
        ended = self.workers.ended()
        while ended:
            try:
                each = ended.popleft()
                counts = self.hung.came_back(each) if self.hung.known else each
                if counts is not None:
                    self.outcomes.came_back(counts)
            except BaseException:
                self.workers.put_back(ended)  # the others have ended all the same
                raise
        self.outcomes.tell_failures()
        self.meter.took(self.workers.timings())
        for entry, done, begun in self.workers.overdue():
            self.outcomes.taken_back(entry, done, begun)

    def settle(self) -> None:
        """Finish and mark what has ended, as far as the store (and a leased source) answers."""
        if self.settling.waiting and self.outage.may_ask:
            with self.outage.asking():
                answers = self.meter.store_calls.answers
                try:
                    self.settling.step(self.settings.mark_batch)
                    if self.meter.store_calls.answers > answers:  # a leased source alone says nothing of the store
                        self.outage.answered()
                except SourceError as error:
                    self.tell(SourceTrouble(error=str(error)))

    def goes(self, partitions: Collection[Partition]) -> None:
        """Partitions are about to be handed over, or are lost."""

    @property
    def unfinished(self) -> bool:
        """Whether handlers run, results wait to be looked at or acknowledged, or something is owed to the store."""
        return bool(self.workers.busy or self.settling.waiting or self.owed or self.hung.owes_letters)

    # ---- the steps of a turn
    def _poll(self) -> Batch:
        room = self.intake.room(stopped=self.stalled)
        busy = not self.intake.idle or bool(self.owed) or self.stalled
        if not room:
            self._wait()
            return NOTHING
        batch = self._ask(room, 0.0 if busy else self.timers.next_s(_IDLE_S))
        if busy and not batch.records:
            self._wait()
        return batch

    def _ask(self, at_most: int, wait_s: float) -> Batch:
        """One look at the source; trouble that passes is told, and brings nothing."""
        try:
            return self.family.poll(at_most, wait_s)
        except SourceError as error:
            if not error.retriable:
                raise
            self.tell(SourceTrouble(error=str(error)))
            return NOTHING

    def _wait(self) -> None:
        """Until something ends or comes due, at most for as long as a mark or a record may be late."""
        self.workers.wake.wait(self.timers.next_s(_BUSY_S))

    def _take_in(self, batch: Batch) -> None:
        """Take in what a poll brought: records first, then how far partitions were read with them."""
        self.meter.polled += len(batch.records)
        self.admission.note(batch)
        batch = self.intake.sift(batch, stopped=self.stalled)
        self.admission.admit(batch.records)
        self.family.reached(batch.ends)

    def _claim(self) -> None:
        if self.claiming.wanted and self.outage.may_ask and self.session is not None:
            with self.outage.asking():
                self.owed.pay()  # a claim that is being given back may not be asked for
                live = self.claiming.step(self.session, self.settings.poll_batch)
                if self.claiming.asked:
                    self.outage.answered()
                if not live:
                    self.sessions.lost()

    def _dispatch(self) -> None:
        """Give what is ready to the workers, of each kind of handler in turn, until none of them can start more."""
        until = self.clock.now() + _BUSY_S
        kinds = deque(self.lanes.kinds)
        # The next turn begins with another one: in the polling thread a turn may be over before all had theirs.
        kinds.rotate(-self._turns)
        self._turns += 1
        while kinds and not self.stalled:
            entries = self._next_of(kinds[0])
            if entries is None:
                kinds.popleft()
                continue
            kinds.rotate(-1)
            if entries:
                self._start(entries)
                if self.workers.inline:  # it has run: what has ended is not to wait for all others
                    self.collect()
                    if self.clock.now() >= until:
                        return

    def _start(self, entries: list[Entry]) -> None:
        now = self.clock.now()
        for owner in {entry.owner for entry in entries}:
            owner.first_start = owner.first_start or now
        self.recorder.begins(entries)
        self.workers.submit(entries)

    def _next_of(self, kind: Kind) -> list[Entry] | None:
        """The entries of that kind that start next. None: nothing can; empty: a batch that waits for more, so look
        on."""
        if self.workers.room(kind) <= 0 or self.unacked.room(kind) <= 0:
            return None
        lane = self.lanes.next(kind)
        head = lane.head() if lane else None
        if lane is None or head is None:
            return None
        if head.handler.batch:
            return self._take_batch(lane, head, head.handler.batch)
        return self._take(lane, head)

    def _take(self, lane: Lane, head: Entry) -> list[Entry] | None:
        """One record, or as many as make a chunk: of this lane, and of others if all workers get as much."""
        handler = head.handler
        room = self.unacked.room(handler.kind)
        if lane.keys is not None and room < head.count:
            self.lanes.wait(lane)  # it goes as a whole, so those behind it wait too, or it might wait for ever
            return None
        if handler.is_async or lane.keys is not None:
            return self.lanes.take(lane, 1)
        chunk = min(self.workers.chunk, room)
        fair = min(chunk, self.lanes.ready(handler.kind) // max(1, self.settings.workers))
        entries = self.lanes.take(lane, chunk)
        records = sum(entry.count for entry in entries)
        while records < fair and (more := self.lanes.next_of(handler)) is not None:
            taken = self.lanes.take(more, fair - records)
            records += sum(entry.count for entry in taken)
            entries += taken
        return entries

    def _take_batch(self, lane: Lane, head: Entry, batch: BatchOf) -> list[Entry] | None:
        """A full batch; or what there is, once its first record has waited for long enough."""
        waited = self.clock.now() - head.since
        records = min(batch.records, self.unacked.share(head.handler.kind))
        ready = lane.ready(records)
        if ready < records and waited < batch.wait_s:
            self.timers.after(batch.wait_s - waited, lambda: self.lanes.wake(lane))
            return []
        if self.unacked.room(head.handler.kind) < ready:
            self.lanes.wait(lane)  # rather a whole batch a little later than a small one now
            return None
        return self.lanes.take(lane, records)

    def _resubscribe(self) -> None:
        if self._new_topics is not None:
            topics, self._new_topics = self._new_topics, None
            self.family.subscribe(topics)

    # ---- beginning and end
    def _open(self, topics: Collection[str]) -> bool:
        """Store first, then dead letters, then the group: who joins must be able to work. Raises what fails.

        Returns: False = it was asked to stop before it had joined.
        """
        deadline = Start(self.settings.startup_timeout_s, self.clock, self.stops)
        try:
            self._reach_store(deadline)
            targets = {handler.dead_letter for handler in self.routes.handlers if handler.dead_letter}
            if targets and self.letters is not None:
                self.letters.check(sorted(targets), deadline)
            self.recorder.open()
            self.family.open(topics, deadline)
        except (StoreError, SourceError) as error:
            if not self.stops.asked:
                raise
            _log.info("stopped before the start was over; it was waiting: %s", error)
            return False
        self.recorder.started(self.family)
        return True

    def _reach_store(self, deadline: Deadline) -> None:
        told = False
        while self.session is None:
            try:
                self.store.connect()
                self.sessions.begin()
            except StoreUnavailable as error:
                if deadline.passed:
                    raise
                if not told:
                    _log.warning("%s; trying for another %.0f s", error, deadline.left_s())
                    told = True
                self.clock.sleep(deadline.left_s(_STARTUP_AGAIN_S))

    def _leave(self) -> None:
        """Drain and leave the group, then stay for handlers that outlived the drain."""
        self.family.leave(Deadline(self.settings.drain_timeout_s, self.clock))
        linger = Deadline(self.settings.linger_timeout_s, self.clock)
        while self.unfinished and not linger.passed and not self.hurry:
            self.workers.wake.wait(min(_BUSY_S, linger.left_s()))
            self.work()
            self.family.tend()

    def _close(self) -> None:
        self.workers.stop()
        self.family.close()
        if self.letters is not None:
            self.letters.close(Deadline(_CLOSE_S, self.clock))
        left = self.unfinished or self.hung.stuck > 0
        in_hand = self.with_handlers if left else 0
        self._end_session(left)
        self.recorder.stopped(clean=self.error is None and not left, in_hand=in_hand, error=self.error)
        self.snapshots.stopped(in_hand)

    @property
    def with_handlers(self) -> int:
        """Records that have started and not ended."""
        return self.lanes.taken + self.hung.stuck

    def _end_session(self, left: bool) -> None:
        if self.session is None:
            return
        if left:
            # Ended now, the session would count as dead while its handlers run: the lease decides instead.
            _log.warning(
                "leaving with %d jobs running, %d records given up with their handlers, and %d not acknowledged by the "
                "store: others wait for them until the session's lease ends",
                self.workers.outstanding,
                self.hung.stuck,
                self.settling.waiting,
            )
            self.session.abandon()
        else:
            self.session.end()

    # ---- as a host of its parts
    @property
    def lease_s(self) -> float | None:
        """See `Host`."""
        return self.family.lease_s

    def fence_all(self) -> None:
        """See `Host`."""
        self.family.session_lost()

    def settle_with_source(self, entries: Sequence[Entry]) -> None:
        """See `Host`."""
        self.family.settle(entries)

    def skipped(self, entry: Entry) -> None:
        """See `Host`."""
        self.recorder.ended(entry, Outcome.SKIPPED_KEY)
        self.settling.skip(entry)
        self.lanes.wake(entry.lane)  # it ends without coming back from a worker: who waits behind it may start now

    def taken_over(self, entry: Entry) -> None:
        """See `Host`."""
        if entry.owner.is_owned:
            entry.gate = Gate.CLAIM
            self.lanes.put_back(entry)
            self.claiming.want(entry)
        else:
            self.outcomes.leave_to_others(entry)

    def forget(self, entry: Entry) -> None:
        """See `Host`."""
        entry.owner.entries.pop(entry.record.offset, None)
        self.intake.left(entry)
        self.family.given_up(entry)

    def retry_topic_of(self, entry: Entry) -> str | None:
        """See `Host`."""
        return self.family.retry_topic_of(entry.record, has_letters=entry.handler.dead_letter is not None)

    def born_in(self, record: Record) -> str:
        """See `Host`."""
        return self.family.born_in(record)
