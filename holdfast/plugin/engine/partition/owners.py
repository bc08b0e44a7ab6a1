"""Owners: the partitions that a member was assigned and owns. Rebalances change them; the loop uses them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.commits import Commits
from holdfast.plugin.engine.partition.elsewhere import Elsewhere
from holdfast.plugin.engine.partition.hand_over import HandOver
from holdfast.plugin.engine.partition.holes import Holes
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.engine.partition.reports import Reports
from holdfast.plugin.engine.partition.takeover import Takeover
from holdfast.plugin.engine.record.recorder import place_of
from holdfast.plugin.events import SourceTrouble
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.plugin.audit.schema import AuditPartition
    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition


class Owners:
    """One thread.

    Args:
        duplicates: how many were suppressed since the start; for reports.
        began: partitions came: what the ramp goes by is looked at anew.
    """

    def __init__(
        self,
        parts: Parts,
        loop: Loop,
        source: PartitionedSource,
        *,
        duplicates: Callable[[], int],
        began: Callable[[], None],
    ) -> None:
        self._parts, self._loop, self.source, self._began = parts, loop, source, began
        #: What the client has been assigned, and the ownerships of it. One may lack the other for a while: no session.
        self.assigned: set[Partition] = set()
        self.by_partition: dict[Partition, Ownership] = {}
        #: Something was assigned once, if only nothing.
        self.came = False
        #: Where the next ownership begins, as if somebody had reset the group to it.
        self.cuts: dict[Partition, int] = {}
        #: Where a user's loop wants to read on, of partitions in which it cannot yet (`own_loop/moves.py`). The group
        #: begins there where it has no offset.
        self.wishes: dict[Partition, int] = {}
        self.commits = Commits(source, parts.settings, parts.runtime, elsewhere=Elsewhere(parts, loop), tell=parts.tell)
        self.holes = Holes(source, parts.recorder, parts.tell, parts.runtime)
        self.takeover = Takeover(
            source,
            self.commits,
            sessions=parts.sessions,
            runtime=parts.runtime,
            tell=parts.tell,
            wishes=self.wishes,
        )
        self.reports = Reports(parts.runtime, parts.tell, parts.intake, duplicates)
        #: Marks that the store has refused: others have taken over what they were about.
        self.refused_marks = 0
        #: Until when the app drains that leaves, from when it has seen that it is to. What goes meanwhile is waited for
        #: no longer.
        self.leaving: Deadline | None = None
        #: What the client tells of a rebalance is being written down; afterwards: it was left in the midst of that.
        self.moving = False

    def create(self, partitions: Iterable[Partition]) -> list[Ownership]:
        """Ownerships for those of the partitions that have none."""
        session = self._parts.sessions.session
        if session is None or self._parts.stopping.begun:
            return []
        created = []
        for partition in sorted(set(partitions) - self.by_partition.keys()):
            owner = Ownership(partition, session, cut=self.cuts.pop(partition, None), runtime=self._parts.runtime)
            self.by_partition[partition] = owner
            created.append(owner)
        if created:
            self._parts.intake.ramp_up()
            self._began()
        return created

    def take_over(self, owners: Sequence[Ownership], *, inside: bool) -> None:
        """Go on towards OWNED, as far as store and broker answer. `inside` a rebalance the client is told the start."""
        parts = self._parts
        waiting = [owner for owner in owners if owner.phase < Phase.OWNED]
        if parts.outage.may_ask and waiting:
            try:
                with parts.outage.asking():
                    parts.owed.pay()  # a `let_go` that is owed would end the new ownership
                    if inside:
                        others = any(owner.phase is Phase.OWNED for owner in self.by_partition.values())
                        self.takeover.begin(owners, others_wait=others)
                    else:
                        self.takeover.step(owners)
            finally:
                self._came(waiting, "assigned")

    def read_again(self) -> None:
        """Have the client give again what it has given last: that was lost on its way."""
        for owner in self.by_partition.values():
            owner.seek_needed = True

    def begin_anew(self) -> None:
        """The books of this process may be wrong, the store's are not: take over all partitions anew."""
        parts = self._parts
        self._loop.settle()
        try:
            self.commits.commit_moved(self.by_partition.values(), last=True)
        except SourceError as error:
            parts.tell(SourceTrouble(error=str(error)))
        for owner in list(self.by_partition.values()):
            self.retake(owner)
        parts.intake.assigned(self.assigned, ())  # paused or not: what is to be read is resumed

    def look_whether_it_leaves(self) -> None:
        """A drain inside a rebalance goes on as the app is asked to stop: the drain of the leaving begins with that."""
        if self._parts.stopping.begun and self.leaving is None:
            self.leaving = Deadline(self._parts.settings.drain_s, self._parts.runtime)

    def hand_over(self, owners: Sequence[Ownership], deadline: Deadline, trigger: str) -> HandOver:
        """The way out of these."""
        return HandOver(
            self._parts,
            self._loop,
            source=self.source,
            commits=self.commits,
            places=self.places,
            owners=owners,
            deadline=deadline,
            trigger=trigger,
        )

    def retake(self, owner: Ownership) -> None:
        """Let the partition go at the store and take it over anew, though the client keeps it."""
        self.end([owner], "retaken").let_go()
        if self.by_partition.get(owner.partition) is owner:
            del self.by_partition[owner.partition]

    def adopted(self, owner: Ownership) -> None:
        """The broker has our commit of the offset that is adopted."""
        self.takeover.adopted(owner)
        self._came([owner], "reset" if owner.acquired is not None and owner.acquired.watermark else "assigned")

    def places(self, owners: Collection[Ownership]) -> Sequence[AuditPartition]:
        """The places of these owners that the audit knows of, as it tells them."""
        owners = [owner for owner in owners if owner.told]
        if not owners:
            return ()
        ends: Mapping[Partition, int] = {}
        with suppress(SourceError):
            ends = self.source.end_offsets([owner.partition for owner in owners])
        return [
            place_of(
                owner.partition,
                owner.epoch,
                owner.ledger.watermark,
                ends.get(owner.partition),
                None if owner.phase < Phase.FENCED else sum(len(entry.unacked) for entry in owner.entries.values()),
            )
            for owner in owners
        ]

    def restart(self, partition: Partition, offset: int) -> None:
        """Read on from there, as if somebody had reset the group to it."""
        self.cuts[partition] = offset
        if (owner := self.by_partition.get(partition)) is not None:
            self._drop(owner, offset)
            self.retake(owner)

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that are not assigned any more."""
        self.assigned.difference_update(partitions)
        for partition in partitions:
            owner = self.by_partition.get(partition)
            if owner is not None and owner.phase is Phase.GONE:  # else a signal handler came between: `begin_anew`
                del self.by_partition[partition]
            self.cuts.pop(partition, None)
            self.wishes.pop(partition, None)
        self._parts.intake.gone(partitions)

    # ---- inside
    def _drop(self, owner: Ownership, offset: int) -> None:
        """Forget at the store, at once, what is done from there on: RocketMQ tells of a reset once, and the queue may
        go to another member before this one has taken it over anew."""
        outage = self._parts.outage
        if owner.owned and outage.may_ask:
            self._loop.settle()  # what has ended by now is not to be noted after the reset
            with outage.asking():
                self.takeover.drop(owner, offset)

    def _came(self, owners: Sequence[Ownership], trigger: str) -> None:
        """Some of them may be ours to work on now: the ramp is about these, and the audit is told."""
        self._parts.intake.took_over(owner for owner in owners if owner.phase is Phase.OWNED and not owner.begins)
        if self._parts.recorder.on:
            came = [owner for owner in owners if owner.phase is Phase.OWNED and not owner.told]
            for owner in came:
                owner.told = True
            self._parts.recorder.acquired(self.places(came), trigger)

    def end(self, owners: Sequence[Ownership], trigger: str) -> HandOver:
        """Nothing new starts, and what has not started is handed back."""
        for owner in owners:
            if owner.cut is not None and not owner.owned:
                self.cuts.setdefault(owner.partition, owner.cut)  # not adopted yet: the next ownership begins there
        path = self.hand_over(owners, Deadline(0.0, self._parts.runtime), trigger)
        path.fence()
        path.hand_back()
        return path
