"""Elsewhere: the group's offset of a partition that is owned was set by another program while it is.

By a producer's transaction, which takes the offsets of its inputs along (`send_offsets_to_transaction`), or by a tool.
What lies below that offset is done, by the word of that program. So it goes into the books of the owner: it is not
handled any more, here or by a successor, and no commit of ours goes back behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Mark
from holdfast.dedup.offset_set import OffsetSet, Runs
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.events import AdvanceHonoured

if TYPE_CHECKING:
    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts

#: They have started: what becomes of them is for whoever runs them to say.
_STARTED = frozenset({EntryState.TAKEN, EntryState.STUCK, EntryState.ENDED})


class Elsewhere:
    """One thread."""

    def __init__(self, parts: Parts, loop: Loop) -> None:
        self._parts, self._loop = parts, loop

    def complete(self, owner: Ownership) -> None:
        """Do what the store has not answered before, where it may be asked."""
        if owner.elsewhere > owner.ledger.watermark and self._parts.outage.may_ask:
            self.done_below(owner, owner.elsewhere)

    def done_below(self, owner: Ownership, offset: int) -> None:
        """Take it that all below that offset is done, which is above the watermark. Where the store does not answer, a
        later call has to complete it."""
        parts = self._parts
        self._loop.done_elsewhere(owner.partition, offset)
        self._loop.settle()
        unstarted = [
            each for each in owner.entries.values() if each.state not in _STARTED and each.record.offset < offset
        ]
        for run in unstarted:
            for entry in parts.claiming.apart(run):
                if entry.record.offset < offset:
                    parts.outcomes.hand_back(entry)
                else:  # the run may have waited to ask for its keys
                    parts.claiming.want(entry)
        ledger, had = owner.ledger, [each for each in owner.entries.values() if each.record.offset < offset]
        started = OffsetSet([each for entry in had for each in entry.offsets])
        passed = [each for span in ledger.open_below(offset) for each in started.gaps(span)]
        if not passed:
            return
        watermark = ledger.watermark_with(passed) if started or offset <= ledger.next else offset
        done = Runs([range(max(each.start, watermark), each.stop) for each in passed if each.stop > watermark])
        with parts.outage.asking():
            owner.session_.mark([Mark(owner.name, owner.store_epoch, watermark, done)])
            parts.outage.answered()
            for span in passed:
                owner.ledger.settle_all(span)
            if offset > owner.ledger.next:
                owner.ledger.reached(offset)
                owner.seek_needed, owner.second_look = True, None
            records = sum(map(len, passed))
            parts.tell(AdvanceHonoured(partition=owner.partition, offset=offset, records=records))
