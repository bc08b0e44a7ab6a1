"""A session's lease as its own process sees it: renewed by a thread, judged by this process' clock; once lost, lost for
good."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING

from holdfast.dedup.forks import after_fork
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Runtime

log = logging.getLogger("holdfast.dedup")

#: The pause between renewals, as a share of the lease: three tries fit into it, so that one lost answer does not cost
#: the session.
_RENEW_EVERY = 1 / 3
#: Renewals that go on failing are logged once in this time.
_LOG_AGAIN_S = 30.0
#: The pause after a failed renewal, as a share of the lease: several tries in the rest of it, without a storm.
_TRY_AGAIN_AFTER = 1 / 20


class Lease:
    """Whether the session may still start work.

    The store counts a lease from the moment at which it *handles* a renewal, this process from when it *sent* it. That
    is earlier, so this process always gives up first. Any thread may call.
    """

    def __init__(self, session_id: str, lease_s: float, runtime: Runtime, sent_at: float) -> None:
        self.session_id = session_id
        self.lease_s = lease_s
        self._runtime = runtime
        self._now = runtime.now
        self._sent_at = sent_at
        self._lost = False
        self._vouched_until = math.inf
        self._stop = runtime.event()
        #: False in a forked child: the session is the parent's, and so is the thread that renews it.
        self.own_process = True
        after_fork(self, Lease._in_child)

    def _in_child(self) -> None:
        self.own_process, self._lost = False, True

    def now(self) -> float:
        """The time by the clock that judges the lease."""
        return self._runtime.now()

    def live(self) -> bool:
        """Whether the last renewal that succeeded was sent less than a lease ago. Once False, False for ever."""
        if self._lost:
            return False
        if self._now() - self._sent_at >= self.lease_s:
            self.lose()
            return False
        return True

    @property
    def renewal_due(self) -> bool:
        """Whether it is time for the next renewal."""
        return self._runtime.now() - self._sent_at >= self.lease_s * _RENEW_EVERY

    def renewed(self, sent_at: float) -> None:
        """Note a renewal that the store has confirmed, and when it was sent."""
        self._sent_at = max(self._sent_at, sent_at)

    def vouch(self, seconds: float) -> None:
        """Note that the work under this lease goes on: renew for `seconds` from now on."""
        self._vouched_until = self._runtime.now() + seconds

    @property
    def vouched(self) -> bool:
        """Whether the time of the last `vouch` is not over; True before the first one."""
        return self._runtime.now() <= self._vouched_until

    def lose(self) -> None:
        """End the lease for good, whatever the reply to a renewal that is on its way."""
        self._lost = True
        self._stop.set()

    def stop(self) -> None:
        """Renew no more; the lease runs out by itself. Does not block: a renewal on its way may still arrive."""
        self._stop.set()

    def start(self, renew: Callable[[], bool]) -> None:
        """Renew by a daemon thread until the session is lost or stopped.

        Args:
            renew: asks the store once and calls `renewed`; False = the session is dead there. May raise StoreError.
        """
        name = f"holdfast-lease-{self.session_id}"
        self._runtime.spawn(partial(self._renew_for_ever, renew), name)

    def _renew_for_ever(self, renew: Callable[[], bool]) -> None:
        pause_s, say_at = self.lease_s * _RENEW_EVERY, -math.inf
        while not self._stop.wait(pause_s):
            pause_s = self.lease_s * _TRY_AGAIN_AFTER
            if not self.vouched:
                log.error("session %s is not renewed: its process has not reported progress in time", self.session_id)
                self.stop()
                return
            try:
                kept = renew()
            except StoreError as error:
                if self._runtime.now() >= say_at:
                    say_at = self._runtime.now() + _LOG_AGAIN_S
                    log.warning("session %s was not renewed and will be tried again: %s", self.session_id, error)
            except Exception:
                # An error must not end the thread unseen. The lease goes on running out, which is safe.
                log.exception("session %s was not renewed", self.session_id)
            else:
                pause_s, say_at = self.lease_s * _RENEW_EVERY, -math.inf
                if not kept and not self._stop.is_set():
                    log.error(
                        "session %s is lost: its lease of %s s ran out at the store", self.session_id, self.lease_s
                    )
                    self.lose()
            if not self._stop.is_set() and not self.live():
                log.error("session %s is lost: not renewed for its lease of %s s", self.session_id, self.lease_s)
