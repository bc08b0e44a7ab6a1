"""Delays: holds back what comes of a retry topic until it is due.

All records of one retry topic wait equally long, so the first that is not due tells when its partition goes on: until
then it is paused, and what the client has fetched of it is dropped unseen. Nothing of it is in the process meanwhile:
no entry, no claim, no place in the ledger. So a hand-over, a drain and a commit find nothing to wait for, and the next
owner reads the same records. When the time has come, the client is sent back to where the ledger stands.

A record is due its delay after its timestamp (the broker's, where the topic has LogAppendTime, else that of the member
which wrote it), by the wall clock of the member that reads it. Clocks may be wrong, and timestamps anybody's who may
write there. So none waits for longer than its delay from the first hold after which it was there, and that one is over
after one delay too.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.plugin.retrying.retry_topics import Step
    from holdfast.records import Partition, Record

#: Each hold throws away what was fetched. So it lasts for a part of the delay at least, and at most so long: what comes
#: due meanwhile goes on together.
_PART, _MOST_S = 0.05, 1.0


class _Hold:
    """Whether one partition is held, while one ownership of it lasts."""

    __slots__ = ("active", "due_ms", "owner", "seen_due", "seen_until")

    def __init__(self, owner: Ownership) -> None:
        self.owner = owner
        #: The partition is held now: none of its records goes on.
        self.active = False
        #: Wall clock, for people: when its next record is due.
        self.due_ms = 0
        #: Offsets below were seen, and are due then at the latest, by the engine's clock.
        self.seen_until, self.seen_due = 0, 0.0


class Delays:
    """One thread."""

    def __init__(self, parts: Parts, source: PartitionedSource, owners: Mapping[Partition, Ownership]) -> None:
        self._steps, self._timers, self._runtime = parts.routes.retry_topics.steps, parts.timers, parts.runtime
        self._source, self._owners = source, owners
        self._holds: dict[Partition, _Hold] = {}

    def only_due(self, batch: Batch) -> Batch:
        """Return what is due of a batch. The rest comes again."""
        if not self._steps or not (batch.records or batch.ends):
            return batch
        records: list[Record] = []
        for fence, group in groupby(batch.records, key=_FENCE):
            came = list(group)
            step = self._steps.get(came[0].topic)
            owner = self._owners.get(came[0].partition)
            if step is None or owner is None or owner is not fence or not owner.open:
                records += came  # what does not belong here is dropped by whoever admits it
            else:
                records += self._due(owner, came, step)
        # The end of what was dropped would make a gap of it.
        return Batch(records, [end for end in batch.ends if self._held(end.partition) is None], batch.unreadable)

    @property
    def held(self) -> Collection[Partition]:
        """Partitions that are to deliver nothing."""
        return [partition for partition in self._holds if self._held(partition) is not None]

    def due_ms(self, partition: Partition) -> int | None:
        """When the next record of a partition that is held is due, by the wall clock; None = it is not held."""
        hold = self._held(partition)
        return None if hold is None else hold.due_ms

    # ---- inside
    def _held(self, partition: Partition) -> _Hold | None:
        hold = self._holds.get(partition)
        return hold if hold is not None and hold.active and hold.owner is self._owners.get(partition) else None

    def _due(self, owner: Ownership, came: Sequence[Record], step: Step) -> Sequence[Record]:
        """The records before the first that is not due."""
        hold = self._holds.get(owner.partition)
        if hold is None or hold.owner is not owner:
            hold = self._holds[owner.partition] = _Hold(owner)
        if hold.active:
            return ()
        now, wall_ms = self._runtime.now(), self._runtime.wall_ms()
        for at, record in enumerate(came):
            wait_s = _wait_s(record, step.delay_s, wall_ms)
            if record.offset < hold.seen_until:
                wait_s = min(wait_s, hold.seen_due - now)
            if wait_s > 0:
                self._begin_hold(hold, wait_s, step.delay_s, came[-1])
                return came[:at]
        return came

    def _begin_hold(self, hold: _Hold, wait_s: float, delay_s: float, last: Record) -> None:
        now, partition = self._runtime.now(), hold.owner.partition
        if now >= hold.seen_due:
            ends: Mapping[Partition, int] = {}
            with suppress(SourceError):
                ends = self._source.end_offsets([partition])
            hold.seen_until, hold.seen_due = max(last.offset + 1, ends.get(partition, 0)), now + delay_s
        wait_s = max(wait_s, min(_PART * delay_s, _MOST_S))
        hold.active, hold.due_ms = True, self._runtime.wall_ms() + round(wait_s * 1000)
        self._timers.after(wait_s, lambda: self._end_hold(hold))

    def _end_hold(self, hold: _Hold) -> None:
        hold.active = False
        partition = hold.owner.partition
        if self._owners.get(partition) is hold.owner:
            hold.owner.seek_needed = True
        elif self._holds.get(partition) is hold:
            del self._holds[partition]


def _wait_s(record: Record, delay_s: float, wall_ms: int) -> float:
    """The wait by the record's timestamp, at most the delay; without a timestamp, all of it."""
    if record.timestamp_ms < 0:
        return delay_s
    return min(delay_s, delay_s - (wall_ms - record.timestamp_ms) / 1000)


_FENCE = attrgetter("fence")
