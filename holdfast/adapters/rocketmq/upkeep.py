"""Upkeep: periodic duties that may wait for a broker, on a thread of their own.

Examples: heartbeats, so that brokers' own tools see the group; routes, for queues that are added or removed; checks for
foreign members, and for offsets that other programs have committed.
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

#: The deadline of one duty.
_DUTY_S = 5.0
#: The wait until a failed duty is repeated.
_AGAIN_S = 1.0


class Duty:
    """One duty and the time at which it is due. Any thread may set `at`."""

    def __init__(self, name: str, do: Callable[[Deadline], object], interval_s: float) -> None:
        self.name, self._do, self._interval_s = name, do, interval_s
        self.at = SYSTEM_CLOCK.now() + interval_s
        self._failed = False

    def do(self) -> None:
        """Do it now. A failure is logged once, and the duty is repeated soon."""
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
    """A thread that does the duties when they are due."""

    def __init__(self, group: str) -> None:
        self._duties: list[Duty] = []
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast-upkeep-{group}", daemon=True)

    def add(self, name: str, do: Callable[[Deadline], object], interval_s: float) -> Duty:
        """Add a duty, before `start`. If `do` raises, it is repeated soon; an error that is no HoldfastError is logged
        with its traceback."""
        duty = Duty(name, do, interval_s)
        self._duties.append(duty)
        return duty

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def soon(self, *duties: Duty) -> None:
        """Do these duties (none named: all) as soon as possible. Any thread."""
        for duty in duties or self._duties:
            duty.at = 0.0
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End, and wait at most this long for the current duty. Idempotent. A duty may call it too."""
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
