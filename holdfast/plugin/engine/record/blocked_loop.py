"""A blocked loop: an `async def` that computes for a second, or calls a client that blocks, holds up all others.

The loop is asked to answer while coroutines run in it. Where it does not, the stack of its thread says in which handler
it is, and at which line.
"""

from __future__ import annotations

import sys
import sysconfig
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record import attempts
from holdfast.plugin.events import EventLoopBlocked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.events import Event
    from holdfast.timing import Clock

#: Without an answer for so long, the loop is blocked.
_BLOCKED_S = 1.0
_LOOK_S = 0.1
#: Where frames are whose lines say little: the package, the standard library, and what is installed.
_OURS = str(Path(__file__).parents[3])
_LIBRARIES = (_OURS, *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class BlockedLoop:
    """Tells once of each handler that blocks the event loop. One thread, the one that runs the app."""

    def __init__(self, workers: Workers, clock: Clock, tell: Callable[[Event], None]) -> None:
        self._workers, self._coroutines, self._clock, self._tell = workers, workers.coroutines, clock, tell
        self._look_at = 0.0
        #: When the loop was asked, as the number of the question; and the last one that it has answered.
        self._asked_at, self._asked, self._answered = 0.0, 0, 0
        self._told: set[str] = set()

    def step(self) -> None:
        """Look whether the loop goes on."""
        now = self._clock.now()
        if now < self._look_at or not self._workers.has_coroutines:
            return
        self._look_at = now + _LOOK_S
        if self._answered == self._asked:
            self._asked_at, self._asked = now, self._asked + 1
            self._coroutines.call(partial(self._hear, self._asked))
        elif now - self._asked_at >= _BLOCKED_S:
            self._look(now - self._asked_at)

    def _hear(self, number: int) -> None:
        """In the event loop's thread."""
        self._answered = number

    def _look(self, for_s: float) -> None:
        """Find the handler: its call is a local variable of the attempt that the loop is in, if it is in one."""
        innermost = frame = sys._current_frames().get(self._coroutines.thread_id)  # noqa: SLF001 - it has no other name
        own: FrameType | None = None
        while frame is not None and not (_is_attempt(frame) and "call" in frame.f_locals):
            own = own or (None if frame.f_code.co_filename.startswith(_LIBRARIES) else frame)
            frame = frame.f_back
        stands = own or innermost
        if frame is None or stands is None:
            return
        handler: str = frame.f_locals["call"].handler
        if handler not in self._told:
            self._told.add(handler)
            where = f"{stands.f_code.co_filename}:{stands.f_lineno}"
            self._tell(EventLoopBlocked(handler=handler, where=where, for_s=for_s))


def _is_attempt(frame: FrameType) -> bool:
    return frame.f_code.co_filename == attempts.__file__
