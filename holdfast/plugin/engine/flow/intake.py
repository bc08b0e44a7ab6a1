"""Intake: limits the records and bytes in the process and their rate, and decides which partitions to pause.

- Handlers keep up if they end half of what is admitted, whatever is in the process: one stuck partition says nothing
  of the others.
- Pausing throws prefetched records away; a jam shorter than 0.2 s only stops polling (`Intake`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.plugin.engine.flow.new_partitions import NewPartitions
from holdfast.plugin.engine.flow.ramp_rate import Climb, Pace
from holdfast.plugin.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

#: A partition may always have that many in the process, so that one whose records all wait does not stop the others.
_GUARANTEED = 64
#: Not polling costs nothing, pausing throws the client's prefetched records away: so a short jam only waits.
_GRACE_S = 0.2


class Intake:
    """Counts what is in the process, and says how many records the next poll may bring. One thread."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.records = 0
        self.bytes = 0
        #: Of these, what a user's loop has, or is about to get, which alone can end it and asks for more: the bounds
        #: leave it out.
        self.lent_records = self.lent_bytes = 0
        #: Records that have come into the process since its start.
        self.admitted = 0
        self.climb, self.pace = Climb(settings.ramp), Pace()
        #: What was polled of partitions that came waits here while the ramp holds: half of what may be in the process.
        self.new_partitions = NewPartitions(settings.max_in_flight // 2, settings.max_in_flight_bytes // 2)
        self._told = False
        #: Whether the source delivers nothing while it is polled: only then membership can be kept in a jam.
        self.can_pause = True
        #: What the application wants nothing of for now.
        self.held: Collection[Partition] = ()
        self._jammed_since: float | None = None
        self._paused: set[Partition] = set()

    def entered(self, entry: Entry) -> None:
        """Count an entry whose records are in the process."""
        self.records += entry.count
        self.admitted += entry.count
        self.bytes += entry.size

    def left(self, entry: Entry) -> None:
        """Count out an entry whose records are settled or handed back."""
        self.records -= entry.count
        self.bytes -= entry.size

    def recount(self, entries: Collection[Entry]) -> None:
        """Count anew, of all entries in the process: a call that was torn may have counted wrong."""
        self.records = sum(entry.count for entry in entries)
        self.bytes = sum(entry.size for entry in entries)
        self.new_partitions.clear()

    # ---- after an assignment
    def ramp_up(self) -> None:
        """Partitions came, or a leased source began: the intake grows from where it was."""
        now = self._clock.now()
        self._told = self._told and not self.climb.over
        self.climb.begin(now, self.admitted, self.admitted - self.records, self.pace.of_late_per_s)
        self.pace.begin()

    def took_over(self, owners: Iterable[Ownership]) -> None:
        """Apply the ramp to partitions that may begin now, and that somebody had before."""
        if not self.climb.over:
            self.new_partitions.add(owners)

    def look_at_ramp(
        self, *, lag: float | None, produced_per_s: float | None, produced_new_per_s: float | None = None
    ) -> None:
        """Go on with the ramp, with what the family knows (see `Climb.look`)."""
        now, ended = self._clock.now(), self.admitted - self.records
        self.climb.look(
            now,
            self.admitted,
            ended,
            lag=lag,
            produced_per_s=produced_per_s,
            produced_new_per_s=produced_new_per_s,
        )
        left_s = self.climb.left_s(now)
        if left_s is not None and self.climb.held and lag is not None and not self._told:
            self._told = True
            _log.info(
                "the ramp limits the intake after a takeover of %d partitions with a lag of %.0f: %.0f records/s in "
                "all until that is worked off, for %.0f s at most, then faster; Settings(ramp=None) takes all at once",
                len(self.new_partitions),
                lag,
                self.climb.rate,
                left_s,
            )

    # ---- each turn
    @property
    def idle(self) -> bool:
        """Nothing is in the process, and nothing waits to go on."""
        return self.records == 0 and self.new_partitions.records == 0

    def room(self, *, stopped: bool) -> int:
        """Records to poll for now; 0 = do not poll yet. `stopped`: nothing may start (the store is down)."""
        now, room = self._clock.now(), self._room(stopped=stopped)
        self.pace.look(now, self.admitted)
        # A source without partitions: what it delivers has a lease that runs, so the ramp takes less of it.
        return room if self.climb.over or self.can_pause else min(room, self.climb.room(now, self.admitted))

    def sift(self, batch: Batch, *, stopped: bool) -> Batch:
        """Of what was polled, and of what waits, what goes on now (see `NewPartitions`)."""
        new_partitions = self.new_partitions
        if not new_partitions:
            return batch
        stay = new_partitions.queue(batch)
        at_most: int | None = None
        if not self.climb.over:
            total = self.admitted + len(stay.records)
            at_most = self.climb.room_for_new(self._clock.now(), total, new_partitions.gone_on)
            at_most = 0 if stopped else at_most
        came = new_partitions.take(at_most, self.held)
        self.climb.held = self.climb.held or (at_most is not None and new_partitions.records > 0)
        return Batch([*stay.records, *came.records], [*stay.ends, *came.ends])

    @property
    def _bounded(self) -> tuple[int, int]:
        """The records and bytes that the bounds are about."""
        return self.records - self.lent_records, self.bytes - self.lent_bytes

    def _room(self, *, stopped: bool) -> int:
        settings = self._settings
        records, size = self._bounded
        full = records >= settings.max_in_flight or size >= settings.max_in_flight_bytes
        if not full and not stopped and (self._jammed_since is None or not self.tight or self.roomy):
            self._jammed_since = None
            # What waits for its turn is bounded, but is not to keep those out that wait for nothing.
            room = settings.max_in_flight - records
            return self._fitting(max(min(_GUARANTEED, room), room - self.new_partitions.records))
        if self._jammed_since is None:
            self._jammed_since = self._clock.now()
        # Jammed for longer: membership needs polls, and partitions that wait for nothing may go on. A source that
        # cannot be paused is not asked: what it keeps to itself is not late yet.
        return self._guaranteed() if self.tight and self.can_pause else 0

    def _guaranteed(self) -> int:
        """The records that each partition may have in a jam. A jam of bytes leaves each one record, however large."""
        return 1 if self._bounded[1] >= self._settings.max_in_flight_bytes else _GUARANTEED

    def _fitting(self, records: int) -> int:
        """The number of records that fit, by the average size of what is here."""
        here, held = self.bytes + self.new_partitions.bytes, self.records + self.new_partitions.records
        average = here // held if held else 0
        if average:
            left = self._settings.max_in_flight_bytes + self.lent_bytes - here
            records = min(records, left // average + 1)
        return max(1, min(records, self._settings.poll_batch))

    @property
    def roomy(self) -> bool:
        """No more than half of what may be in the process is there."""
        settings, (records, size) = self._settings, self._bounded
        return records * 2 <= settings.max_in_flight and size * 2 <= settings.max_in_flight_bytes

    @property
    def tight(self) -> bool:
        """Jammed for longer than the grace: what came since is more than asked for, until its partition is paused."""
        return self._jammed_since is not None and self._clock.now() - self._jammed_since >= _GRACE_S

    def lets_in(self, partition: Partition) -> bool:
        """Whether records of that partition go on while this is polled, be it as fast as the ramp lets them."""
        return partition not in self.held and (partition in self.new_partitions or partition not in self._paused)

    def awaits(self, partition: Partition) -> bool:
        """Whether records of that partition go on as they come: nothing holds its client back, and none wait here."""
        return self.lets_in(partition) and partition not in self.new_partitions

    @property
    def paused(self) -> int:
        """How many partitions deliver nothing."""
        return len(self._paused)

    # ---- pausing (partitioned sources)
    def assigned(self, held: Collection[Partition], free: Collection[Partition]) -> None:
        """The source has paused `held` and resumed `free`, as it was told."""
        self._paused.update(held)
        self._paused.difference_update(free)

    def gone(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that are not assigned any more."""
        self._paused.difference_update(partitions)
        self.new_partitions.drop(partitions)

    def apply(
        self,
        source: PartitionedSource,
        assigned: Collection[Partition],
        owners: Mapping[Partition, Ownership],
        *,
        stopped: bool,
    ) -> Collection[Partition]:
        """Pause and resume as is right now. Returns what was resumed. Raises SourceError."""
        wanted = {each for each in assigned if (owner := owners.get(each)) is None or not owner.open}
        tight = self.tight
        if tight or self.held or self.new_partitions.records:  # else nothing else speaks against a partition
            for partition in assigned:
                if partition not in wanted and self._has_enough(owners[partition], tight=tight, stopped=stopped):
                    wanted.add(partition)
        if pause := wanted - self._paused:
            source.pause(pause)
        if resume := self._paused - wanted:
            source.resume(resume)
        self._paused = wanted
        return resume

    def _has_enough(self, owner: Ownership, *, tight: bool, stopped: bool) -> bool:
        """Whether a partition that may deliver is to deliver no more for now."""
        paused = owner.partition in self._paused
        if owner.partition in self.held or self.new_partitions.too_many(owner, paused=paused):
            return True
        if not tight:
            return False
        share = sum(entry.count for entry in owner.entries.values() if not (self.lent_records and entry.with_loop))
        # Once paused it stays so until it is worked off: each resume fetches anew.
        return stopped or share >= self._guaranteed() or (share > 0 and paused)
