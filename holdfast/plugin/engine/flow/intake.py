"""Intake: bounds the records and bytes in the process, shares them among partitions, and decides when to poll.

- Handlers keep up if they end half of what is admitted, whatever is in the process: one stuck partition says nothing
  of the others.
- Records that stand behind many of their own key do not count for the bounds of records (`Lanes.behind`): a key
  with a backlog would stop the other keys of its partition. There may be as many of them again.
- A client with one queue for all its partitions (librdkafka) brings nothing of one while another's backlog stands
  before it. So it is polled on while a partition has nothing here, beyond what there is room for.
- Pausing throws prefetched records away: a partition is paused only when much of it waits here, and goes on when
  three quarters of that are done. While another has nothing here, the first pause comes early, and each further one
  at four times as much: so no record waits for long behind a backlog, and little is fetched twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.plugin.engine.flow.ramp_rate import Climb, Pace
from holdfast.plugin.engine.flow.waiting import Waiting
from holdfast.plugin.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.plugin.settings import Settings
    from holdfast.records import Partition
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

#: A partition may always have that many in the process, so that one whose records all wait does not stop the others.
_GUARANTEED = 64
#: The process counts as full after this long without room.
_GRACE_S = 0.2
#: The time between two polls that only keep the membership.
_MEMBER_S = 0.05
#: For partitions that have nothing here the client is polled this often, once it was seen empty. It may hold records of
#: theirs behind others if it was not seen empty for the second time, until as many records came as its queue may hold;
#: and from the start on, after an assignment: its first fetches bring one partition after the other.
_LOOK_S, _TURN_S, _TURN = 0.02, 0.25, 20_000
#: The time between two looks at which records stand behind many of their own key.
_LOOK_BEHIND_S = 0.1
#: While another partition has nothing here, a partition is paused when so many records of it wait, which takes a tenth
#: of a second; the next time at four times as many. A pause by fewer would throw away more than it saves.
_EARLY, _EARLY_GROWTH = 7_000, 4
#: A paused partition goes on when no more waits of it than this part of what it was paused at.
_GO_ON = 4


class Intake:
    """Counts what is in the process, and says how many records the next poll may bring. One thread."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        #: Records that are admitted, and their bytes.
        self.records = 0
        self.bytes = 0
        #: The bytes that handlers have made of records and no transaction has written yet.
        self.made_bytes = 0
        #: Partitions that have admitted records.
        self._busy = 0
        #: The part that a user's loop has or is about to get, and the latter alone. The bounds leave it out: only the
        #: loop can end these records, and it asks for more.
        self.lent_records = self.lent_bytes = 0
        self.lent_soon = 0
        #: Partition -> records that stand behind many of their own key, as far as the bounds leave them out.
        self._behind: dict[Partition, int] = {}
        self._look_behind_at = 0.0
        #: Records that have been admitted since the start.
        self.admitted = 0
        self.climb, self.pace = Climb(settings.ramp), Pace()
        #: Polled records that have no room yet.
        self.waiting = Waiting()
        self._told = False
        #: The source can be polled while it delivers nothing of some partitions; else there are no shares.
        self.can_pause = True
        #: Partitions that are to deliver nothing for now; those that the engine holds back, and those that the user's
        #: loop has paused.
        self.held: frozenset[Partition] = frozenset()
        self._held_back: frozenset[Partition] = frozenset()
        self.paused_by_loop: frozenset[Partition] = frozenset()
        #: The time since which there has been no room.
        self._full_since: float | None = None
        self._paused: set[Partition] = set()
        #: Partition -> the records of it that waited when it was paused last. Forgotten at the end of its backlog.
        self._paused_at: dict[Partition, int] = {}
        #: At the last look at all partitions: those that may deliver and had nothing here, and the waiting records of
        #: those that are paused, which leave room for the others.
        self._without = self._waiting_paused = 0
        #: The records that the last poll asked for; those that came since the client was empty (or has turned its queue
        #: over), and the time of that.
        self.asked = self._come = 0
        self._turned_at = self._look_at = 0.0
        #: The client is polled on until it has nothing more.
        self._catches_up = False
        #: Partitions came, and the client has not been seen empty since it brought something.
        self._first_fetch = False

    # ---- counting
    def entered(self, entry: Entry) -> None:
        """Count an entry whose records are in the process."""
        owner = entry.owner
        if not owner.in_process:
            self._busy += 1
        owner.in_process += entry.count
        owner.in_process_bytes += entry.size
        self.records += entry.count
        self.admitted += entry.count
        self.bytes += entry.size

    def left(self, entry: Entry) -> None:
        """Count out an entry whose records are settled or handed back."""
        owner = entry.owner
        owner.in_process -= entry.count
        owner.in_process_bytes -= entry.size
        if not owner.in_process:
            self._busy -= 1
        self.records -= entry.count
        self.bytes -= entry.size

    def recount(self, entries: Collection[Entry]) -> None:
        """Count anew, of all entries in the process: a call that was torn may have counted wrong."""
        self.records = self.bytes = self._busy = 0
        for entry in entries:
            entry.owner.in_process = entry.owner.in_process_bytes = 0
        admitted = self.admitted
        for entry in entries:
            self.entered(entry)
        self.admitted = admitted
        self.waiting.clear()
        self._behind = {}

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
            self.waiting.add_new(owners)

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
                len(self.waiting.new),
                lag,
                self.climb.rate,
                left_s,
            )

    # ---- each turn
    def look_behind(self, lanes: Lanes) -> None:
        """Look which records stand behind many of their own key. A leased record would only lose its lease there."""
        now, left = self._clock.now(), self._settings.max_in_flight
        if not self.can_pause or now < self._look_behind_at or (not self._behind and self.records * 2 < left):
            return
        self._look_behind_at = now + _LOOK_BEHIND_S
        self._behind = {}
        for partition, count in lanes.behind():
            self._behind[partition] = min(count, left)
            left -= self._behind[partition]

    @property
    def idle(self) -> bool:
        """Nothing is in the process, and nothing waits to go on."""
        return self.records == 0 and self.waiting.records == 0

    def room(self, *, stopped: bool) -> int:
        """Records to poll for now; 0 = do not poll yet. `stopped`: nothing may start (the store is down)."""
        now, settings, waiting = self._clock.now(), self._settings, self.waiting
        self.pace.look(now, self.admitted)
        if not self._come or (self._come >= _TURN and not self._catches_up):
            self._turned_at, self._come, self._catches_up = now, 0, False
        records, size = self._bounded
        room = settings.max_in_flight - records - (waiting.records - self._waiting_paused)
        if room > 0 and size + waiting.bytes < settings.max_in_flight_bytes and not stopped:
            self._full_since = None
            room = self._fitting(room)
            # A source without partitions: what it delivers has a lease that runs, so the ramp takes less of it.
            return room if self.climb.over or self.can_pause else min(room, self.climb.room(now, self.admitted))
        self._full_since = now if self._full_since is None else self._full_since
        # A source that cannot be paused is not asked: what it keeps to itself is not late yet.
        if not self.can_pause or now < self._look_at:
            return 0
        if stopped or not self._without:
            self._look_at = now + _MEMBER_S
            return 1
        self._look_at = now if self.is_behind() else now + _LOOK_S
        return self._fitting(settings.poll_batch)

    def is_behind(self) -> bool:
        """Whether records of partitions that have nothing here may have waited too long at the client, behind others.
        It stays so until the client has nothing more, or each of them has something."""
        if not self._come or not self._without or not self.can_pause:
            return False
        late = self._first_fetch or self._clock.now() - self._turned_at >= _TURN_S
        self._catches_up = self._catches_up or late
        return self._catches_up

    def sift(self, batch: Batch, *, stopped: bool) -> Batch:
        """Queue what was polled, and return what goes on now (see `Waiting`)."""
        came, waiting = len(batch.records), self.waiting
        if came < self.asked and (self._come or came):
            self._first_fetch = False
        self._come = self._come + came if came >= self.asked else 0
        self.asked = 0
        if not self.can_pause:
            return batch
        fits = (self.records + came) * 2 <= self._settings.max_in_flight
        fits = fits and (self.bytes + self.made_bytes) * 2 <= self._settings.max_in_flight_bytes
        if fits and not waiting:
            return batch
        rest = waiting.queue(batch, all_wait=not fits)
        new_at_most: int | None = None
        if not self.climb.over:
            total = self.admitted + len(rest.records)
            new_at_most = self.climb.room_for_new(self._clock.now(), total, waiting.new_gone_on)
            new_at_most = 0 if stopped else new_at_most
        going = waiting.take(self._shares(), new_at_most, self.held)
        self.climb.held = self.climb.held or (new_at_most is not None and any(map(waiting.__contains__, waiting.new)))
        ends = [*rest.ends, *going.ends]
        for end in ends:
            self._paused_at.pop(end.partition, None)
        return Batch([*rest.records, *going.records], ends)

    @property
    def _bounded(self) -> tuple[int, int]:
        """The records and bytes that the bounds are about."""
        records = max(0, self.records - self.lent_records - sum(self._behind.values()))
        return records, self.bytes - self.lent_bytes + self.made_bytes

    def _shares(self) -> Callable[[Ownership, int], int]:
        """Return a function that says how many waiting records of an ownership are admitted now: as many as its share
        has room for, once half of it is done. A few at a time cost more: records that come together go as one run."""
        settings, (records, size) = self._settings, self._bounded
        share, share_bytes = self._share
        left, full, average = settings.max_in_flight - records, size >= settings.max_in_flight_bytes, self._average

        def room(owner: Ownership, waiting: int) -> int:
            nonlocal left
            here, here_bytes = self._here(owner)
            of_bytes = share_bytes - here_bytes
            fitting = 1 - here if full or of_bytes <= 0 else of_bytes // average + 1
            free = max(min(share - here, left), _GUARANTEED - here)
            if free < min(waiting, share // 2) and here:
                return 0
            free = max(0, min(free, fitting))
            left -= min(free, waiting)
            return free

        return room

    @property
    def _share(self) -> tuple[int, int]:
        """The records and bytes of each partition of which something is here."""
        active = max(1, self._busy + sum(not owner.in_process for owner in self.waiting.owners()))
        return max(1, self._settings.max_in_flight // active), max(1, self._settings.max_in_flight_bytes // active)

    def _here(self, owner: Ownership) -> tuple[int, int]:
        """The records and bytes of an ownership that are admitted and count: not those that are lent, and no records
        that stand behind many of their key."""
        if not self.lent_records:
            return max(0, owner.in_process - self._behind.get(owner.partition, 0)), owner.in_process_bytes
        entries = [entry for entry in owner.entries.values() if not entry.with_loop]
        records, size = sum(entry.count for entry in entries), sum(entry.size for entry in entries)
        rest = max(0, records - self.lent_soon)
        return rest, size * rest // records if records else 0

    @property
    def _average(self) -> int:
        """The average bytes of a record that is here; 1 at least."""
        held = self.records + self.waiting.records
        return max(1, (self.bytes + self.waiting.bytes) // held) if held else 1

    def _fitting(self, records: int) -> int:
        """The number of records that fit, by the average size of what is here."""
        if self.records or self.waiting.records:
            left = self._settings.max_in_flight_bytes - self._bounded[1] - self.waiting.bytes
            records = min(records, left // self._average + 1)
        return max(1, min(records, self._settings.poll_batch))

    @property
    def roomy(self) -> bool:
        """No more than half of what may be in the process is there, and nothing waits for room."""
        settings, (records, size) = self._settings, self._bounded
        return (
            records * 2 <= settings.max_in_flight
            and size * 2 <= settings.max_in_flight_bytes
            and not self.waiting.records
        )

    @property
    def tight(self) -> bool:
        """Full for longer than the grace."""
        return self._full_since is not None and self._clock.now() - self._full_since >= _GRACE_S

    @property
    def crowded(self) -> bool:
        """Whether some records get no room before others have ended."""
        return self.waiting.records > 0 or self.tight

    def brings_no_more(self, owner: Ownership, ready: int) -> bool:
        """Whether no more of an ownership comes in before one of its ready records has started.

        Args: ready: how many records are ready.
        """
        if not self.can_pause:
            return self.tight
        if ready < owner.in_process:
            return False
        if self.waiting.for_room(owner.partition):
            return True
        share, share_bytes = self._share
        return owner.in_process >= share or owner.in_process_bytes >= share_bytes

    def lets_in(self, partition: Partition) -> bool:
        """Whether records of that partition go on while this is polled, be it as fast as the ramp lets them."""
        waits = partition in self.waiting or partition in self.waiting.new
        return partition not in self.held and (waits or partition not in self._paused)

    def awaits(self, partition: Partition) -> bool:
        """Whether records of that partition go on as they come: nothing holds its client back, and none wait here."""
        return self.lets_in(partition) and partition not in self.waiting

    def hold_back(self, partitions: Collection[Partition]) -> None:
        """Have these partitions deliver nothing for now, and no others but those that the user's loop has paused."""
        self._held_back = frozenset(partitions)
        self.held = self._held_back | self.paused_by_loop

    def loop_pauses(self, partitions: Iterable[Partition]) -> None:
        """The user's loop pauses these partitions."""
        self.paused_by_loop = self.paused_by_loop.union(partitions)
        self.held = self._held_back | self.paused_by_loop

    def loop_resumes(self, partitions: Iterable[Partition]) -> None:
        """The user's loop resumes these partitions."""
        self.paused_by_loop = self.paused_by_loop.difference(partitions)
        self.held = self._held_back | self.paused_by_loop

    @property
    def paused(self) -> int:
        """The number of paused partitions."""
        return len(self._paused)

    def is_paused(self, partition: Partition) -> bool:
        """Whether the client was told to deliver nothing of that partition."""
        return partition in self._paused

    # ---- pausing (partitioned sources)
    def assigned(self, held: Collection[Partition], free: Collection[Partition]) -> None:
        """The source has paused `held` and resumed `free`, as it was told."""
        self._first_fetch = True
        self._paused.update(held)
        self._paused.difference_update(free)

    def gone(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that are not assigned any more."""
        self._paused.difference_update(partitions)
        for partition in partitions:
            self._paused_at.pop(partition, None)
        self.waiting.drop(partitions)

    def apply(
        self, source: PartitionedSource, assigned: Collection[Partition], owners: Mapping[Partition, Ownership]
    ) -> Collection[Partition]:
        """Pause and resume as is right now. Returns what was resumed. Raises SourceError."""
        wanted = {each for each in assigned if (owner := owners.get(each)) is None or not owner.open}
        self._without = 0
        if self.waiting.records or self.held or self._come or self._full_since is not None:
            wanted.update(each for each in assigned if each in self.held)
            free = [owners[each] for each in assigned if each not in wanted]
            self._without = sum(not owner.in_process and owner.partition not in self.waiting for owner in free)
            most = self._settings.max_in_flight_bytes // 2 // max(1, sum(1 for _ in self.waiting.owners()))
            wanted.update(owner.partition for owner in free if self._is_enough(owner, most))
        if pause := wanted - self._paused:
            source.pause(pause)
        if resume := self._paused - wanted:
            source.resume(resume)
        self._paused = wanted
        self._waiting_paused = sum(map(self.waiting.records_of, wanted)) if self.waiting.records else 0
        return resume

    def _is_enough(self, owner: Ownership, most: int) -> bool:
        """Whether so much of a partition waits that it is to deliver nothing for now. `most`: bytes."""
        partition, waits = owner.partition, self.waiting.weight_of(owner)
        if not waits:
            return False
        records, paused_at = self.waiting.records_of(partition), self._paused_at.get(partition, 0)
        if partition in self._paused:  # until most of that is done: each resume fetches anew
            return records >= paused_at // _GO_ON if paused_at else waits >= most // _GO_ON
        early = paused_at * _EARLY_GROWTH or _EARLY
        if waits < most and not (self._without and records >= early):
            return False
        self._paused_at[partition] = records
        return True
