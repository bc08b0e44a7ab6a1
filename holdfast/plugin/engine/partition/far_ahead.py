"""FarAhead: bounds how far a partition is read beyond its lowest record that is not done.

What is done above that record has to be remembered, here, in the store, and by each next owner. So a partition whose
distance reaches the bound delivers no more until the record ends. Handlers of what has come go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.plugin.events import ReadTooFarAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.events import Event
    from holdfast.plugin.observe.snapshot import OpenRecord
    from holdfast.records import Partition


class FarAhead:
    """One thread.

    Args:
        bound: in offsets; those that the log has no records for count.
        tell: is told once of each partition that is held.
    """

    def __init__(self, bound: int, tell: Callable[[Event], None]) -> None:
        self._bound, self._tell = bound, tell
        self._held: dict[Partition, Ownership] = {}

    def look(self, owners: Mapping[Partition, Ownership]) -> Collection[Partition]:
        """Find the partitions that are to deliver nothing for now.

        One that is held goes on when a quarter of the bound is free: each resume throws away what was fetched.
        """
        before, self._held = self._held, {}
        for partition, owner in owners.items():
            ledger = owner.ledger
            # What a loop's seek has passed over is one range, however long, and nothing in it will end by itself.
            ahead = ledger.next - max(ledger.watermark, owner.moved_to)
            was = before.get(partition) is owner
            if ahead < (self._bound - self._bound // 4 if was else self._bound):
                continue
            self._held[partition] = owner
            if not was:
                self._tell(
                    ReadTooFarAhead(partition=partition, offset=ledger.watermark, ahead=ahead, max_ahead=self._bound)
                )
        return self._held.keys()

    def noted(self, partition: Partition, lowest: OpenRecord) -> OpenRecord:
        """The lowest open record of a partition, with a word on what it holds up."""
        if partition not in self._held:
            return lowest
        return replace(
            lowest, waits_for=f"{lowest.waits_for}; nothing more is read until then ({self._bound} offsets on)"
        )
