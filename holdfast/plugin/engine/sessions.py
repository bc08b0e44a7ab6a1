"""Sessions: keep the app's session at the store, open a new one after a loss, and hold what is owed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.none import NoClaims
from holdfast.plugin.events import SessionLost, StoreDiffers, StoreDown, StoreLost, StoreUp
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimSession, ClaimStore
    from holdfast.dedup.open import OpenClaims
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.record.claiming import Claiming
    from holdfast.plugin.engine.record.settling import Settling
    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.engine.stopping import Stopping
    from holdfast.plugin.engine.store.outage import Outage
    from holdfast.plugin.engine.store.owed import Owed
    from holdfast.plugin.events import Event
    from holdfast.plugin.observe.store_calls import StoreCalls
    from holdfast.records import Partition
    from holdfast.runtime import Runtime

#: The lease, where neither the store's setting nor the broker's session timeout is shorter.
_LEASE_S = 10.0
#: How long a new session waits for the handlers of one that was lost.
_WIND_UP_S = 1.0


class Sessions:
    """One thread, the one that runs the app."""

    #: Set before the first turn, as that of `Outcomes`.
    family: Family

    def __init__(
        self,
        *,
        store: ClaimStore,
        open_when_down: bool,
        runtime: Runtime,
        outage: Outage,
        calls: StoreCalls,
        owed: Owed,
        claiming: Claiming,
        settling: Settling,
        workers: Workers,
        stopping: Stopping,
        tell: Callable[[Event], None],
    ) -> None:
        self._clock, self._outage, self._calls, self._tell = runtime, outage, calls, tell
        self._owed, self._claiming, self._settling, self._workers = owed, claiming, settling, workers
        self._stopping = stopping
        self._open = self._opened(store) if open_when_down else None
        self.store = store if self._open is None else self._open
        self.storeless = isinstance(store, NoClaims)
        #: None between the loss of one session and the beginning of the next.
        self.session: ClaimSession | None = None
        self._store_id = ""
        #: Others, of which is known why.
        self._stores: set[str] = set()
        self._wind_up = Deadline(0.0, runtime)
        self._cut_off = False
        #: Until then members that an outage of the store has cut off too may not have marked what they had done.
        self.others_mark = Deadline(0.0, runtime)

    @property
    def stalled(self) -> bool:
        """Nothing new may start: there is no session, or the store gives no answer."""
        return self.session is None or self._outage.down

    @property
    def truth(self) -> bool:
        """`ClaimStore.truth`; never while an app may go on without its store."""
        return bool(getattr(self.store, "truth", False))

    @property
    def remembered(self) -> bool:
        """Whether the store, as far as known, learns which records are in hand, for their next owner to wait."""
        is_open = self._open is not None and self._open.down
        return not (self.storeless or self.stalled or is_open)

    def untold(self, name: str) -> bool:
        """Whether that position was reset, and the store could not be told: the app goes on without it."""
        return self._open is not None and name in self._open.untold

    def begin(self) -> None:
        """Raises StoreUnavailable, StoreRefused."""
        lease_s = min(self.family.lease_s or _LEASE_S, _LEASE_S)
        session = self.store.begin(lease_s)
        self.others_mark = Deadline(lease_s if self._cut_off else 0.0, self._clock)
        self._cut_off = False
        before, now = self._store_id, self.store.store_id
        if before and now and before != now:
            self._tell(StoreLost(before=before, now=now))
            self._stores.add(before)  # commits that name it are told of by that
        self._store_id = now or before
        self.session = session if self.storeless else self._calls.around(session)

    def committed_with(self, partition: Partition, store: str) -> None:
        """A commit of our group says which store its member had."""
        ours = self.store.store_id
        if store and ours and store != ours and store not in self._stores:
            self._stores.add(store)
            self._tell(StoreDiffers(partition=partition, theirs=store, ours=ours))

    def lost(self) -> None:
        """Others may take over what this session had: fence it all; a new session begins in the next turns."""
        session, self.session = self.session, None
        if session is None:
            return
        self._wind_up = Deadline(_WIND_UP_S, self._clock)
        self._tell(SessionLost(session=session.id, running=self._workers.outstanding))
        self.family.session_lost()
        self._owed.forget(session)

    def tend(self) -> None:
        """Look whether the session lives, begin a new one, pay what is owed."""
        if self.session is not None and not self.session.live():
            self.lost()
        # Not only as it is lost, or as the next one begins: what is owed may be paid between the two.
        self._cut_off = self._cut_off or (self.session is None and self._outage.down)
        # The call that had no answer may be wanted no longer: then a probe is the only call left.
        probe = self._outage.down and not (self._claiming.wanted or self._settling.waiting)
        if self._outage.may_ask and (self._owed or self.session is None or probe):
            with self._outage.asking():
                asked = bool(self._owed)
                if self.session is None and not self._stopping.begun and self._wound_up:
                    self.begin()
                    asked = True
                elif self.session is not None and probe:
                    self.session.renew()
                    asked = True
                self._owed.pay()
                if asked:  # else only the old handlers are waited for, and the store was not asked
                    self._outage.answered()

    @property
    def _wound_up(self) -> bool:
        """Whether the handlers of a lost session have ended, or have had the time to, and the store was told of all
        that ended. Until another member takes over, their results can be marked; a new session of our own would be the
        first to, and would run it all again: for ever, where a handler keeps the interpreter lock for longer than the
        lease."""
        return not self._settling.waiting and (self._wind_up.passed or not self._workers.busy)

    def _opened(self, store: ClaimStore) -> OpenClaims:
        from holdfast.dedup.open import OpenClaims  # noqa: PLC0415 - store_down="pause" does without

        since = [0.0]

        def went_down(error: Exception) -> None:
            since[0] = self._clock.now()
            self._tell(StoreDown(error=str(error), mode="open"))

        def came_back(unprotected: int) -> None:
            self._tell(StoreUp(down_s=self._clock.now() - since[0], unprotected=unprotected))

        return OpenClaims(store, went_down=went_down, came_back=came_back, runtime=self._clock)
