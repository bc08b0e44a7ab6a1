"""Holes: offsets without a record in the log; tells those that never had one from those that retention deleted.

A hole is retention's as far as it lies below the log's start, which each answer to a fetch tells Kafka's client (1.0
on); of a RocketMQ queue it is known only where a master has said so. Both may run ahead of what is admitted, so a hole
that retention reaches just then counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.events import RecordsExpired

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.recorder import Recorder
    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import PartitionedSource


class Holes:
    """One thread. Moves no ledger: it tells what is about to be passed over."""

    def __init__(self, source: PartitionedSource, recorder: Recorder, tell: Callable[[Event], None]) -> None:
        self._source, self._recorder, self._tell = source, recorder, tell

    def pass_over(self, owner: Ownership, at: int, until: int) -> None:
        """The source has gone from there to there, and brought nothing."""
        start = self._source.start_offsets([owner.partition]).get(owner.partition, 0)
        expired = owner.ledger.unknown(at, min(start, until)) if start > at else []
        if expired:
            self._tell(
                RecordsExpired(
                    partition=owner.partition,
                    first=expired[0].start,
                    next=expired[-1].stop,
                    records=sum(map(len, expired)),
                )
            )
        for gone in (*expired, range(until, until)):
            if at < gone.start:
                self._recorder.absent(owner, range(at, gone.start))
            if gone:
                self._recorder.expired(owner, gone)
            at = gone.stop
