"""Says what goes on: a line that is overwritten on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

_PLAIN_EVERY_S = 4.0
_TICK_EVERY_S = 0.2


class Progress:
    """Writes to standard output. Seconds count from the making of this object."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._last_plain = 0.0
        self._last_tick = 0.0

    def say(self, text: str) -> None:
        """Something that happened, and stays on the screen."""
        self._clear()
        print(f"{self._clock()} {text}", flush=True)
        self._last_plain = time.monotonic()

    def tick(self, text: str) -> None:
        """How things stand; call it as often as you like."""
        if self._terminal:
            if time.monotonic() - self._last_tick < _TICK_EVERY_S:
                return  # more would flicker
            self._last_tick = time.monotonic()
            self._clear()
            print(f"{self._clock()}   {text}"[: shutil.get_terminal_size().columns - 1], end="", flush=True)
        elif time.monotonic() - self._last_plain >= _PLAIN_EVERY_S:
            print(f"{self._clock()}   {text}", flush=True)
            self._last_plain = time.monotonic()

    def done(self) -> None:
        """What follows is not progress."""
        self._clear()

    def _clear(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="")

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:4.0f} s"
