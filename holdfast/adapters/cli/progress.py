"""Progress: how far work is that takes longer than a moment, and that it goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from holdfast.printable import printable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.adapters.cli.streams import Written
    from holdfast.timing import Clock

#: How often the line is rewritten on a terminal, and how often a line is written elsewhere.
_REWRITE_S = 0.1
_LINE_S = 5.0
#: After so long without news the line on a terminal says how long the work has taken, looked at each `_BEAT_S`.
_QUIET_S = 2.0
_BEAT_S = 0.5


class Progress:
    """A line that is rewritten on a terminal, a line every few seconds elsewhere; nothing where the work is quick.

    Use it as a context: on a terminal nothing of it is left after its end. On a terminal it also tells of work that
    waits for one answer, and has nothing to count.

    Args:
        err: where the line is written.
        what: what is being done, such as "reading claims".
        total: how many things the work has to do; None: not known.
        clock: decides when to write.
    """

    def __init__(self, err: Written, what: str, total: int | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._err, self._what, self._total, self._clock = err, printable(what), total, clock
        self._terminal = err.isatty()
        self._every_s = _REWRITE_S if self._terminal else _LINE_S
        self._began = self._told = clock.now()
        self._next = self._began + self._every_s
        self._text, self._width = self._what, 0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if self._terminal:
            threading.Thread(target=self._beat_until_over, name="holdfast-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.clear()

    def at(self, done: int, more: str = "", *, of: int | None = None) -> None:
        """Note how much is done. Cheap while no line is due.

        Args:
            done: how many things are done.
            more: text behind the numbers.
            of: the total, if it is known only now.
        """
        now = self._clock.now()
        if now < self._next:
            return
        self._next = now + self._every_s
        total = self._total if of is None else of
        text = printable(
            f"{self._what}: {done:,}{'' if total is None else f' of {total:,}'}{', ' + more if more else ''}"
        )
        with self._lock:
            self._text, self._told = text, now
            if self._terminal:
                self._rewrite(text)
            else:
                self._err.write(text + "\n")
                self._err.flush()

    def beat(self) -> None:
        """Add the time to the line, if there was no news for a while. For terminals."""
        with self._lock:
            now = self._clock.now()
            if now - self._told >= _QUIET_S and not self._over.is_set():
                self._rewrite(f"{self._text}, {now - self._began:.0f} s")

    def clear(self) -> None:
        """Take the line away: other text is to be written there."""
        with self._lock:
            if self._width:
                self._err.write("\r" + " " * self._width + "\r")
                self._err.flush()
                self._width = 0

    def _rewrite(self, text: str) -> None:
        self._err.write("\r" + text.ljust(self._width))
        self._width = max(self._width, len(text))
        self._err.flush()

    def _beat_until_over(self) -> None:
        while not self._over.wait(_BEAT_S):
            self.beat()
