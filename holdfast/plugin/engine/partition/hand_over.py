"""Hand-over: the whole path of partitions that this member gives up. START HERE TOO.

    fence > hand back > drain > settle > commit > let go > (the client unassigns)

Drain first, fence results second: work that ends inside the budget keeps its offset. What outlives it is handed over
in the store as *in hand*; the next owner waits for it. `lost` skips the drain and the commit: others wait for us, and
the broker would take nothing from us any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.dedup.claims import LetGo
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.engine.record.entry import UNSTARTED, EntryState
from holdfast.plugin.engine.record.recorder import place_of
from holdfast.plugin.events import Overrun, RebalanceReport, SourceTrouble

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.audit.schema import AuditPartition
    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.commits import Commits
    from holdfast.plugin.engine.partition.starving import Starving
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition
    from holdfast.timing import Deadline


class HandOver:
    """One set of partitions on its way out. Its methods are the steps, in order."""

    def __init__(
        self,
        parts: Parts,
        loop: Loop,
        *,
        source: PartitionedSource,
        commits: Commits,
        owners: Sequence[Ownership],
        deadline: Deadline,
        trigger: str,
    ) -> None:
        self._parts, self._loop = parts, loop
        self._source, self._commits = source, commits
        self._owners, self._deadline, self._trigger = owners, deadline, trigger
        self._phases: dict[str, float] = {}
        self._since, self._began_ms = parts.runtime.now(), parts.runtime.wall_ms()
        self._handed_back = 0
        self._unacked_at_first = 0
        self._abandoned = 0

    def fence(self) -> None:
        """Nothing new starts on these partitions."""
        for owner in self._owners:
            if owner.phase < Phase.FENCED:
                owner.move(Phase.FENCED)
        self._lap("fence")

    def hand_back(self) -> None:
        """Hand back what has not started: it leaves the process, and its claims are owed back."""
        for owner in self._owners:
            for entry in [entry for entry in owner.entries.values() if entry.state in UNSTARTED]:
                self._handed_back += entry.count
                self._parts.outcomes.hand_back(entry)
        self._unacked_at_first = sum(len(entry.unacked) for owner in self._owners for entry in owner.entries.values())

    def drain(self, meanwhile: Callable[[], None], starving: Starving | None = None) -> None:
        """Wait for what runs, while the partitions that stay go on: not for long where they cannot (`starving`)."""

        def over() -> bool:
            meanwhile()
            # Records in a worker's queue do not count: behind the fence they can never start.
            runs = any(
                entry.state is EntryState.TAKEN and entry.started
                for owner in self._owners
                for entry in owner.entries.values()
            )
            return not runs or (starving is not None and starving.too_long)

        self._loop.work_until(over, self._deadline)
        self._lap("drain")

    def settle(self) -> None:
        """Finish and mark what has ended."""
        parts = self._parts
        self._loop.collect()
        self._loop.settle()
        parts.recorder.flush()  # written while the broker is waited for
        self._lap("settle")

    def commit(self) -> None:
        """Commit exactly these partitions. Asynchronous: the client keeps them until the broker has answered (Kafka's:
        see `KafkaSource.commit`)."""
        try:
            fenced = [owner for owner in self._owners if owner.phase is Phase.FENCED]
            self._commits.commit_moved(fenced, last=True)
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))
        self._lap("commit")

    def let_go(self) -> None:
        """Tell the store, with what is in hand: started, and the mark not acknowledged. Owed until it answers."""
        parts = self._parts
        for owner in self._owners:
            for offset in sorted(offset for entry in owner.entries.values() for offset in entry.running):
                self._abandoned += 1
                parts.tell(Overrun(partition=owner.partition, offset=offset))
        owners = [owner for owner in self._owners if owner.phase is not Phase.GONE]  # else its session was lost
        for owner in owners:
            unacked = [offset for entry in owner.entries.values() for offset in entry.unacked]
            owner.handed_over = frozenset(unacked)
            for entry in owner.entries.values():
                if not entry.unacked:  # waits in a worker's queue: the fence keeps it from ever starting
                    parts.claiming.give_back(entry)
            if owner.acquired is not None:
                parts.owed.let_go(owner.session_, LetGo(owner.name, owner.store_epoch, sorted(unacked)))
            elif owner.acquire_unanswered:
                parts.owed.let_go(owner.session_, LetGo(owner.name, 0, ()))
            owner.move(Phase.GONE)
        if parts.outage.may_ask:
            with parts.outage.asking():
                parts.owed.pay()
        parts.recorder.released(places_of(self._source, owners), self._trigger)
        self._lap("let_go")

    def lose(self) -> None:
        """End partitions without a word to the store: their session is over, and others may have taken them over."""
        for owner in self._owners:
            self._abandoned += sum(len(entry.running) for entry in owner.entries.values())
            owner.move(Phase.GONE)
        self._unacked_at_first = self._abandoned  # what has ended may be marked yet, or not: it counts as neither
        self._parts.recorder.released(places_of(self._source, self._owners), self._trigger)

    def report(self) -> RebalanceReport:
        """Report what happened."""
        source = self._source
        return RebalanceReport(
            trigger=self._trigger,
            protocol=source.protocol,
            group=source.group,
            began_ms=self._began_ms,
            given=tuple(sorted(owner.partition for owner in self._owners)),
            drained=self._unacked_at_first - self._abandoned,
            abandoned=self._abandoned,
            handed_back=self._handed_back,
            phases_s=self._phases,
        )

    def _lap(self, phase: str) -> None:
        now = self._parts.runtime.now()
        self._phases[phase], self._since = now - self._since, now


def places_of(source: PartitionedSource, owners: Collection[Ownership]) -> Sequence[AuditPartition]:
    """The places of these owners that the audit knows of, as it is told them."""
    owners = [owner for owner in owners if owner.told]
    if not owners:
        return ()
    ends: Mapping[Partition, int] = {}
    with suppress(SourceError):
        ends = source.end_offsets([owner.partition for owner in owners])
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
