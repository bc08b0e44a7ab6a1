"""Spikes: judges the intake after an assignment, where a ramp is set (P8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.partition.ownership import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.settings import Ramp
    from holdfast.records import Partition, Record
    from holdfast.testing.process import Process
    from tests.simulation.playing.book import Placed
    from tests.simulation.playing.stage import Stage

#: The time after an assignment that is judged: the ramp has not doubled its rate by then, whatever handlers do.
_JUDGED_S = 0.45
#: The least time over which the production rate is measured; and the factor by which clocks differ.
_MEASURED_S, _CLOCK = 0.05, 1.03
#: So few records are no backlog, and come at once.
_FEW = 10
#: Earlier intake counts over at most so many seconds, if it is known for at least so many.
_HISTORY_S, _KNOWN_S = 10.0, 1.0


class Spikes:
    """The judge of one member. The most that it may take in is computed from outside: what is produced is known
    exactly, and bounds what the ramp can measure."""

    def __init__(self, stage: Stage, process: Process, ramp: Ramp) -> None:
        self._stage, self._process, self._ramp = stage, process, ramp
        self._born_s = stage.now
        self._came_s = -1e9
        #: The seconds of drains since then, in which no ramp goes on.
        self._drained_s = 0.0
        #: Partition of the last assignment -> first offset that came; None = the assignment is not judged.
        self._first: dict[Partition, int | None] | None = None
        #: Records that were over by then: the engine knows them as done, so they are no intake.
        self._over: set[Placed] = set()
        self._polled = 0
        self._before_per_s = 0.0

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Note that these partitions are assigned."""
        now, ramp = self._stage.now, self._ramp
        awake_s = now - max(self._came_s, self._process.stalled_until - self._stage.began_at) - self._drained_s
        apart = awake_s > 2 * ramp.over_s + 1.0  # else the ramp of an earlier assignment goes on
        lived_s = now - self._born_s
        self._before_per_s = self._polled / min(_HISTORY_S, lived_s) if lived_s > _KNOWN_S else 0.0
        # A group that begins has no backlog, also if its session is lost soon after.
        known = [each for each in partitions if self._stage.ground.committed(each) is not None]
        self._drained_s = 0.0
        self._came_s, self._first = now, dict.fromkeys(known) if apart else None
        self._over = {record for each in partitions for record in self._records(each) if record.over}

    def drained(self, for_s: float) -> None:
        """Note that a rebalance was held up for so long."""
        self._drained_s += for_s

    def delivered(self, records: Sequence[Record]) -> None:
        """Note the records that a poll has returned."""
        self._polled += len(records)
        for record in records if self._first else ():
            if self._first and record.partition in self._first and self._first[record.partition] is None:
                self._first[record.partition] = record.offset

    def look(self, name: str, owners: Mapping[Partition, Ownership]) -> None:
        """Judge the intake since the assignment."""
        if not self._first or self._stage.now - self._came_s > _JUDGED_S:
            return
        taken = sum(
            first <= record.offset < owners[partition].ledger.next and record not in self._over
            for partition, first in self._first.items()
            if first is not None and partition in owners and owners[partition].phase is Phase.OWNED
            if not owners[partition].begins
            for record in self._records(partition)
            if not _others(name, record)
        )
        if taken >= (most := self._most(owners)) + 1:  # fractions of a record do not count
            self._stage.judges.broken(
                "SPIKE",
                f"{name} has taken {taken} records in of what came {self._stage.now - self._came_s:.2f} s ago; its "
                f"ramp allows {most:.0f}",
            )

    def _most(self, owners: Mapping[Partition, Ownership]) -> float:
        stage, ramp, before_per_s = self._stage, self._ramp, self._before_per_s
        produced = sum(record.written_s >= self._came_s for partition in owners for record in self._records(partition))
        cap = ramp.headroom * max(before_per_s, produced / _MEASURED_S)
        rate = max(ramp.floor_per_s, before_per_s, cap)
        since_s = (stage.now - self._came_s) * _CLOCK + _MEASURED_S
        return rate * since_s + max(_FEW, rate * _MEASURED_S, cap) + produced + len(self._first or ())

    def _records(self, partition: Partition) -> Sequence[Placed]:
        return self._stage.book.logs.get(self._stage.log(partition), ())


def _others(name: str, record: Placed) -> bool:
    """Whether another member has done the record's work, or does it: it waits for that member, and is no intake."""
    runs = record.unit.runs
    return bool(runs or record.over) and all(run.member != name for run in runs)
