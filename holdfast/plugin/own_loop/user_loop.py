"""UserLoop: the records that the user's loop has, those that it has ended, and the partitions that it has paused.

A partition's records are handed out in their order, whether or not the earlier ones have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from holdfast.dedup.offset_set import OffsetSet
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.own_loop.handed_out import HandedOut
from holdfast.plugin.own_loop.run_cursor import RunCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Partition, Record

#: When a handed out record counts as done. "next_poll": when the loop polls again. "commit": when the loop commits it;
#: if its partition is revoked before, the next owner handles it. "explicit": when the loop ends this record; until then
#: the next owner waits for it.
DoneWhen = Literal["next_poll", "commit", "explicit"]

#: The longest delay of a mark.
MARK_S = 0.005


class UserLoop:
    """The state of the loop. Under the lock of its `Driven`; only `returned` is read by any thread.

    Args:
        mark_soon: called when a record has ended, which must be marked although the loop is busy.
    """

    def __init__(self, parts: Parts, done_when: DoneWhen, mark_soon: Callable[[], None]) -> None:
        self._parts, self._clock, self._mark_soon = parts, parts.runtime, mark_soon
        self.done_when = done_when
        #: The records that the loop has and has not ended.
        self.handed_out = HandedOut()
        #: Records of the last call without the required key -> error.
        self.unfit: list[tuple[Record, Exception]] = []
        #: Records that the loop had not ended have gone to other members.
        self.lost = False
        #: Ownership -> the offset below which a move of the loop has passed records over: those that are open and in no
        #: entry.
        self.passed: dict[Ownership, int] = {}
        #: The number of calls that have handed out records and returned.
        self.returned = 0
        self._positions: dict[Partition, int] = {}
        self._cursor: RunCursor | None = None
        #: `quick` has given a record that may not have reached the loop.
        self._quick = False
        #: The entries of the current call, which the loop has only once the call has returned.
        self._giving: list[Entry] = []
        self._mark_at = 0.0

    # ---- giving
    def give(self, at_most: int, until: float) -> list[Record]:
        """Take the records that may go to the loop now.

        Args:
            at_most: the most records.
            until: the time of the next look at the client, by the clock. No run goes on one by one for longer.
        """
        out: list[Record] = []
        self.unfit = []
        refused: list[Entry] = []
        lanes, now = self._parts.lanes, self._clock.now()
        while len(out) < at_most and (lane := lanes.next()) is not None:
            head = lane.head()
            if head is None or self.is_held(head.owner.partition):
                continue  # `let` wakes it
            whole = self._run_of(head) if at_most == 1 and self.done_when == "next_poll" else 0
            for entry in lanes.give(lane, max(whole, at_most - len(out))):
                if not entry.owner.enter_all((entry,)):
                    refused.append(entry)
                    continue
                self._giving.append(entry)
                entry.given = self.returned + 1
                entry.given_at = self._parts.workers.given_at = now
                self.handed_out.add(entry)
                self._parts.recorder.begins((entry,))
                if entry.error is not None:
                    self.unfit.append((entry.record, entry.error))
                if whole > 1:
                    out.append(self._one_by_one(entry, until, now))
                else:
                    out += entry.records
                    self._positions[entry.record.partition] = entry.records[-1].offset + 1
        for entry in refused:  # its partition is revoked or the session lost, and that step hands the entry back
            entry.state = EntryState.READY
            lanes.put_back(entry)
        if self._giving and self._giving[0].owner.cancelled:
            # The process was frozen past its lease since that look. Other members may have handled these by now.
            self.take_out_of_hand()
            self.unfit = []
            return []
        return out

    def quick(self) -> Record | None:
        """The next record of the run that goes one by one; None: there is none, or other work is due."""
        cursor = self._cursor
        if cursor is None or self._quick or self._clock.now() >= cursor.until:
            return None
        cursor.begin()
        self._quick = True
        record = cursor.next()
        if record is None:
            self._quick = False
        return record

    def gave(self) -> None:
        """Note that the record of `quick` is about to be returned to the loop."""
        self._quick = False

    @property
    def gives_quickly(self) -> bool:
        """Whether the record of `quick` may not have reached the loop, because its call was torn."""
        return self._quick

    def _run_of(self, head: Entry) -> int:
        """How many records go one by one before the engine works again: none of them is marked meanwhile."""
        return min(head.count, max(1, self._parts.settings.mark_batch - self._parts.settling.waiting))

    def _one_by_one(self, entry: Entry, until: float, now: float) -> Record:
        """Begin a run for a loop that takes one record at a time. Returns its first record."""
        self._cursor = RunCursor(entry, min(until, now + MARK_S))
        self._mark_at = min(self._mark_at, now + MARK_S) if self._parts.settling.waiting else now + MARK_S
        self._mark_soon()
        return entry.record

    def take_back(self) -> None:
        """End the run that goes one by one: the remaining records go back to their lane, and the records before the
        last one that has gone are done."""
        cursor = self._cursor
        if cursor is None:
            return
        self._positions[cursor.partition] = cursor.last + 1
        if (rest := cursor.rest()) is not None:
            self.handed_out.without(rest)
            self._parts.lanes.put_back(rest)
        last, self._cursor = cursor.last, None
        for entry in self.handed_out.below(cursor.partition, last):
            self._end(entry)
            self.handed_out.drop(entry)

    # ---- where it stands
    def position(self, partition: Partition) -> int | None:
        """The offset behind the last record that was handed out; None: none was."""
        self.take_back()
        return self._positions.get(partition)

    def reads_from(self, partition: Partition, offset: int) -> None:
        """Note the offset of the partition's next record."""
        self._positions[partition] = offset

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget the positions of partitions that are revoked."""
        for partition in partitions:
            self._positions.pop(partition, None)

    def passes(self, owner: Ownership, offset: int) -> None:
        """Note that the loop reads on from this offset. Records that it passes over count as done once it ends a record
        behind them."""
        self.passed = {each: below for each, below in self.passed.items() if not each.is_gone and each is not owner}
        if _passed(owner, offset):
            self.passed[owner] = offset

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Pause: hand out no records of these partitions."""
        self.take_back()
        self._parts.intake.loop_pauses(partitions)

    def let(self, partitions: Iterable[Partition]) -> None:
        """Resume: hand out records of these partitions again."""
        self._parts.intake.loop_resumes(partitions)
        self._parts.lanes.wake_all()

    def is_held(self, partition: Partition) -> bool:
        """Whether the loop has paused that partition."""
        return partition in self._parts.intake.paused_by_loop

    # ---- what becomes of what it has
    @property
    def marks_due(self) -> bool:
        """Whether ended records wait long enough for their marks, or are enough of them."""
        waiting = self._parts.settling.waiting
        return waiting > 0 and (waiting >= self._parts.settings.mark_batch or self._clock.now() >= self._mark_at)

    def ended(self, partition: Partition, offset: int) -> None:
        """End a record."""
        if (entry := self.handed_out.find(partition, offset)) is not None:
            self._end(entry)
            self.handed_out.drop(entry)

    def ended_all(self) -> None:
        """End all records that the loop has."""
        for entry in list(self.handed_out):
            self._end(entry)
            self.handed_out.drop(entry)

    def ended_below(self, partition: Partition, offset: int) -> None:
        """End all records of the partition below the offset."""
        for entry in self.handed_out.below(partition, offset):
            self._end(entry)
            self.handed_out.drop(entry)
        for owner in [owner for owner in self.passed if owner.partition == partition]:
            self._pass_over(owner, offset)

    def ended_returned(self, returned: int) -> None:
        """End all records of the first `returned` calls."""
        for entry in [entry for entry in self.handed_out if entry.given <= returned]:
            self._end(entry)
            self.handed_out.drop(entry)

    def again(self, partition: Partition, offset: int) -> None:
        """Hand a record out again: it was not done."""
        if (entry := self.handed_out.find(partition, offset)) is not None and self.handed_out.drop(entry):
            self._hand_out_again(entry)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """Take these partitions' records away from the loop."""
        for entry in self.handed_out.take_of(partitions):
            self.lost = True
            self.leave_to_others(entry)

    def leave_to_others(self, entry: Entry) -> None:
        """Leave an entry to the partition's next owner."""
        entry.state = EntryState.GONE
        self._parts.outcomes.leave_to_others(entry)

    def _end(self, entry: Entry) -> None:
        if entry.over:
            return  # the call that has ended it was torn, and is repeated
        parts = self._parts
        if not parts.settling.waiting:
            self._mark_at = self._clock.now() + MARK_S
            self._mark_soon()
        parts.outcomes.handled += entry.count
        parts.recorder.ended(entry, Outcome.HANDLED)
        parts.settling.ended(entry)
        if self.passed:
            self._pass_over(entry.owner, entry.records[-1].offset)

    def _pass_over(self, owner: Ownership, offset: int) -> None:
        """Settle passed over records, after a record behind them has ended, or all records below the offset."""
        until = self.passed.get(owner, 0)
        for each in _passed(owner, min(until, offset)):
            owner.ledger.settle_all(each)
        if until <= offset:
            self.passed.pop(owner, None)

    def _hand_out_again(self, entry: Entry) -> None:
        if entry.owner.is_owned:
            entry.state = EntryState.READY
            entry.started = 0
            self._parts.lanes.put_back(entry)
        else:
            self.leave_to_others(entry)

    # ---- a call came through, or was torn
    def note_returned(self) -> None:
        """Note that the records of the current call reach the loop."""
        if self._giving:
            self.returned += 1

    def came_through(self) -> None:
        """Note that the call has returned: the loop has its records."""
        self._giving.clear()

    def take_out_of_hand(self) -> None:
        """Take back the records of a torn call: they did not reach the loop, and its next call must not end them."""
        if self._quick and self._cursor is not None:
            self._cursor.undo()
        for entry in reversed(self._giving):  # the first one of a partition decides where it stands
            self._positions[entry.record.partition] = entry.record.offset
            if self._cursor is not None and self._cursor.has(entry):
                self._cursor = None
            if self.handed_out.drop(entry):
                self._hand_out_again(entry)
        self._giving.clear()
        self._quick = False


def _passed(owner: Ownership, below: int) -> list[range]:
    """The offsets below `below` that are open and in no entry."""
    taken = OffsetSet()
    taken.add_all(span for entry in owner.entries.values() for span in entry.ranges)
    return [gap for each in owner.ledger.open_below(below) for gap in taken.gaps(each)]
