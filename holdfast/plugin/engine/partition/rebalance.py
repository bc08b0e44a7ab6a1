"""A rebalance: the whole path in one place.

    fence > hand back > drain > settle > commit > let go > (the client unassigns)

Drain first, fence results second: work that ends inside the budget keeps its offset. What outlives it is handed over
in the store as *in hand*; the next owner waits for it. `lost` skips the drain and the commit: others wait for us, and
the broker would take nothing from us any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import LetGo
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.engine.record.entry import Gate
from holdfast.plugin.events import Assigned, CommitOverwritten, LogWentBack, Overrun, RebalanceReport, SourceTrouble
from holdfast.plugin.ports import CommitFate, Start
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.partitioned import Partitioned
    from holdfast.records import Partition

#: What has not started can be handed back without waiting.
_UNSTARTED = frozenset({Gate.CLAIM, Gate.BUSY, Gate.BEHIND, Gate.HANDED, Gate.READY, Gate.RETRY})


class HandOver:
    """One set of partitions on its way out. Its methods are the steps, in order."""

    def __init__(
        self, engine: Engine, family: Partitioned, owners: Sequence[Ownership], deadline: Deadline, trigger: str
    ) -> None:
        self._engine, self._family, self._owners, self._deadline = engine, family, owners, deadline
        self._trigger = trigger
        self._phases: dict[str, float] = {}
        self._since = engine.clock.now()
        self._handed_back = 0
        self._in_hand_at_first = 0
        self._abandoned = 0

    def fence(self) -> None:
        """Nothing new starts on these partitions."""
        for owner in self._owners:
            if owner.phase < Phase.FENCED:
                owner.move(Phase.FENCED)
        self._lap("fence")

    def hand_back(self) -> None:
        """What has not started leaves the process; its claims are owed back."""
        for owner in self._owners:
            for entry in [entry for entry in owner.entries.values() if entry.gate in _UNSTARTED]:
                self._handed_back += entry.count
                self._engine.outcomes.hand_back(entry)
        self._in_hand_at_first = sum(len(entry.in_hand) for owner in self._owners for entry in owner.entries.values())

    def drain(self, keep_alive: Callable[[], None] | None = None) -> None:
        """Wait for what runs, while the partitions that stay go on."""

        def over() -> bool:
            if keep_alive is not None:
                keep_alive()
            # What waits in a worker's queue does not count: behind the fence it can never start.
            return not any(
                entry.gate is Gate.TAKEN and entry.started for owner in self._owners for entry in owner.entries.values()
            )

        self._engine.work_until(over, self._deadline)
        self._lap("drain")

    def settle(self) -> None:
        """Finish and mark what has ended."""
        engine = self._engine
        engine.collect()
        engine.settle()
        engine.recorder.flush()  # written while the broker is waited for
        self._lap("settle")

    def commit(self) -> None:
        """Commit exactly these partitions; the source waits for the broker's answer before it lets them go."""
        try:
            self._family.commits.commit(self._moved(), last=True)
        except SourceError as error:
            self._engine.tell(SourceTrouble(error=str(error)))
        self._lap("commit")

    def let_go(self) -> None:
        """Tell the store, with what is in hand: started, and the mark not acknowledged. Owed until it answers."""
        engine = self._engine
        owners = [owner for owner in self._owners if owner.phase is not Phase.GONE]  # else its session was lost
        for owner in owners:
            hands = [offset for entry in owner.entries.values() for offset in entry.in_hand]
            owner.hands = frozenset(hands)
            for offset in sorted(offset for entry in owner.entries.values() for offset in entry.running):
                self._abandoned += 1
                engine.tell(Overrun(partition=owner.partition, offset=offset))
            for entry in owner.entries.values():
                if not entry.in_hand:  # waits in a worker's queue: the fence keeps it from ever starting
                    engine.claiming.give_back(entry)
            if owner.acquired is not None:
                engine.debts.let_go(owner.session_, LetGo(owner.name, owner.store_epoch, sorted(hands)))
            elif owner.acquire_unanswered:
                engine.debts.let_go(owner.session_, LetGo(owner.name, 0, ()))
            owner.move(Phase.GONE)
        if engine.outage.may_ask:
            with engine.outage.asking():
                engine.debts.pay()
        engine.recorder.went(self._family.places(owners), self._trigger)
        self._lap("let_go")

    def report(self) -> RebalanceReport:
        """What happened."""
        source = self._family.source
        return RebalanceReport(
            trigger=self._trigger,
            protocol=source.protocol,
            group=source.group,
            given=tuple(sorted(owner.partition for owner in self._owners)),
            drained=self._in_hand_at_first - self._abandoned,
            abandoned=self._abandoned,
            handed_back=self._handed_back,
            phases_s=self._phases,
        )

    def _moved(self) -> list[Ownership]:
        return [
            owner for owner in self._owners if owner.phase is Phase.FENCED and owner.ledger.watermark != owner.committed
        ]

    def _lap(self, phase: str) -> None:
        now = self._engine.clock.now()
        self._phases[phase], self._since = now - self._since, now


class Rebalance:
    """What the source tells, inside its callbacks. Nothing raised here leaves: it stops the app in good order."""

    def __init__(self, engine: Engine, family: Partitioned) -> None:
        self._engine, self._family = engine, family

    @property
    def store_id(self) -> str:
        """The engine's."""
        return self._engine.store.store_id

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Take over what is to be had at once; the rest is held back and taken over by the loop."""
        engine, family, began = self._engine, self._family, self._engine.clock.now()
        family.moving = True
        family.assigned.update(partitions)
        starts = dict.fromkeys(partitions, Start(None, hold=True))
        try:
            if not engine.stopping:
                for partition in family.owners.keys() & set(partitions):
                    family.retake(family.owners[partition])  # assigned anew without a word of its end
                owners = family.create_owners(partitions)
                family.take_over(owners, inside=True)
                for owner in owners:
                    start = starts[owner.partition] = family.takeover.start(owner)
                    # This call's reply is what the client begins with; for all others the loop seeks.
                    owner.seek_needed = start.hold
                report = RebalanceReport(
                    trigger="assigned",
                    protocol=family.source.protocol,
                    group=family.source.group,
                    gained=tuple(sorted(partitions)),
                    phases_s={"take_over": engine.clock.now() - began},
                )
                if partitions:
                    waiting = [owner.partition for owner in owners if starts[owner.partition].hold]
                    engine.tell(
                        Assigned(
                            group=family.source.group,
                            protocol=family.source.protocol,
                            partitions=tuple(sorted(partitions)),
                            waiting=tuple(sorted(waiting)),
                            total=len(family.assigned),
                        )
                    )
                    family.reports.add(report, owners, began)
        except Exception as error:  # noqa: BLE001 - it may not leave a client's callback
            self._engine.fail(error)
        self._engine.intake.assigned(
            [partition for partition, start in starts.items() if start.hold],
            [partition for partition, start in starts.items() if not start.hold],
        )
        family.moving = False
        return starts

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """They go now."""
        self._go(partitions, "revoked", self._engine.settings.drain_timeout_s)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """They are gone."""
        self._go(partitions, "lost", None)

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None:
        """No more than what the client has now: whoever goes on takes everything over anew (`Driven`)."""
        self._family.moving = True
        self._family.assigned.update(came)
        self._family.assigned.difference_update(gone)
        self._engine.intake.gone(gone)

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        """The outcome of a commit."""
        try:
            self._family.commits.answered(self._family.owners, offsets, fate, self._family.adopted)
        except Exception as error:  # noqa: BLE001 - as above
            self._engine.fail(error)

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        """Somebody has reset the group, or the log was cut."""
        try:
            owner = self._family.owners.get(partition)
            if cut and owner is not None:
                self._engine.tell(LogWentBack(partition=partition, offset=offset, expected=owner.ledger.next))
            self._family.restart(partition, offset)
        except Exception as error:  # noqa: BLE001 - as above
            self._engine.fail(error)

    def overwritten(self, partition: Partition, offset: int) -> None:
        """Commit anew what somebody else's commit has replaced."""
        owner = self._family.owners.get(partition)
        if owner is None or owner.phase is not Phase.OWNED or owner.commit_sent is not None:
            return
        if owner.committed is not None and owner.committed != offset:
            self._engine.tell(CommitOverwritten(partition=partition, offset=offset, committed=owner.committed))
            owner.committed = offset

    def _go(self, partitions: Sequence[Partition], trigger: str, drain_s: float | None) -> None:
        engine, family = self._engine, self._family
        family.moving = True
        try:
            engine.goes(partitions)
            owners = [family.owners[partition] for partition in partitions if partition in family.owners]
            if owners:
                path = HandOver(engine, family, owners, Deadline(drain_s or 0.0, engine.clock), trigger)
                try:
                    path.fence()
                    path.hand_back()
                    if drain_s is not None:
                        path.drain()
                    path.settle()
                    if drain_s is not None:
                        path.commit()
                finally:  # whatever went wrong before: what is in hand has to be known to the next owner
                    path.let_go()
                family.reports.close()
                family.reports.add(path.report(), (), engine.clock.now())
        except Exception as error:  # noqa: BLE001 - as above
            engine.fail(error)
        finally:  # the client lets them go whatever happens here
            family.forget(partitions)
        family.moving = False
