"""Backlog: measures the lag and the production rate by the ends of the logs. Only the ramp uses it.

The lag that a hand-over leaves is measured once, half a second after it is known: later lag is what the ramp itself
leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition
    from holdfast.timing import Clock

#: Looks come close together at first: the production rate must be known before much is taken.
_FIRST_S, _THEN_S = 0.05, 1.0
#: After a question that was not answered.
_TROUBLE_S = 5.0
#: An older answer does not say that nothing is behind: it may have come since.
_FRESH_S = 0.5
#: Fewer records give no rate.
_FEW = 4


class Backlog:
    """Asks the broker for the ends of logs, now and then. One thread."""

    def __init__(self, source: PartitionedSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._first: dict[Partition, tuple[float, int]] = {}
        self._look_at, self._wait_s = 0.0, _FIRST_S
        #: An answer is outstanding; it was requested before partitions came.
        self._asked = self._outdated = False
        self._asked_at = 0.0
        #: The lag of new partitions at the last look, in records; inf = not known.
        self.lag = math.inf
        #: The rate for all owned partitions, and for the new ones; None = not known.
        self.produced_per_s: float | None = None
        self.produced_new_per_s: float | None = None

    def begin(self) -> None:
        """Partitions came: look at once, and measure anew."""
        self._first.clear()
        self.lag, self.produced_per_s, self.produced_new_per_s = math.inf, None, None
        self._look_at, self._wait_s = self._clock.now(), _FIRST_S
        self._outdated = self._asked

    def look(self, owners: Collection[Ownership], came: Container[Partition]) -> None:
        """Ask, if it is time, and take the answer when it is there. Never waits: marks and polls would wait with it.

        Args:
            owners: all assigned partitions.
            came: the new ones.
        """
        now = self._clock.now()
        if now < self._look_at:
            return
        owned = [owner for owner in owners if owner.is_owned]
        if len(owned) < len(owners) or not any(owner.partition in came for owner in owned):
            # Some are not taken over yet; or the group begins in all that came, and there is nothing to hold.
            self.lag = 0.0 if owned and len(owned) == len(owners) else math.inf
            return
        if not self._asked:
            self._asked_at = now
        try:
            ends = self._source.look_at_ends([owner.partition for owner in owned])
        except SourceError:  # it is asked for speed, not for truth: who needs the broker will tell of the trouble
            self.lag, self._look_at = math.inf, now + _TROUBLE_S
            self._asked = self._outdated = False
            return
        self._asked = ends is None
        if ends is None:
            return
        outdated, self._outdated = self._outdated, False
        if outdated or any(owner.partition not in ends for owner in owned):
            return  # asked before some of them came, or came back: once more
        produced = {owner.partition: ends[owner.partition] for owner in owned}
        self.produced_per_s = self._produced(produced, now)
        self.produced_new_per_s = self._produced({each: end for each, end in produced.items() if each in came}, now)
        if now - self._asked_at > _FRESH_S:
            self.lag = math.inf
            return
        self._look_at, self._wait_s = now + self._wait_s, min(2 * self._wait_s, _THEN_S)
        self.lag = sum(max(0, ends[owner.partition] - owner.next_offset) for owner in owned if owner.partition in came)

    def _produced(self, ends: Mapping[Partition, int], now: float) -> float | None:
        """The rate, rather too low than too high, since what was admitted stays admitted: less one standard deviation,
        and counted from the first question, since a process that stands still gets its answer late."""
        count, per_s = 0, 0.0
        for partition, end in ends.items():
            since, first = self._first.setdefault(partition, (self._asked_at, end))
            if now > since and end > first:
                count += end - first
                per_s += (end - first) / (now - since)
        return per_s * (1 - 1 / math.sqrt(count)) if count >= _FEW else None
