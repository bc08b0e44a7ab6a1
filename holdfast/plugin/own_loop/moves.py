"""Moves: where a loop of the user's reads on, as it says by `seek`, or in on_assign.

A move is about this reader, and no word on what is done: nothing is committed by it.

- To where the loop stands anyway: nothing happens.
- Elsewhere, not below the watermark: what was returned before that offset stays in the loop's hands. From there on
  nothing is known any more, so that it is returned again. What is *passed over* stays open: it counts as done with
  whatever the loop ends behind it, as a commit of the client's is about all that lies below (`UserLoop.passed`).
- Below the watermark: a replay on purpose, which the group remembers (`Owners.restart`).
- Of a partition that is not owned yet: when it is.

What was returned once is never passed over, and is returned again where the books were torn, or a session was lost.
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

    from holdfast.plugin.engine.partition.owners import Owners
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.own_loop.user_loop import UserLoop
    from holdfast.records import Partition

#: It is with the loop, or has ended: everything else was not returned.
_RETURNED = frozenset({EntryState.TAKEN, EntryState.ENDED})


class Moves:
    """Under the lock of its `Driven`."""

    def __init__(self, parts: Parts, ours: Owners, user: UserLoop, settle: Callable[[], None]) -> None:
        self._parts, self._ours, self._user, self._settle = parts, ours, user, settle

    @property
    def pending(self) -> bool:
        """Whether a move waits for its partition, or for the store."""
        return bool(self._ours.wishes)

    def to(self, partition: Partition, offset: int) -> None:
        """Read on from there, as soon as that is possible."""
        self._ours.wishes[partition] = offset
        self.make()

    def make(self) -> None:
        """Make the moves that are possible by now."""
        for partition, offset in list(self._ours.wishes.items()):
            owner = self._ours.by_partition.get(partition)
            if owner is not None and owner.phase is Phase.OWNED and self._made(owner, offset):
                self._user.reads_from(partition, offset)
                del self._ours.wishes[partition]  # last of all: a call that is torn before makes it once more

    # ---- inside
    def _made(self, owner: Ownership, offset: int) -> bool:
        """False = not yet."""
        if self._ended_from(owner, offset):
            self._settle()  # it is done, so the move is behind it
            if self._ended_from(owner, offset):
                return False
        ledger = owner.ledger
        if offset < ledger.watermark:
            self._user.dismiss([owner.partition])
            self._set_back(owner.partition, offset)
            self._ours.restart(owner.partition, offset)
            return True
        position = self._user.position(owner.partition)
        if self._comes_to(owner, offset, position):
            return True
        returned = min(position or 0, offset)
        if ledger.next < returned or any(each < offset for each in owner.waiting):
            return False  # returned once, or a former owner's: not passed over
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
        """Commit where a replay begins: its partition may go, and its session end, before the store has heard of it."""
        try:
            self._ours.source.set_back(partition, offset)
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))

    @staticmethod
    def _comes_to(owner: Ownership, offset: int, position: int | None) -> bool:
        """Whether that offset is the next to be returned anyway, or lies on the way of what is returned again."""
        if position is None:
            return not owner.entries and owner.ledger.next == offset
        return position == offset or owner.ledger.next <= offset < position

    @staticmethod
    def _ended_from(owner: Ownership, offset: int) -> bool:
        """Whether something at or above that offset has ended, and the store has not acknowledged it."""
        return any(
            each.state is EntryState.ENDED and each.records[-1].offset >= offset for each in owner.entries.values()
        )

    def _forgotten(self, owner: Ownership, offset: int) -> bool:
        """Forget at the store what is done from there on. False = it does not answer.

        The store can only be told that all is done below an offset, and nothing from there on: so what is done between
        is said anew. A crash right here repeats that.
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
                owner.waiting.clear()  # the store waits for nobody any more either
                owner.session_.mark([Mark(owner.name, owner.store_epoch, watermark, done)])
                parts.outage.answered()
                return True
        return False
