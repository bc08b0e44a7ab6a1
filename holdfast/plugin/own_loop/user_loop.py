"""The user's loop, as the engine sees it: what it was given, what it has ended, and what it does not want for now.

A partition's records are given in their order, whether or not the ones before have ended.
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

#: When a record that was handed out counts as done. "next_poll": when the loop comes back for more. "commit": when the
#: loop commits it; what it has not committed when its partition goes is the next owner's to handle. "explicit": when
#: the loop says so of that record; until then the next owner waits for it.
DoneWhen = Literal["next_poll", "commit", "explicit"]

#: How late a mark may be.
MARK_S = 0.005


class UserLoop:
    """Under the lock of its `Driven`; only `returned` is read by any thread.

    Args:
        mark_soon: something has ended, and is to be marked though the loop is busy.
    """

    def __init__(self, parts: Parts, done_when: DoneWhen, mark_soon: Callable[[], None]) -> None:
        self._parts, self._clock, self._mark_soon = parts, parts.runtime, mark_soon
        self.done_when = done_when
        #: What the loop has and has not ended.
        self.handed_out = HandedOut()
        #: Of what the last call gave: records without the key that they should have, and why.
        self.unfit: list[tuple[Record, Exception]] = []
        #: Some of what it had went to others before the loop had said what became of that.
        self.lost = False
        #: Partitions whose records the loop does not want for now.
        self.held: set[Partition] = set()
        #: Up to where a move of the loop's has passed records over, by ownership: below, what is open and in no entry.
        self.passed: dict[Ownership, int] = {}
        #: How many calls have handed something out, and have returned.
        self.returned = 0
        self._positions: dict[Partition, int] = {}
        self._cursor: RunCursor | None = None
        #: `quick` has given a record that may not have reached the loop.
        self._quick = False
        #: Of the call that goes on: what the loop has only when the call has returned.
        self._giving: list[Entry] = []
        self._mark_at = 0.0

    # ---- giving
    def give(self, at_most: int, until: float) -> list[Record]:
        """Take what may go to the loop now.

        Args: until: when the client is looked at again, by the clock: no run goes on one by one for longer.
        """
        out: list[Record] = []
        self.unfit = []
        refused: list[Entry] = []
        lanes, now = self._parts.lanes, self._clock.now()
        while len(out) < at_most and (lane := lanes.next()) is not None:
            head = lane.head()
            if head is None or head.owner.partition in self.held:
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
        for entry in refused:  # its partition goes, or the session is lost: that hands it back
            entry.state = EntryState.READY
            lanes.put_back(entry)
        return out

    def quick(self) -> Record | None:
        """The next record of the run that goes one by one; None: there is none, or something else is due."""
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
        """Note that what `quick` gave is about to be returned to the loop."""
        self._quick = False

    @property
    def gives_quickly(self) -> bool:
        """Whether what `quick` gave may not have reached the loop: its call was torn."""
        return self._quick

    def _run_of(self, head: Entry) -> int:
        """How many go one by one before the engine is asked again: none of them is marked meanwhile."""
        return min(head.count, max(1, self._parts.settings.mark_batch - self._parts.settling.waiting))

    def _one_by_one(self, entry: Entry, until: float, now: float) -> Record:
        """The loop takes one record at a time: this is the first of a run."""
        self._cursor = RunCursor(entry, min(until, now + MARK_S))
        self._mark_at = min(self._mark_at, now + MARK_S) if self._parts.settling.waiting else now + MARK_S
        self._mark_soon()
        return entry.record

    def take_back(self) -> None:
        """Of the run that goes one by one: what is left goes back to where it came from, what went before the last that
        has gone is done."""
        cursor = self._cursor
        if cursor is None:
            return
        self._positions[cursor.partition] = cursor.last + 1
        if (rest := cursor.rest()) is not None:
            self._parts.lanes.put_back(rest)
        last, self._cursor = cursor.last, None
        for entry in self.handed_out.below(cursor.partition, last):
            self._end(entry)
            self.handed_out.drop(entry)

    # ---- where it stands
    def position(self, partition: Partition) -> int | None:
        """The offset behind the last record that was handed out; None = none was."""
        self.take_back()
        return self._positions.get(partition)

    def reads_from(self, partition: Partition, offset: int) -> None:
        """The next record of that partition is that one."""
        self._positions[partition] = offset

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget where it stands in these partitions: they go."""
        for partition in partitions:
            self._positions.pop(partition, None)

    def passes(self, owner: Ownership, offset: int) -> None:
        """The loop reads on from there. What it passes over is done with whatever it ends behind that."""
        self.passed = {each: below for each, below in self.passed.items() if not each.is_gone and each is not owner}
        if _passed(owner, offset):
            self.passed[owner] = offset

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Hand nothing out of these."""
        self.take_back()
        self.held.update(partitions)
        self._parts.intake.held = self.held

    def let(self, partitions: Iterable[Partition]) -> None:
        """Hand them out again."""
        self.held.difference_update(partitions)
        self._parts.lanes.wake_all()

    # ---- what becomes of what it has
    @property
    def marks_due(self) -> bool:
        """Whether what has ended waits for its mark for long enough, or is enough."""
        waiting = self._parts.settling.waiting
        return waiting > 0 and (waiting >= self._parts.settings.mark_batch or self._clock.now() >= self._mark_at)

    def ended(self, partition: Partition, offset: int) -> None:
        """That record is done."""
        if (entry := self.handed_out.find(partition, offset)) is not None:
            self._end(entry)
            self.handed_out.drop(entry)

    def ended_all(self) -> None:
        """All that it has is done."""
        for entry in list(self.handed_out):
            self._end(entry)
            self.handed_out.drop(entry)

    def ended_below(self, partition: Partition, offset: int) -> None:
        """All of that partition below the offset is done."""
        for entry in self.handed_out.below(partition, offset):
            self._end(entry)
            self.handed_out.drop(entry)
        for owner in [owner for owner in self.passed if owner.partition == partition]:
            self._pass_over(owner, offset)

    def ended_returned(self, returned: int) -> None:
        """All that so many calls have handed out is done."""
        for entry in [entry for entry in self.handed_out if entry.given <= returned]:
            self._end(entry)
            self.handed_out.drop(entry)

    def again(self, partition: Partition, offset: int) -> None:
        """That record was not done."""
        if (entry := self.handed_out.find(partition, offset)) is not None and self.handed_out.drop(entry):
            self._hand_out_again(entry)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """Take away what it has of these: it will not end that."""
        for entry in self.handed_out.take_of(partitions):
            self.lost = True
            self.leave_to_others(entry)

    def leave_to_others(self, entry: Entry) -> None:
        """Whoever owns its partition next handles it."""
        entry.state = EntryState.GONE
        self._parts.outcomes.leave_to_others(entry)

    def _end(self, entry: Entry) -> None:
        if entry.over:
            return  # the call that ended it was torn
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
        """Something behind what was passed over has ended, or all below that offset."""
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
        """Note that what the call was about to hand out reaches the loop."""
        if self._giving:
            self.returned += 1

    def came_through(self) -> None:
        """From here on the loop has it."""
        self._giving.clear()

    def take_out_of_hand(self) -> None:
        """Take back what a torn call was about to hand out: it did not reach the loop, and may not count as done by its
        next call."""
        if self._quick and self._cursor is not None:
            self._cursor.undo()
        for entry in self._giving:
            self._positions[entry.record.partition] = entry.record.offset
            if self._cursor is not None and self._cursor.has(entry):
                self._cursor = None
            if self.handed_out.drop(entry):
                self._hand_out_again(entry)
        self._giving.clear()
        self._quick = False


def _passed(owner: Ownership, below: int) -> list[range]:
    """List what is open below that offset, and in no entry."""
    taken = OffsetSet()
    taken.add_all(span for entry in owner.entries.values() for span in entry.ranges)
    return [gap for each in owner.ledger.open_below(below) for gap in taken.gaps(each)]
