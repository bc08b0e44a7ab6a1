"""Watchdog: breaks a connection off whose server takes bytes and answers nothing: a machine that is frozen, or gone.

libpq waits for a reply without an end. The server's own time limits do not help where the server stands still.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.runtime import Runtime

#: How often it looks, as a share of the time that a reply may take.
_LOOKS = 1 / 8


class Watchdog:
    """One connection's. A thread looks, from the first question on until `stop`.

    Args:
        timeout_s: how long one question may take.
        runtime: threads and the clock.
    """

    def __init__(self, timeout_s: float, runtime: Runtime) -> None:
        self._timeout_s, self._runtime = timeout_s, runtime
        #: Held while the connection is broken off: it must not be closed meanwhile, its number would be another's.
        self._lock = runtime.lock()
        self._asked: tuple[int, float] | None = None
        self._stop = runtime.event()
        self._runs = False

    @contextmanager
    def over(self, number: int) -> Iterator[None]:
        """Look after one question. Args: number: of the connection's socket, which stays open meanwhile."""
        if not self._runs:
            self._runs = True
            self._runtime.spawn(self._look, "holdfast-sql-watchdog")
        self._asked = (number, self._runtime.now() + self._timeout_s)
        try:
            yield
        finally:
            with self._lock:
                self._asked = None

    def stop(self) -> None:
        """End the thread. Does not wait for it."""
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.wait(self._timeout_s * _LOOKS):
            with self._lock:
                if self._asked is not None and self._asked[1] < self._runtime.now():
                    number, self._asked = self._asked[0], None
                    with suppress(OSError), socket.socket(fileno=os.dup(number)) as same:
                        same.shutdown(socket.SHUT_RDWR)
