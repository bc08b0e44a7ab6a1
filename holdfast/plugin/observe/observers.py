"""Observers: passes events to the log, to the figures, and to the application's observers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.plugin.events import SourceTrouble, Stopped
from holdfast.plugin.folding import Folding, LineLimit
from holdfast.plugin.retrying.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import Observer
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")


class Observers:
    """Passes each event on: to the log first, then to the figures, then to the application's observers."""

    def __init__(self, counts: Callable[[Event], None], observers: Sequence[Observer], clock: Clock) -> None:
        self._counts, self._observers, self._folding = counts, tuple(observers), Folding(clock)
        self._limit, self._failures = LineLimit(clock), Failures()

    def tell(self, event: Event) -> None:
        """Log an event and call all observers. An observer's error is logged, and the others are called."""
        self._log(event)
        self._counts(event)
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception as error:  # noqa: BLE001 - an observer is the application's code
                self._failures.failed(f"the observer {type(observer).__qualname__}", event, error)

    def _log(self, event: Event) -> None:
        """Log an event. Repeated troubles of the source and events about single records are limited."""
        for kind, more in self._limit.over(all_of_them=isinstance(event, Stopped)):
            _log.warning("%d more lines of %s were left out: app.snapshot() counts all", more, kind)
        if event.of_a_record and not self._limit.has_room(type(event).__name__):
            return
        line = self._folding.says(str(event)) if isinstance(event, SourceTrouble) else event
        if line is not None:
            _log.log(event.level, "%s", line)
