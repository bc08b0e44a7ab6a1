"""Stopping: holds whether the app is to end, why, and how fast."""

from __future__ import annotations

import logging

from holdfast.errors import StateError
from holdfast.plugin.retrying.failures import words_of

_log = logging.getLogger("holdfast")


class Stopping:
    """Asked to stop from any thread and any signal handler; failed by the thread that runs the app."""

    def __init__(self) -> None:
        self._asked = 0
        self._why = ""
        #: A static member is to leave its group for good, instead of coming back.
        self.leaves = False
        #: Why the app stops by itself; raised by `run()`.
        self.error: Exception | None = None

    def stop(self, *, leave: bool = False, why: str = "stop()") -> None:
        """Drain and leave; a second call is faster: what runs is handed over at once. Safe in a signal handler.

        Args:
            leave: for good: a static member's partitions go to others at once.
            why: for the log.
        """
        self.leaves = self.leaves or leave
        self._why = self._why or why
        # No more than that: a signal handler may interrupt this very thread while it holds a lock, that of `wake` too.
        self._asked += 1

    def fail(self, error: BaseException) -> None:
        """Stop in good order, and let `run()` raise this. What is no Exception it raises by itself: then this tells who
        looks on why the app has ended."""
        if self.error is None:
            self.error = (
                error if isinstance(error, Exception) else StateError(f"the application raised {words_of(error, repr)}")
            )
            if isinstance(error, (Exception, SystemExit)):  # the end of a simulated process is neither
                _log.error("stopping: %s", words_of(self.error))

    @property
    def begun(self) -> bool:
        """Whether the app is on its way out: nothing new is taken over."""
        return self._asked > 0 or self.error is not None

    @property
    def why(self) -> str:
        """Why it stops, in words."""
        return f"{type(self.error).__name__}: {self.error}" if self.error is not None else self._why

    @property
    def asked(self) -> bool:
        """Whether somebody has asked for it."""
        return self._asked > 0

    @property
    def hurry(self) -> bool:
        """Whether somebody has asked twice."""
        return self._asked > 1
