"""Core: the parts of one app and what all of them share: the session, the outcome of store calls, the way to stop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.dedup.none import NoClaims
from holdfast.dedup.open import OpenClaims
from holdfast.errors import SourceError
from holdfast.plugin.audit.recorder import EngineRecorder, Recorder
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.flow.intake import Intake
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.engine.record.claiming import Claiming
from holdfast.plugin.engine.record.entry import Entry, Gate
from holdfast.plugin.engine.record.hung import Hung
from holdfast.plugin.engine.record.in_flight import Hands
from holdfast.plugin.engine.record.lanes import Lanes
from holdfast.plugin.engine.record.outcomes import Outcomes
from holdfast.plugin.engine.record.settling import Settling
from holdfast.plugin.engine.record.workers import Workers
from holdfast.plugin.engine.store.outage import Outage
from holdfast.plugin.engine.store.owed import Debts
from holdfast.plugin.engine.timers import Timers
from holdfast.plugin.events import SessionLost, SourceTrouble, StoreDiffers, StoreDown, StoreLost, StoreUp
from holdfast.plugin.observe.meter import Meter
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.dedup.claims import ClaimSession, ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.events import Event
    from holdfast.plugin.handlers import Routes
    from holdfast.plugin.ports import DeadLetters, Observer
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition, Record
    from holdfast.runtime import Runtime
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

#: A session's lease, where neither the store's setting nor the broker's session timeout is shorter.
_LEASE_S = 10.0
#: How long a new session waits for the handlers of one that was lost.
_WIND_UP_S = 1.0


class Core:
    """One thread owns it, the one that runs the app; `stop` may come from any."""

    #: Set right after construction: a family needs the core, and the core its family.
    family: Family

    def __init__(
        self,
        *,
        store: ClaimStore,
        routes: Routes,
        settings: Settings,
        letters: DeadLetters | None,
        observers: Sequence[Observer],
        group: str,
        audit: Audit | None = None,
        runtime: Runtime = MACHINE,
    ) -> None:
        self.settings, self.routes, self.letters = settings, routes, letters
        self.runtime = runtime
        self.clock: Clock = runtime
        self.store = self._opened(store) if settings.store_down == "open" else store
        self.group, self._observers = group, tuple(observers)
        #: None between the loss of one session and the beginning of the next.
        self.session: ClaimSession | None = None
        self._store_id = ""
        #: Others, of which is known why.
        self._stores: set[str] = set()
        self.timers = Timers(runtime)
        self.recorder = Recorder()
        if audit is not None:
            self.recorder = recorder = EngineRecorder(audit, self)
            self._observers = (recorder, *self._observers)
        # What is with the workers, and what has ended and waits for its mark.
        in_hand = max(1, settings.workers) + settings.mark_batch
        self.hands = Hands(in_hand, {handler.kind for handler in routes.handlers})
        self.lanes = Lanes(self.hands)
        self.debts = Debts()
        self.intake = Intake(settings, runtime)
        self.outage = Outage(runtime, self.tell)
        self.workers = Workers(settings.workers, f"holdfast-{group}", runtime)
        self.claiming = Claiming(self.lanes, self.timers, self.debts, self._skip, runtime.random)
        self.settling = Settling(self._settle_with_source, self.claiming, self.hands, self._taken_over)
        self.outcomes = Outcomes(
            runtime=runtime,
            lanes=self.lanes,
            timers=self.timers,
            workers=self.workers,
            claiming=self.claiming,
            settling=self.settling,
            debts=self.debts,
            recorder=self.recorder,
            forget=self._forget,
            retry_topic_of=self._retry_topic_of,
            born_in=self._born_in,
            letters=letters,
            hung_stop=settings.on_handler_timeout == "stop",
            group=group,
            tell=self.tell,
            stop=self.fail,
        )
        self.hung = Hung(self)
        self.admission = Admission(self)
        self._stops = 0
        self._why = ""
        self._wind_up = Deadline(0.0, runtime)
        self.storeless = isinstance(store, NoClaims)
        #: A static member is to leave its group for good, instead of coming back.
        self.leaves = False
        #: Why the app stops by itself; raised by `run()`.
        self.error: Exception | None = None
        self.meter = Meter(self)

    # ---- stopping
    def stop(self, *, leave: bool = False, why: str = "stop()") -> None:
        """Drain and leave; a second call is faster: what runs is handed over at once. Safe in a signal handler.

        Args:
            leave: for good: a static member's partitions go to others at once.
            why: for the log.
        """
        self.leaves = self.leaves or leave
        self._why = self._why or why
        # No more than that: a signal handler may interrupt this very thread while it holds a lock, that of `wake` too.
        self._stops += 1

    def fail(self, error: Exception) -> None:
        """Stop in good order, and let `run()` raise this."""
        if self.error is None:
            self.error = error
            _log.error("stopping: %s", error)

    @property
    def stopping(self) -> bool:
        """Whether the app is on its way out: nothing new is taken over."""
        return self._stops > 0 or self.error is not None

    @property
    def why(self) -> str:
        """Why it stops, in words."""
        return f"{type(self.error).__name__}: {self.error}" if self.error is not None else self._why

    @property
    def asked_to_stop(self) -> bool:
        """Whether somebody has asked for it."""
        return self._stops > 0

    @property
    def hurry(self) -> bool:
        """Whether somebody has asked twice."""
        return self._stops > 1

    def tell(self, event: Event) -> None:
        """Log the event and tell all observers. What one of them raises is logged, and the others are told."""
        _log.log(event.level, "%s", event)
        self.meter.saw(event)
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception:  # noqa: BLE001 - an observer is the application's code
                _log.exception("an observer failed on %s", event)

    # ---- sessions
    def _opened(self, store: ClaimStore) -> ClaimStore:
        since = [0.0]

        def went_down(error: Exception) -> None:
            since[0] = self.clock.now()
            self.tell(StoreDown(error=str(error), mode="open"))

        def came_back(unprotected: int) -> None:
            self.tell(StoreUp(down_s=self.clock.now() - since[0], unprotected=unprotected))

        return OpenClaims(store, went_down=went_down, came_back=came_back, runtime=self.runtime)

    @property
    def stalled(self) -> bool:
        """Nothing new may start: there is no session, or the store gives no answer."""
        return self.session is None or self.outage.down

    def begin_session(self) -> None:
        """Raises StoreUnavailable, StoreRefused."""
        session = self.store.begin(min(self.family.lease_s or _LEASE_S, _LEASE_S))
        before, now = self._store_id, self.store.store_id
        if before and now and before != now:
            self.tell(StoreLost(before=before, now=now))
            self._stores.add(before)  # commits that name it are told of by that
        self._store_id = now or before
        self.session = session if self.storeless else self.meter.store_calls.around(session)

    def committed_with(self, partition: Partition, store: str) -> None:
        """A commit of our group says which store its member had."""
        ours = self.store.store_id
        if store and ours and store != ours and store not in self._stores:
            self._stores.add(store)
            self.tell(StoreDiffers(partition=partition, theirs=store, ours=ours))

    def session_lost(self) -> None:
        """Others may take over what this session had: fence it all; a new session begins in the next turns."""
        session, self.session = self.session, None
        if session is None:
            return
        self._wind_up = Deadline(_WIND_UP_S, self.clock)
        self.tell(SessionLost(session=session.id, running=self.workers.outstanding))
        self.family.session_lost()
        self.debts.forget(session)

    def tend_session(self) -> None:
        """Look whether the session lives, begin a new one, pay what is owed."""
        if self.session is not None and not self.session.live():
            self.session_lost()
        # What had no answer may be no longer of interest: then this is the only question left.
        probe = self.outage.down and not (self.claiming.wanted or self.settling.waiting)
        if self.outage.may_ask and (self.debts or self.session is None or probe):
            with self.outage.asking():
                asked = bool(self.debts)
                if self.session is None and not self.stopping and self._wound_up:
                    self.begin_session()
                    asked = True
                elif self.session is not None and probe:
                    self.session.renew()
                    asked = True
                self.debts.pay()
                if asked:  # else the old handlers are waited for, and nobody has said that the store is back
                    self.outage.answered()

    @property
    def _wound_up(self) -> bool:
        """Whether the handlers of a lost session have ended, or have had the time to. Until somebody takes over, what
        they have done can be marked; a new session of our own would be the first to, and would run it all again: for
        ever, where a handler keeps the interpreter lock for longer than the lease."""
        return self._wind_up.passed or not (self.workers.busy or self.settling.waiting)

    # ---- entries
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
        """These are about to be handed over, or are lost."""

    @property
    def unfinished(self) -> bool:
        """Whether handlers run, results wait to be looked at or acknowledged, or something is owed to the store."""
        return bool(self.workers.busy or self.settling.waiting or self.debts or self.hung.owes_letters)

    def _skip(self, entry: Entry) -> None:
        self.recorder.ended(entry, Outcome.SKIPPED_KEY)
        self.settling.skip(entry)
        self.lanes.wake(entry.lane)  # it ends without coming back from a worker: who waits behind it may start now

    def _settle_with_source(self, entries: Sequence[Entry]) -> None:
        self.family.settle(entries)

    def _retry_topic_of(self, entry: Entry) -> str | None:
        return self.family.retry_topic_of(entry.record, has_letters=entry.handler.dead_letter is not None)

    def _born_in(self, record: Record) -> str:
        return self.family.born_in(record)

    def _taken_over(self, entry: Entry) -> None:
        """The store refused our `finish`: another session runs, or has run, that key."""
        if entry.owner.is_owned:
            entry.gate = Gate.CLAIM
            self.lanes.put_back(entry)
            self.claiming.want(entry)
        else:
            self.outcomes.leave_to_others(entry)

    def _forget(self, entry: Entry) -> None:
        """An entry leaves without being settled."""
        entry.owner.entries.pop(entry.record.offset, None)
        self.intake.left(entry)
        self.family.given_up(entry)
