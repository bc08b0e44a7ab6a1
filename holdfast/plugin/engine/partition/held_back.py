"""Held back: partitions that deliver nothing for now, though they are owned and the process has room.

- The handler of their topic is paused at its limit of dead letters.
- They are of a retry topic, and the next record is not due (`Delays`).
- They were read too far ahead: the records done above their lowest open one have to be remembered here, in the store,
  and by each next owner. So a partition whose distance reaches the bound delivers no more until that record ends.
  Handlers of what has come go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.plugin.events import ReadTooFarAhead

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.plugin.engine.partition.delays import Delays
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.observe.snapshot import OpenRecord
    from holdfast.records import Partition


class HeldBack:
    """Tells the intake which partitions are held back. One thread."""

    def __init__(self, parts: Parts, owners: Mapping[Partition, Ownership], delays: Delays) -> None:
        self._parts, self._owners, self._delays = parts, owners, delays
        #: In offsets; those that the log has no records for count.
        self._bound = parts.settings.max_ahead
        self._far_ahead: dict[Partition, Ownership] = {}
        self._any = False

    def step(self, assignment: Collection[Partition]) -> None:
        """Look at all partitions that are assigned."""
        parts, paused, waiting = self._parts, self._parts.outcomes.brakes.paused, self._delays.held
        self._look_far_ahead()
        any_before, self._any = self._any, bool(paused or waiting or self._far_ahead)
        if self._any or any_before:
            stopped = [each for each in assignment if self._is_paused(each, paused)] if paused else []
            parts.intake.hold_back({*stopped, *waiting, *self._far_ahead})

    def explain(self, partition: Partition, lowest: OpenRecord | None) -> OpenRecord | None:
        """Add to the lowest open record of a partition that the partition is not read on for it, where that is so."""
        if lowest is None or partition not in self._far_ahead:
            return lowest
        return replace(
            lowest, waits_for=f"{lowest.waits_for}; nothing more is read until then ({self._bound} offsets on)"
        )

    def why(self, partition: Partition) -> str | None:
        """Why the client delivers nothing of an owned partition for now, in words; None = nothing holds it back."""
        intake = self._parts.intake
        if self._delays.due_ms(partition) is not None:
            return "its next record is not due yet"
        if partition in self._far_ahead:
            return f"it was read {self._bound} offsets beyond its lowest open record"
        brakes = self._parts.outcomes.brakes
        if brakes.paused and self._is_paused(partition, brakes.paused):
            return "its handler is paused at the limit of its dead letters"
        if partition in intake.held:
            return "the application's loop has paused it, or left it out"
        return "enough of it waits in this process" if intake.is_paused(partition) else None

    def _is_paused(self, partition: Partition, paused: Collection[str]) -> bool:
        routes = self._parts.routes
        handler = routes.find(routes.retry_topics.born_in(partition.topic))
        return handler is not None and handler.name in paused

    def _look_far_ahead(self) -> None:
        """A partition that is held goes on when a quarter of the bound is free: each resume throws away what was
        fetched."""
        before, self._far_ahead = self._far_ahead, {}
        for partition, owner in self._owners.items():
            ledger = owner.ledger
            # A seek of the user's loop passes over one range, however long, and nothing in it will end by itself.
            ahead = ledger.next - max(ledger.watermark, owner.moved_to)
            was = before.get(partition) is owner
            if ahead < (self._bound - self._bound // 4 if was else self._bound):
                continue
            self._far_ahead[partition] = owner
            if not was:
                self._parts.tell(
                    ReadTooFarAhead(partition=partition, offset=ledger.watermark, ahead=ahead, max_ahead=self._bound)
                )
