"""When a source whose client is finished makes the next one: at once, or with a wait that grows with each failure in a
row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka import faults
from holdfast.errors import SourceError, SourceFatal
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.adapters.kafka._client import KafkaError
    from holdfast.adapters.kafka.static_member import Refusals

#: A client that lived for longer ends a series of failures: the next wait is short again.
_STABLE_S = 120.0


class Renewal:
    """The wait for the next client of one source. One thread."""

    def __init__(self) -> None:
        self._due_at = 0.0
        #: How many clients in a row were finished.
        self.in_a_row = 0

    def finished(self) -> float:
        """Note that a client is finished. Returns the seconds until the next one is made."""
        if SYSTEM_CLOCK.now() - self._due_at > _STABLE_S:
            self.in_a_row = 0
        self.in_a_row += 1
        wait_s = BACKOFF.wait_s(self.in_a_row, SourceFatal()) or 0.0
        self._due_at = SYSTEM_CLOCK.now() + wait_s
        return wait_s

    @property
    def left_s(self) -> float:
        """Seconds until the next client is made; not below 0."""
        return max(self._due_at - SYSTEM_CLOCK.now(), 0.0)


def finished_error(error: KafkaError, group: str, refusals: Refusals | None, wait_s: float) -> SourceError | None:
    """The error to raise about a client that an error has finished; None = it was raised before."""
    if refusals is not None and faults.is_about_static_id(error):
        return refusals.judge(error)
    said = faults.as_source_error(error, f"member of {group}")
    return SourceFatal(f"{said}; a new client is made in {wait_s:.1f} s")
