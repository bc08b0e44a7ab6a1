"""START HERE: the loop of one app. One thread runs it, owns the client, and decides; workers only call handlers.

    turn = poll > admit > claim > dispatch > collect > settle > tend

What differs between the two families of source (partitioned, leased) is behind `Family`: `partitioned.py`, `leased.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.claims import Claim, ClaimKey, Token
from holdfast.errors import HandlerFailed, KeyMissing, SourceError, StoreUnavailable
from holdfast.plugin.claiming import Claiming
from holdfast.plugin.debts import Debts
from holdfast.plugin.events import SessionLost, SourceTrouble
from holdfast.plugin.intake import Intake
from holdfast.plugin.lanes import Entry, Gate, Lanes
from holdfast.plugin.outage import Outage
from holdfast.plugin.outcomes import Outcomes
from holdfast.plugin.ownership import Phase
from holdfast.plugin.ports import Batch
from holdfast.plugin.settling import Settling
from holdfast.plugin.timers import Timers
from holdfast.plugin.workers import Workers
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from holdfast.dedup.claims import ClaimSession, ClaimStore
    from holdfast.plugin.events import Event
    from holdfast.plugin.handlers import Handler, Routes
    from holdfast.plugin.lanes import Lane
    from holdfast.plugin.ownership import Ownership
    from holdfast.plugin.ports import DeadLetters, End, Observer
    from holdfast.plugin.settings import Settings
    from holdfast.records import Record
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

#: The longest a poll blocks while nothing is in the process. A signal is seen within that time.
_IDLE_S = 0.1
#: The longest a turn waits while something is in the process: it bounds how late a mark can be.
_BUSY_S = 0.005
#: A session's lease, where neither the store's setting nor the broker's session timeout is shorter.
_LEASE_S = 10.0
_STARTUP_AGAIN_S = 0.5
_CLOSE_S = 5.0


class Family(Protocol):
    """What one kind of source does in its own way. All methods run in the loop's thread."""

    @property
    def group(self) -> str: ...

    @property
    def lease_s(self) -> float | None: ...

    def open(self, topics: Collection[str], deadline: Deadline) -> None: ...

    def subscribe(self, topics: Collection[str]) -> None: ...

    def poll(self, max_records: int, timeout_s: float) -> Batch: ...

    def admit(self, record: Record) -> Ownership | None: ...

    def reached(self, ends: Sequence[End]) -> None: ...

    def default_key(self, record: Record) -> str | None: ...

    def settle(self, entries: Sequence[Entry]) -> None: ...

    def given_up(self, entry: Entry) -> None: ...

    def tend(self) -> None: ...

    def session_lost(self) -> None: ...

    def leave(self, deadline: Deadline) -> None: ...

    def close(self) -> None: ...


class Engine:
    """The parts of one app, and the turn that moves them."""

    def __init__(
        self,
        *,
        store: ClaimStore,
        routes: Routes,
        settings: Settings,
        letters: DeadLetters | None,
        observers: Sequence[Observer],
        group: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings, self.clock, self.routes = settings, clock, routes
        self._store, self._letters, self._observers = store, letters, observers
        self.family: Family
        self.session: ClaimSession | None = None
        self.timers = Timers(clock)
        self.lanes = Lanes()
        self.debts = Debts()
        self.intake = Intake(settings, clock)
        self.outage = Outage(settings, clock, self.tell)
        self.workers = Workers(settings.workers, f"holdfast-{group}")
        self.claiming = Claiming(self.lanes, self.timers, self.debts, lambda entry: self.settling.skip(entry))
        self.settling = Settling(lambda entries: self.family.settle(entries), self.claiming, self._taken_over)
        self.outcomes = Outcomes(
            lanes=self.lanes,
            timers=self.timers,
            workers=self.workers,
            claiming=self.claiming,
            settling=self.settling,
            debts=self.debts,
            forget=self._forget,
            letters=letters,
            group=group,
            tell=self.tell,
            stop=self.fail,
        )
        self._stopping = False
        self._stops = 0
        self._error: Exception | None = None
        self._new_topics: Collection[str] | None = None

    # ---- from any thread
    def stop(self) -> None:
        """Drain and leave; a second call is faster: what runs is handed over at once. Safe in a signal handler."""
        self._stops += 1
        self._stopping = True
        self.workers.wake.set()

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription in a turn to come."""
        self._new_topics = tuple(topics)

    # ---- the loop
    def run(self) -> None:
        """Consume until `stop()`. Raises what stopped it otherwise."""
        deadline = Deadline(self.settings.startup_timeout_s, self.clock)
        try:
            self._open(deadline)
            while not self._stopping:
                self.turn()
            self._leave()
        finally:
            self._close()
        if self._error is not None:
            raise self._error

    def turn(self) -> None:
        """One round: the whole way of records, once."""
        batch = self._poll()
        self._admit(batch.records)
        self.family.reached(batch.ends)
        self.work()
        if self._new_topics is not None:
            topics, self._new_topics = self._new_topics, None
            self.family.subscribe(topics)
        self.family.tend()

    def work(self) -> None:
        """A turn without polling: also what goes on inside a rebalance, for the partitions that stay."""
        self.collect()
        self.settle()
        self._claim()
        self._dispatch()
        self._tend()

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Work without polling until `over()` or the deadline: a drain inside a rebalance."""
        while not over() and not deadline.passed and not self.hurry:
            self.workers.wake.wait(min(_BUSY_S, deadline.left_s()))
            self.work()

    # ---- the steps of a turn
    def _poll(self) -> Batch:
        room = self.intake.room(stopped=self.stalled)
        busy = self.intake.records > 0 or bool(self.debts) or self.stalled
        if not room:
            self._wait()
            return _NOTHING
        try:
            batch = self.family.poll(room, 0.0 if busy else self.timers.next_s(_IDLE_S))
        except SourceError as error:
            if not error.retriable:
                self.fail(error)
            self.tell(SourceTrouble(error=str(error)))
            batch = _NOTHING
        if busy and not batch.records:
            self._wait()
        return batch

    def _wait(self) -> None:
        """Until something ends or comes due, at most for as long as a mark or a record may be late."""
        self.workers.wake.wait(self.timers.next_s(_BUSY_S))

    def _admit(self, records: Sequence[Record]) -> None:
        now = self.clock.now()
        for record in records:
            handler = self.routes.find(record.partition.topic)
            if handler is None:
                self.fail(HandlerFailed(f"no handler matches topic {record.topic!r}: register one, or narrow the pattern"))
                return
            owner = self.family.admit(record)
            if owner is None:
                continue
            entry = self._entry(record, owner, handler, now)
            owner.entries[record.offset] = entry
            self.intake.entered(entry)
            if record.offset in owner.waiting:
                entry.gate = Gate.HANDED
            self.lanes.add(entry, self._lane(record, handler))
            self.claiming.want(entry)

    def _entry(self, record: Record, owner: Ownership, handler: Handler, now: float) -> Entry:
        claim, error = None, None
        try:
            key = handler.key(record) if handler.key else self.family.default_key(record)
        except KeyMissing as missing:
            key = None
            error = missing if self.settings.missing_key == "error" else None
        if key is not None:
            claim = Claim(ClaimKey(handler.name, key), Token(owner.name, record.offset, owner.epoch))
        entry = Entry(record, owner, handler, claim, now)
        entry.error = error
        return entry

    def _lane(self, record: Record, handler: Handler) -> Hashable:
        """What has to be handled one after the other. A batch handler takes consecutive records of a partition."""
        ordering = self.settings.ordering
        if handler.batch or ordering == "partition":
            return record.partition
        if ordering == "key" and record.key is not None:
            return record.partition, record.key
        return record.partition, record.offset

    def _claim(self) -> None:
        if self.claiming.wanted and self.outage.may_ask and self.session is not None:
            with self.outage.asking():
                self.debts.pay()  # a claim that is being given back may not be asked for
                live = self.claiming.step(self.session, self.settings.poll_batch)
                self.outage.answered()
                if not live:
                    self.session_lost()

    def _dispatch(self) -> None:
        while not self.stalled and self.settling.waiting < self.settings.mark_batch:
            lane = self.lanes.next()
            head = lane.head() if lane else None
            if lane is None or head is None:
                return
            handler = head.handler
            if (self.workers.async_room if handler.is_async else self.workers.room) <= 0:
                self.lanes.wake(lane)
                return
            entries = self._take_batch(lane, head) if handler.batch else self._take(lane, handler)
            if entries:
                now = self.clock.now()
                for owner in {entry.owner for entry in entries}:
                    if owner.first_start is None:
                        owner.first_start = now
                self.workers.submit(entries)

    def _take(self, lane: Lane, handler: Handler) -> list[Entry]:
        """One record, or as many as make a chunk: of this lane, and of others if all workers get as much."""
        if handler.is_async:
            return self.lanes.take(lane, 1)
        entries = self.lanes.take(lane, self.workers.chunk)
        fair = min(self.workers.chunk, self.lanes.ready // self.settings.workers)
        while len(entries) < fair and (more := self.lanes.next_of(handler)) is not None:
            entries += self.lanes.take(more, fair - len(entries))
        return entries

    def _take_batch(self, lane: Lane, head: Entry) -> list[Entry]:
        """A full batch; or what there is, once its first record has waited for long enough."""
        batch = head.handler.batch
        if batch is None:
            raise AssertionError(head)
        waited = self.clock.now() - head.since
        if lane.ready(batch.records) < batch.records and waited < batch.wait_s:
            self.timers.after(batch.wait_s - waited, lambda: self.lanes.wake(lane))
            return []
        return self.lanes.take(lane, batch.records)

    def collect(self) -> None:
        """Take what the workers have ended."""
        for ended in self.workers.ended():
            self.outcomes.came_back(ended)

    def settle(self) -> None:
        """Finish and mark what has ended, as far as store (and source) answer."""
        if self.settling.waiting and self.outage.may_ask:
            with self.outage.asking():
                try:
                    self.settling.step(self.settings.mark_batch)
                    self.outage.answered()
                except SourceError as error:  # a leased source did not take the acknowledgements: again next turn
                    self.tell(SourceTrouble(error=str(error)))

    def _tend(self) -> None:
        self.timers.run_due()
        if self.session is not None and not self.session.live():
            self.session_lost()
        if self.outage.may_ask:
            with self.outage.asking():
                if self.session is None and not self._stopping:
                    self.session = self._begin()
                    self.outage.answered()
                if self.debts:
                    self.debts.pay()
                    self.outage.answered()

    # ---- sessions
    @property
    def stalled(self) -> bool:
        """Nothing new may start: there is no session, or the store gives no answer."""
        return self.session is None or self.outage.down

    def session_lost(self) -> None:
        """Others may take over what this session had: fence it all; a new session begins in the next turns."""
        session, self.session = self.session, None
        if session is None:
            return
        self.tell(SessionLost(session=session.id, running=self.workers.outstanding))
        self.family.session_lost()
        self.debts.forget(session)

    def _begin(self) -> ClaimSession:
        return self._store.begin(min(self.family.lease_s or _LEASE_S, _LEASE_S))

    # ---- entries
    def _taken_over(self, entry: Entry) -> None:
        """The store refused our `finish`: another session runs, or has run, that key."""
        if entry.owner.phase is Phase.OWNED:
            entry.gate = Gate.CLAIM
            self.lanes.put_back(entry)
            self.claiming.want(entry)
        else:
            self.outcomes.hand_back(entry)

    def _forget(self, entry: Entry) -> None:
        """An entry leaves without being settled."""
        entry.owner.entries.pop(entry.record.offset, None)
        self.intake.left(entry)
        self.family.given_up(entry)

    # ---- beginning and end
    def fail(self, error: Exception) -> None:
        """Stop in good order, and let `run()` raise this."""
        if self._error is None:
            self._error = error
            _log.error("stopping: %s", error)
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether nothing new is to be taken over."""
        return self._stopping

    @property
    def hurry(self) -> bool:
        """Whether somebody has asked twice."""
        return self._stops > 1

    def _open(self, deadline: Deadline) -> None:
        while self.session is None:
            try:
                self._store.connect()
                self.session = self._begin()
            except StoreUnavailable:
                if deadline.passed or self._stopping:
                    raise
                self.clock.sleep(deadline.left_s(_STARTUP_AGAIN_S))
        topics = [handler.dead_letter for handler in self.routes.handlers if handler.dead_letter]
        if topics and self._letters is not None:
            self._letters.check(topics, deadline)
        self.family.open(self.routes.topics, deadline)

    def _leave(self) -> None:
        """Drain and leave the group, then stay for handlers that outlived the drain."""
        self.family.leave(Deadline(self.settings.drain_timeout_s, self.clock))
        linger = Deadline(self.settings.linger_timeout_s, self.clock)
        while (self.workers.outstanding or self.settling.waiting or self.debts) and not linger.passed and not self.hurry:
            self.work()
            self.workers.wake.wait(min(_IDLE_S, linger.left_s()))
        self.collect()
        self.settle()

    def _close(self) -> None:
        self.workers.stop()
        self.family.close()
        if self._letters is not None:
            self._letters.close(Deadline(_CLOSE_S, self.clock))
        if self.session is None:
            return
        if self.workers.outstanding or self.settling.waiting or self.debts:
            # Ended now, the session would count as dead while its handlers run: the lease decides instead.
            _log.warning(
                "leaving with %d handlers running and %d records not acknowledged by the store: others wait for them "
                "until the session's lease ends",
                self.workers.outstanding,
                self.settling.waiting,
            )
            return
        self.session.end()

    def tell(self, event: Event) -> None:
        """Tell all observers. What one raises is logged, and the others are told."""
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception:
                _log.exception("an observer failed on %s", event)


_NOTHING = Batch(())
