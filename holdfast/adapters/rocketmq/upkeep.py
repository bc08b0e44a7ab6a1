"""Upkeep: what has to be done now and then and may have to wait for a broker, on a thread of its own.

Heartbeats, so that brokers' own tools see the group; routes, for queues that come and go; a look for members that are
not ours; and a look at the offsets that brokers have.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("holdfast.rocketmq")

#: How long one duty may wait for its brokers.
_DUTY_S = 5.0
#: After a duty that failed.
_AGAIN_S = 1.0


class Duty:
    """One thing to do, and when. `soon` may be called by any thread."""

    def __init__(self, name: str, do: Callable[[Deadline], object], interval_s: float) -> None:
        self.name, self._do, self._interval_s = name, do, interval_s
        self.at = SYSTEM_CLOCK.now() + interval_s
        self._failed = False

    def do(self) -> None:
        """Do it now. What goes wrong is logged once, and it is tried again soon."""
        now = SYSTEM_CLOCK.now()
        self.at = now + self._interval_s
        try:
            self._do(Deadline(_DUTY_S))
        except Exception as error:  # noqa: BLE001 - the other duties go on
            self.at = now + min(self._interval_s, _AGAIN_S)
            defect = None if isinstance(error, HoldfastError) else error
            _log.log(logging.DEBUG if self._failed else logging.WARNING, "%s: %s", self.name, error, exc_info=defect)
            self._failed = True
        else:
            self._failed = False


class Upkeep:
    """One thread that does what is due."""

    def __init__(self, group: str) -> None:
        self._duties: list[Duty] = []
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast-upkeep-{group}", daemon=True)

    def add(self, name: str, do: Callable[[Deadline], object], interval_s: float) -> Duty:
        """Before `start`. Raises in `do`: HoldfastError, to be tried again."""
        duty = Duty(name, do, interval_s)
        self._duties.append(duty)
        return duty

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def soon(self, *duties: Duty) -> None:
        """Do these (all, if none is named) as soon as may be. Any thread."""
        for duty in duties or self._duties:
            duty.at = 0.0
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End; what is being done just now is waited for so long at most. Idempotent. A duty may call it too."""
        self._over = True
        self._wake.set()
        if self._thread.ident not in {None, threading.get_ident()}:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._over:
            due = min(duty.at for duty in self._duties)
            self._wake.wait(max(0.0, due - SYSTEM_CLOCK.now()))
            self._wake.clear()
            for duty in self._duties:
                if duty.at <= SYSTEM_CLOCK.now() and not self._stopped():
                    duty.do()

    def _stopped(self) -> bool:
        return self._over
