"""Spikes: a judge of what is taken in after an assignment, where a ramp is set (P8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.partition.ownership import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.ramp import Ramp
    from holdfast.records import Partition, Record
    from holdfast.testing.process import Process
    from tests.simulation.playing.book import Placed
    from tests.simulation.playing.stage import Stage

#: So long after an assignment nothing has doubled yet, whatever handlers do.
_JUDGED_S = 0.45
#: What is produced is measured over so long at least; clocks differ by so much.
_MEASURED_S, _CLOCK = 0.05, 1.03
#: That few are no backlog, and come at once.
_FEW = 10
#: What was taken in before counts over so long at most, where it is known for so long at least.
_HISTORY_S, _KNOWN_S = 10.0, 1.0


class Spikes:
    """Of one member. What it may take in at most, from outside: what is produced is known exactly, and what the ramp
    may find of it is bounded by that."""

    def __init__(self, stage: Stage, process: Process, ramp: Ramp) -> None:
        self._stage, self._process, self._ramp = stage, process, ramp
        self._born_s = stage.now
        self._came_s = -1e9
        #: The first record that came of each partition of the last assignment; None = that is not judged.
        self._first: dict[Partition, int | None] | None = None
        #: What nobody had to handle any more by then: known as done, it is no intake.
        self._over: set[Placed] = set()
        self._polled = 0
        self._before_per_s = 0.0

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Note that these partitions come."""
        now, ramp = self._stage.now, self._ramp
        awake_s = now - max(self._came_s, self._process.stalled_until - self._stage.began_at)
        apart = awake_s > 2 * ramp.over_s + 1.0  # else an older climb goes on
        lived_s = now - self._born_s
        self._before_per_s = self._polled / min(_HISTORY_S, lived_s) if lived_s > _KNOWN_S else 0.0
        # Where its group begins it has no backlog, also when its session is lost soon after.
        known = [each for each in partitions if self._stage.ground.committed(each) is not None]
        self._came_s, self._first = now, dict.fromkeys(known) if apart else None
        self._over = {record for each in partitions for record in self._records(each) if record.over}

    def delivered(self, records: Sequence[Record]) -> None:
        """A poll has brought these."""
        self._polled += len(records)
        for record in records if self._first else ():
            if self._first and record.partition in self._first and self._first[record.partition] is None:
                self._first[record.partition] = record.offset

    def look(self, name: str, owners: Mapping[Partition, Ownership]) -> None:
        """Judge the intake since they came."""
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
        if taken >= (most := self._most(owners)) + 1:  # a part of a record is none
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
    """Whether others have done it, or do it: it waits for them, and is no intake."""
    runs = record.unit.runs
    return bool(runs or record.over) and all(run.member != name for run in runs)
