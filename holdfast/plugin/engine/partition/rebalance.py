"""Rebalance: takes over the partitions that the source assigns; hands over those that it revokes (`hand_over.py`).

`seek` right after an assign races, so offsets go into the assign call; a seek later is on a paused, established
partition. Who becomes OWNED always has `seek_needed`; only `Rebalance.assigned` clears it, for what its own reply tells
the client. Taken for a gap, records between two positions would be lost in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.starving import Starving
from holdfast.plugin.events import Assigned, CommitOverwritten, LogWentBack, RebalanceReport
from holdfast.plugin.observe.joining import name_of
from holdfast.plugin.ports import CommitFate, Start
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.owners import Owners
    from holdfast.plugin.engine.parts import Parts
    from holdfast.records import Partition


class Rebalance:
    """The source's callbacks. Nothing raised here leaves: it stops the app in good order."""

    def __init__(self, parts: Parts, loop: Loop, owners: Owners) -> None:
        self._parts, self._loop, self._ours = parts, loop, owners
        self._starving = Starving(parts, loop, owners.source, owners.by_partition)

    @property
    def store_id(self) -> str:
        """The store's own name, as far as it is known."""
        return self._parts.sessions.store.store_id

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Take over what is to be had at once; the rest is held back and taken over by the loop."""
        parts, ours = self._parts, self._ours
        began, began_ms = parts.runtime.now(), parts.runtime.wall_ms()
        ours.moving = ours.came = True
        ours.assigned.update(partitions)
        starts = dict.fromkeys(partitions, Start(None, hold=True))
        try:
            if not parts.stopping.begun:
                for partition in ours.by_partition.keys() & set(partitions):
                    ours.retake(ours.by_partition[partition])  # assigned anew without a word of its end
                owners = ours.create(partitions)
                ours.take_over(owners, inside=True)
                for owner in owners:
                    start = starts[owner.partition] = ours.takeover.start(owner)
                    # This call's reply is what the client begins with; for all others the loop seeks.
                    owner.seek_needed = start.hold
                report = RebalanceReport(
                    trigger="assigned",
                    protocol=ours.source.protocol,
                    group=ours.source.group,
                    began_ms=began_ms,
                    gained=tuple(sorted(partitions)),
                    phases_s={"take_over": parts.runtime.now() - began},
                )
                if partitions:
                    waiting = [owner.partition for owner in owners if starts[owner.partition].hold]
                    parts.tell(
                        Assigned(
                            group=ours.source.group,
                            member=name_of(ours.source),
                            protocol=ours.source.protocol,
                            partitions=tuple(sorted(partitions)),
                            waiting=tuple(sorted(waiting)),
                            total=len(ours.assigned),
                        )
                    )
                    ours.reports.add(report, owners, began)
        except Exception as error:  # noqa: BLE001 - it may not leave a client's callback
            self._parts.stopping.fail(error)
        self._parts.intake.assigned(
            [partition for partition, start in starts.items() if start.hold],
            [partition for partition, start in starts.items() if not start.hold],
        )
        ours.holes.moved(ours.by_partition.values())
        ours.moving = False
        return starts

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Hand these partitions over: they go now."""
        self._go(partitions, "revoked", self._parts.settings.drain_s)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Partitions are gone."""
        self._go(partitions, "lost", None)

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None:
        """Record the new assignment only. `Driven._mend` takes everything over again."""
        self._ours.moving = True
        self._ours.assigned.update(came)
        self._ours.assigned.difference_update(gone)
        self._parts.intake.gone(gone)

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        """The outcome of a commit."""
        try:
            self._ours.commits.answered(self._ours.by_partition, offsets, fate, self._ours.adopted)
        except Exception as error:  # noqa: BLE001 - as above
            self._parts.stopping.fail(error)

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        """Somebody has reset the group, or the log was cut."""
        try:
            owner = self._ours.by_partition.get(partition)
            if cut and owner is not None:
                self._parts.tell(LogWentBack(partition=partition, offset=offset, expected=owner.ledger.next))
            self._ours.restart(partition, offset)
        except Exception as error:  # noqa: BLE001 - as above
            self._parts.stopping.fail(error)

    def overwritten(self, partition: Partition, offset: int) -> None:
        """Commit anew what somebody else's commit has replaced."""
        owner = self._ours.by_partition.get(partition)
        if owner is None or owner.phase is not Phase.OWNED or owner.commit_sent is not None:
            return
        if owner.committed is not None and owner.committed != offset:
            self._parts.tell(CommitOverwritten(partition=partition, offset=offset, committed=owner.committed))
            owner.committed = offset

    def _go(self, partitions: Sequence[Partition], trigger: str, drain_s: float | None) -> None:
        parts, ours = self._parts, self._ours
        ours.moving = True
        try:
            self._loop.on_revoke(partitions)
            owners = [ours.by_partition[partition] for partition in partitions if partition in ours.by_partition]
            if owners:
                path = ours.hand_over(owners, ours.leaving or Deadline(drain_s or 0.0, parts.runtime), trigger)
                try:
                    path.fence()
                    path.hand_back()
                    if drain_s is not None:
                        self._starving.begin()
                        path.drain(ours.look_whether_it_leaves, self._starving)
                    path.settle()
                    if drain_s is not None:
                        path.commit()
                finally:  # whatever went wrong before: what is in hand has to be known to the next owner
                    path.let_go()
                ours.reports.close()
                ours.reports.add(path.report(), (), parts.runtime.now())
        except Exception as error:  # noqa: BLE001 - as above
            parts.stopping.fail(error)
        finally:  # the client lets them go whatever happens here
            ours.forget(partitions)
        ours.holes.moved(ours.by_partition.values())
        ours.moving = False
