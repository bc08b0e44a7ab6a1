"""Watchdog: breaks connections off whose server takes bytes and answers nothing: a machine that is frozen, or gone.

libpq waits for a reply without an end. The server's own time limits do not help where the server stands still.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

    def over(self, number: int) -> Question:
        """Look after one question, as long as this is entered. Args: number: of the connection's socket, which stays
        open meanwhile."""
        return Question(self, number)

    def begin(self, number: int) -> None:
        """Note that a question is asked. Each transaction comes here several times: no lock is taken."""
        self._asked[number] = self._runtime.now() + self._timeout_s
        if not self._runs:
            self._run()

    def end(self, number: int) -> None:
        """Note that it is answered. Returns when its connection is not being broken off."""
        if self._asked.pop(number, None) is None:
            with self._lock:
                pass

    def stop(self) -> None:
        """End the thread. Does not wait for it."""
        self._stop.set()

    def _run(self) -> None:
        with self._lock:
            begins, self._runs = not self._runs, True
        if begins:
            self._runtime.spawn(self._look, "holdfast-sql-watchdog")

    def _look(self) -> None:
        while not self._stop.wait(self._timeout_s * _LOOKS):
            now = self._runtime.now()
            for number, until in list(self._asked.items()):
                if until < now:
                    self._break_off(number, until)

    def _break_off(self, number: int, until: float) -> None:
        with self._lock:
            # Whoever takes it out of the dictionary has it: us, or who was answered; or it is another question now.
            if self._asked.get(number) == until and self._asked.pop(number, None) is not None:
                break_off(number)


class Question:
    """One question, which is asked while this is entered."""

    __slots__ = ("_number", "_of")

    def __init__(self, of: Watchdog, number: int) -> None:
        self._of, self._number = of, number

    def __enter__(self) -> None:
        self._of.begin(self._number)

    def __exit__(self, *_: object) -> None:
        self._of.end(self._number)


def break_off(number: int) -> None:
    """Break a connection off. Args: number: of its socket, which stays open meanwhile."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as same:
        same.shutdown(socket.SHUT_RDWR)
