"""Watchdog: breaks connections off whose server takes bytes and answers nothing: a machine that is frozen, or gone.

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
    """Of all connections of a process to one database. A thread looks, from the first question on until `stop`.

    Args:
        timeout_s: how long one question may take.
        runtime: threads and the clock.
    """

    def __init__(self, timeout_s: float, runtime: Runtime) -> None:
        self._timeout_s, self._runtime = timeout_s, runtime
        #: Held while a connection is broken off: it must not be closed meanwhile, its number would be another's.
        self._lock = runtime.lock()
        #: Until when each is to answer that was asked, by the number of its socket.
        self._asked: dict[int, float] = {}
        self._stop = runtime.event()
        self._runs = False

    @contextmanager
    def over(self, number: int) -> Iterator[None]:
        """Look after one question. Args: number: of the connection's socket, which stays open meanwhile."""
        with self._lock:
            begins, self._runs = not self._runs, True
            self._asked[number] = self._runtime.now() + self._timeout_s
        if begins:
            self._runtime.spawn(self._look, "holdfast-sql-watchdog")
        try:
            yield
        finally:
            with self._lock:
                self._asked.pop(number, None)

    def stop(self) -> None:
        """End the thread. Does not wait for it."""
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.wait(self._timeout_s * _LOOKS):
            with self._lock:
                now = self._runtime.now()
                for number in [number for number, until in self._asked.items() if until < now]:
                    del self._asked[number]
                    break_off(number)


def break_off(number: int) -> None:
    """Break a connection off. Args: number: of its socket, which stays open meanwhile."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as same:
        same.shutdown(socket.SHUT_RDWR)
