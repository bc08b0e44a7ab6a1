"""Starving: notices that a partition which stays has no record left in the process while others are drained.

Inside a rebalance nothing is read: a client of Kafka's cannot be polled in its own callback. So the partitions that
stay go on with what is in the process, and then they stand still until the drain is over. What outlives a drain is
handed over as in hand, and its new owner waits for it: nothing is repeated by a drain that ends early. Without a store
the new owner would not know of it, so there the drain goes on until its deadline.

The broker is asked for the ends of the logs: librdkafka fetches nothing of any partition until its callback returns, so
what its last answers said stays what it was.

Of drains that follow each other closely a partition that stays waits through all of them: what it has waited counts on
while nothing of it is read between them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition

_log = logging.getLogger("holdfast")

#: A partition that stays waits so long for handlers of those that go.
_PATIENCE_S = 1.0
_LOOK_S = 0.2
_STARTED = frozenset({EntryState.STUCK, EntryState.ENDED, EntryState.GONE})


class Starving:
    """Watches the partitions that stay, in the drains of one member. One thread."""

    def __init__(
        self, parts: Parts, loop: Loop, source: PartitionedSource, owners: Mapping[Partition, Ownership]
    ) -> None:
        self._parts, self._source, self._owners = parts, source, owners
        self._starts = loop.starts_inside
        #: Partition -> what is read next of it, and the time at which it ran dry.
        self._since: dict[Partition, tuple[int, float]] = {}
        self._ends: dict[Partition, int] = {}
        self._began = self._looked = 0.0

    def begin(self) -> None:
        """A drain begins."""
        now = self._parts.runtime.now()
        if now - self._looked >= _PATIENCE_S:  # meanwhile it could be read
            self._since.clear()
        self._ends.clear()
        self._began = self._looked = now

    @property
    def too_long(self) -> bool:
        """Whether a partition that stays has waited for as long as it is to wait."""
        now = self._parts.runtime.now()
        if now < self._looked + _LOOK_S:
            return False
        self._looked = now
        self._since = {owner.partition: (owner.next_offset, self._dry_since(owner)) for owner in self._dry()}
        waits = [partition for partition, (_, since) in self._since.items() if now - since >= _PATIENCE_S]
        if waits:
            _log.info(
                "the drain ends after %.1f s: %s and %d others have run out of records, and a drain reads none",
                now - self._began,
                waits[0],
                len(waits) - 1,
            )
        return bool(waits)

    def _dry_since(self, owner: Ownership) -> float:
        """When it ran dry: at this look, unless it was seen to be then and nothing has been read since."""
        following, since = self._since.get(owner.partition, (None, 0.0))
        return since if following == owner.next_offset else self._looked

    def _dry(self) -> list[Ownership]:
        """Partitions that stay, of which nothing goes on here, though more could: their logs do, by the broker's last
        answer."""
        parts = self._parts
        if not parts.sessions.remembered:
            return []
        stand = [
            owner
            for owner in self._owners.values()
            if owner.open and parts.intake.lets_in(owner.partition) and not self._goes_on(owner)
        ]
        if stand:
            with suppress(SourceError):  # no answer: asked again
                self._ends.update(self._source.look_at_ends([owner.partition for owner in stand]) or {})
        return [
            owner
            for owner in stand
            if self._ends.get(owner.partition, 0) > owner.next_offset or any(map(_waits, owner.entries.values()))
        ]

    def _goes_on(self, owner: Ownership) -> bool:
        """Whether its records go on starting; of a user's loop, which gets none meanwhile: whether it has some."""
        if self._starts:
            return any(map(_waits, owner.entries.values())) or self._parts.intake.waiting.for_room(owner.partition)
        return any(entry.state is EntryState.TAKEN for entry in owner.entries.values())


def _waits(entry: Entry) -> bool:
    """Whether some of its records are still to start."""
    if entry.state is EntryState.TAKEN:
        return entry.started - entry.base < entry.count
    return entry.state not in _STARTED
