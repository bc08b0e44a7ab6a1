"""Moves: seeks of the user's loop, by `seek` or in on_assign.

A move changes where this reader reads on. It does not say that records are done, and commits none.

- To the loop's position: nothing happens.
- Elsewhere, not below the watermark: records before that offset that were returned stay with the loop. From the offset
  on, the ledger forgets what is done, so that records are returned again. Records that are *passed over* stay open.
  They count as done once the loop ends a record behind them, as a commit of the client covers all records below
  (`UserLoop.passed`).
- Below the watermark: a replay on purpose, which the group remembers (`Partitions.restart`).
- In a partition that is not owned yet: made once it is.

A record that was returned once is never passed over. It is returned again after a torn call, or if a session was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Drop, Mark
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.events import SourceTrouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.partition.partitions import Partitions
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.own_loop.user_loop import UserLoop
    from holdfast.records import Partition

#: States of entries that were returned to the loop: with the loop, or ended.
_RETURNED = frozenset({EntryState.TAKEN, EntryState.ENDED})


class Moves:
    """Makes moves. Under the lock of its `Driven`."""

    def __init__(self, parts: Parts, partitions: Partitions, user: UserLoop, settle: Callable[[], None]) -> None:
        self._parts, self._partitions, self._user, self._settle = parts, partitions, user, settle

    @property
    def pending(self) -> bool:
        """Whether a move waits for its partition, or for the store."""
        return bool(self._partitions.wishes)

    def to(self, partition: Partition, offset: int) -> None:
        """Read on from this offset, as soon as that is possible."""
        self._partitions.wishes[partition] = offset
        self.make()

    def make(self) -> None:
        """Make all moves that are possible now."""
        for partition, offset in list(self._partitions.wishes.items()):
            owner = self._partitions.owners.get(partition)
            if owner is not None and owner.phase is Phase.OWNED and self._made(owner, offset):
                self._user.reads_from(partition, offset)
                del self._partitions.wishes[partition]  # last, so that a move is repeated if a signal breaks it off

    # ---- inside
    def _made(self, owner: Ownership, offset: int) -> bool:
        """Make one move. Returns False: not possible yet."""
        if self._ended_from(owner, offset):
            self._settle()  # mark these ended records first: the move comes after them
            if self._ended_from(owner, offset):
                return False
        ledger = owner.ledger
        if offset < ledger.watermark:
            self._user.dismiss([owner.partition])
            self._set_back(owner.partition, offset)
            self._partitions.restart(owner.partition, offset)
            return True
        position = self._user.position(owner.partition)
        if self._comes_to(owner, offset, position):
            return True
        returned = min(position or 0, offset)
        if ledger.next < returned or any(each < offset for each in owner.waiting):
            return False  # such records must not be passed over: they were returned, or a former owner has them
        if ledger.knows_any_from(offset) and not self._forgotten(owner, offset):
            return False
        for entry in list(owner.entries.values()):
            if entry.state not in _RETURNED and entry.record.offset >= returned:
                self._parts.outcomes.hand_back(entry)
        for entry in self._user.handed_out.take_from(owner, offset):
            self._user.leave_to_others(entry)
        owner.ledger = owner.ledger.read_on(offset)
        owner.suspect, owner.second_look, owner.believed_until = None, None, 0.0
        owner.seek_needed, owner.moved_to = True, offset
        self._user.passes(owner, offset)
        return True

    def _set_back(self, partition: Partition, offset: int) -> None:
        """Commit the offset at which a replay begins: the partition may be revoked, or the session end, before the
        store has it."""
        try:
            self._partitions.source.set_back(partition, offset)
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))

    @staticmethod
    def _comes_to(owner: Ownership, offset: int, position: int | None) -> bool:
        """Whether the offset is the next to be returned anyway, or lies among records that will be returned again."""
        if position is None:
            return not owner.entries and owner.ledger.next == offset
        return position == offset or owner.ledger.next <= offset < position

    @staticmethod
    def _ended_from(owner: Ownership, offset: int) -> bool:
        """Whether a record at or above the offset has ended, and the store has not acknowledged it."""
        return any(
            each.state is EntryState.ENDED and each.records[-1].offset >= offset for each in owner.entries.values()
        )

    def _forgotten(self, owner: Ownership, offset: int) -> bool:
        """Make the store forget done records from this offset on. Returns False: the store does not answer.

        The store can only drop everything above a watermark. Therefore done records between the watermark and the
        offset are marked again. A crash in between repeats those records.
        """
        parts, watermark = self._parts, owner.ledger.watermark
        if not parts.outage.may_ask:
            return False
        done: list[int] = []
        at = watermark
        for each in owner.ledger.open_below(offset):
            done += range(at, each.start)
            at = each.stop
        done += range(at, offset)
        with parts.outage.asking():
            if owner.session_.drop([Drop(owner.name, owner.store_epoch, watermark)])[0]:
                owner.waiting.clear()  # the drop has removed the former owners' claims from the store too
                owner.session_.mark([Mark(owner.name, owner.store_epoch, watermark, done)])
                parts.outage.answered()
                return True
        return False
