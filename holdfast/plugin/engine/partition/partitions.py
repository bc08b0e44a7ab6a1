"""Partitions: those that a member was assigned, and owns. START HERE for a rebalance: assigned, revoked, lost, tend.

Some are assigned and not owned: there is no session, a former owner still lives, the broker gives no answer. The loop
takes those over (`tend`). Partitions that go are handed over (`hand_over.py`).

`seek` right after an assign races, so offsets go into the assign call; a seek later is on a paused, established
partition. An ownership that becomes OWNED always has `seek_needed`; only `assigned` clears it, where its own reply
tells the client the offset. Taken for a gap, records between two positions would be lost in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SourceError, SourceUnavailable
from holdfast.plugin.engine.flow.backlog import Backlog
from holdfast.plugin.engine.partition.commits import Commits
from holdfast.plugin.engine.partition.delays import Delays
from holdfast.plugin.engine.partition.hand_over import HandOver, places_of
from holdfast.plugin.engine.partition.held_back import HeldBack
from holdfast.plugin.engine.partition.holes import Holes
from holdfast.plugin.engine.partition.log_checks import LogChecks
from holdfast.plugin.engine.partition.made import Made
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.engine.partition.reports import Reports
from holdfast.plugin.engine.partition.starving import Starving
from holdfast.plugin.engine.partition.takeover import Takeover, may_pass
from holdfast.plugin.events import Assigned, CommitOverwritten, LogWentBack, RebalanceReport, SourceTrouble
from holdfast.plugin.observe.source_state import AsksBrokers, member_name_of
from holdfast.plugin.ports import CommitFate, Start
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition

#: How long leaving waits for the broker to accept the last commit. The positions in the store hold without it.
_LAST_COMMIT_S = 5.0
#: A partition to which the client refuses to seek so often in a row (once a look) is reported.
_SEEKS_TOLD = 1_000


class Partitions:
    """The listener that a partitioned source tells of rebalances; the loop uses what it has written down. One thread.

    An error in a call of the source does not leave: it stops the app in good order.
    """

    def __init__(self, parts: Parts, loop: Loop, source: PartitionedSource) -> None:
        self._parts, self._loop, self.source = parts, loop, source
        #: The partitions that the client was assigned, and their ownerships. Without a session a partition has none.
        self.assignment: set[Partition] = set()
        self.owners: dict[Partition, Ownership] = {}
        #: Whether the group has sent an assignment, be it empty.
        self.came = False
        #: Where the next ownership of a partition begins, as after a reset of the group.
        self.cuts: dict[Partition, int] = {}
        #: Where a user's loop wants to read on, of partitions in which it cannot yet (`own_loop/moves.py`). The group
        #: begins there where it has no offset.
        self.wishes: dict[Partition, int] = {}
        #: The last poll brought no records.
        self.idle = False
        self.commits = Commits(parts, loop, source)
        self.holes = Holes(source, parts.recorder, parts.tell, parts.runtime)
        self.delays = Delays(parts, source, self.owners)
        self.held_back = HeldBack(parts, self.owners, self.delays)
        self.backlog = Backlog(source, parts.runtime)
        self.reports = Reports(parts)
        self._takeover = Takeover(parts, source, self.commits, self.wishes)
        self._starving = Starving(parts, loop, source, self.owners)
        self._log_checks = LogChecks(parts, source)
        #: Marks that the store has refused: other members have taken the partitions over.
        self.refused_marks = 0
        #: Until when the app drains that leaves, from when it has seen that it is to. What goes meanwhile is waited for
        #: no longer.
        self.leaving: Deadline | None = None
        #: A rebalance is being written down. Still set afterwards, if a signal handler broke that off.
        self.moving = False

    @property
    def store_id(self) -> str:
        """The store's own name, as far as it is known."""
        return self._parts.sessions.store.store_id

    # ---- a rebalance: the source tells of it inside of `poll`, or of `close`
    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Take over what is to be had at once; the rest is held back and taken over by the loop."""
        parts = self._parts
        began, began_ms = parts.runtime.now(), parts.runtime.wall_ms()
        self.moving = self.came = True
        self.assignment.update(partitions)
        starts = dict.fromkeys(partitions, Start(None, hold=True))
        try:
            if not parts.stopping.begun:
                for partition in self.owners.keys() & set(partitions):
                    self.retake(self.owners[partition])  # assigned anew without a word of its end
                owners = self._create(partitions)
                self._take_over(owners, inside=True)
                for owner in owners:
                    start = starts[owner.partition] = self._takeover.start(owner)
                    # This call's reply is what the client begins with; for all others the loop seeks.
                    owner.seek_needed = start.hold
                report = RebalanceReport(
                    trigger="assigned",
                    protocol=self.source.protocol,
                    group=self.source.group,
                    began_ms=began_ms,
                    gained=tuple(sorted(partitions)),
                    phases_s={"take_over": parts.runtime.now() - began},
                )
                if partitions:
                    waiting = [owner.partition for owner in owners if starts[owner.partition].hold]
                    parts.tell(
                        Assigned(
                            group=self.source.group,
                            member=member_name_of(self.source),
                            protocol=self.source.protocol,
                            partitions=tuple(sorted(partitions)),
                            waiting=tuple(sorted(waiting)),
                            total=len(self.assignment),
                        )
                    )
                    self.reports.add(report, owners, began)
        except Exception as error:  # noqa: BLE001 - it may not leave a client's callback
            parts.stopping.fail(error)
        parts.intake.assigned(
            [partition for partition, start in starts.items() if start.hold],
            [partition for partition, start in starts.items() if not start.hold],
        )
        self.holes.moved(self.owners.values())
        self.moving = False
        return starts

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Hand these partitions over: they go now."""
        self._go(partitions, "revoked", self._parts.settings.drain_s)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Give partitions up without a drain or a commit: other members may have them already."""
        self._go(partitions, "lost", None)

    def _go(self, partitions: Sequence[Partition], trigger: str, drain_s: float | None) -> None:
        parts = self._parts
        self.moving = True
        try:
            self._loop.on_revoke(partitions)
            owners = [self.owners[partition] for partition in partitions if partition in self.owners]
            if owners:
                path = self._hand_over(owners, self.leaving or Deadline(drain_s or 0.0, parts.runtime), trigger)
                try:
                    path.fence()
                    path.hand_back()
                    if drain_s is not None:
                        self._starving.begin()
                        path.drain(self._look_whether_it_leaves, self._starving)
                    path.settle()
                    if drain_s is not None:
                        path.commit()
                finally:  # whatever went wrong before: what is in hand has to be known to the next owner
                    path.let_go()
                self.reports.close()
                self.reports.add(path.report(), (), parts.runtime.now())
        except Exception as error:  # noqa: BLE001 - as above
            parts.stopping.fail(error)
        finally:  # the client lets them go whatever happens here
            self._forget(partitions)
        self.holes.moved(self.owners.values())
        self.moving = False

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None:
        """Record the new assignment only. `Driven._mend` takes everything over again."""
        self.moving = True
        self.assignment.update(came)
        self.assignment.difference_update(gone)
        self._parts.intake.gone(gone)

    # ---- what else the source tells
    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        """The outcome of a commit."""
        try:
            for owner in self.commits.answered(self.owners, offsets, fate):
                self._adopted(owner)
        except Exception as error:  # noqa: BLE001 - as above
            self._parts.stopping.fail(error)

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        """Take the partition over anew from that offset: the group was reset, or the log was cut."""
        try:
            owner = self.owners.get(partition)
            if cut and owner is not None:
                self._parts.tell(LogWentBack(partition=partition, offset=offset, expected=owner.ledger.next))
            self.restart(partition, offset)
        except Exception as error:  # noqa: BLE001 - as above
            self._parts.stopping.fail(error)

    def overwritten(self, partition: Partition, offset: int) -> None:
        """Commit again: another program's commit has replaced ours."""
        owner = self.owners.get(partition)
        if owner is None or owner.phase is not Phase.OWNED or owner.commit_sent is not None:
            return
        if owner.committed is not None and owner.committed != offset:
            self._parts.tell(CommitOverwritten(partition=partition, offset=offset, committed=owner.committed))
            owner.committed = offset

    # ---- in each look of the loop
    def tend(self) -> None:
        """Do what time brings: takeovers, seeks, pauses, commits, reports."""
        parts, owners = self._parts, self.owners
        try:
            self.reports.taken_anew(self._create(self.assignment))
            self._take_over(list(owners.values()), inside=False)
            for owner in self._takeover.ask_in_hand(owners.values()):
                self.retake(owner)
            for owner, offset in self._log_checks.cut(owners.values()).items():
                self.cuts[owner.partition] = offset
                self.retake(owner)
            for owner in owners.values():
                if owner.sought_at and self.idle and parts.intake.awaits(owner.partition):
                    self.holes.unheard(owner)
                if owner.seek_needed and owner.suspect is None and owner.phase is Phase.OWNED:
                    self._seek(owner)
            self.held_back.step(self.assignment)
            if self.commits.transacting:
                parts.intake.made_bytes = sum(owner.made.bytes for owner in owners.values() if owner.made is not None)
            resumed = parts.intake.apply(self.source, self.assignment, owners)
            self.holes.moved(owners[each] for each in resumed if each in owners)
            self.commits.step(owners.values())
            self._look_at_ramp()
            for owner in self._log_checks.made_again(owners.values()):
                self.retake(owner)
        except SourceError as error:
            if not may_pass(error):
                parts.stopping.fail(error)
            parts.tell(SourceTrouble(error=str(error)))
        self.reports.step(self.source.end_offsets)

    def _seek(self, owner: Ownership) -> None:
        try:
            self.source.seek(owner.partition, owner.ledger.next)
        except SourceUnavailable as error:
            # The client is not ready: again at the next look. But not for ever, and not in silence.
            owner.seeks += 1
            if owner.seeks % _SEEKS_TOLD == 0:
                self._parts.tell(SourceTrouble(error=f"{owner.partition} stands still: {error}"))
            return
        owner.seeks = 0
        owner.seek_needed = False
        self.holes.sought(owner)
        self._parts.intake.waiting.sent_elsewhere(owner.partition)

    def _look_at_ramp(self) -> None:
        intake, backlog = self._parts.intake, self.backlog
        if not intake.climb.over:
            not_due = self.delays.held  # records that may not be handled yet are no lag
            backlog.look([each for each in self.owners.values() if each.partition not in not_due], intake.waiting.new)
            intake.look_at_ramp(
                lag=backlog.lag,
                produced_per_s=backlog.produced_per_s,
                produced_new_per_s=backlog.produced_new_per_s,
            )

    # ---- the way in
    def _create(self, partitions: Iterable[Partition]) -> list[Ownership]:
        """Ownerships for those of the partitions that have none."""
        session = self._parts.sessions.session
        if session is None or self._parts.stopping.begun:
            return []
        created = []
        for partition in sorted(set(partitions) - self.owners.keys()):
            owner = Ownership(partition, session, cut=self.cuts.pop(partition, None), runtime=self._parts.runtime)
            if self.commits.transacting:
                owner.made = Made(self._parts.runtime.lock())
            self.owners[partition] = owner
            created.append(owner)
        if created:
            self._parts.intake.ramp_up()
            self.backlog.begin()
        return created

    def _take_over(self, owners: Sequence[Ownership], *, inside: bool) -> None:
        """Go on towards OWNED, as far as store and broker answer. `inside` a rebalance the client is told the start."""
        parts = self._parts
        waiting = [owner for owner in owners if owner.phase < Phase.OWNED]
        if parts.outage.may_ask and waiting:
            try:
                with parts.outage.asking():
                    parts.owed.pay()  # a `let_go` that is owed would end the new ownership
                    if inside:
                        others = any(owner.phase is Phase.OWNED for owner in self.owners.values())
                        self._takeover.begin(owners, others_wait=others)
                    else:
                        self._takeover.step(owners)
            finally:
                self._begins(waiting, "assigned")

    def _begins(self, owners: Sequence[Ownership], trigger: str) -> None:
        """Tell the ramp and the audit of partitions that are owned now."""
        self._parts.intake.took_over(owner for owner in owners if owner.phase is Phase.OWNED and not owner.begins)
        if self._parts.recorder.on:
            came = [owner for owner in owners if owner.phase is Phase.OWNED and not owner.told]
            for owner in came:
                owner.told = True
            self._parts.recorder.acquired(places_of(self.source, came), trigger)

    def _adopted(self, owner: Ownership) -> None:
        """The broker has our commit of the offset that is adopted."""
        self._takeover.adopted(owner)
        known = owner.acquired
        self._begins([owner], "reset" if known is not None and known.watermark else "assigned")

    def restart(self, partition: Partition, offset: int) -> None:
        """Read on from that offset, as after a reset of the group."""
        self.cuts[partition] = offset
        if (owner := self.owners.get(partition)) is not None:
            # Forgotten at the store at once: RocketMQ tells of a reset once, and the queue may go to another member
            # before this one has taken it over anew.
            outage = self._parts.outage
            if owner.owned and outage.may_ask:
                self._loop.settle()  # what has ended by now is not to be noted after the reset
                with outage.asking():
                    self._takeover.drop(owner, offset)
            self.retake(owner)

    def read_again(self) -> None:
        """Have the client deliver the last records again: they were lost on their way."""
        for owner in self.owners.values():
            owner.seek_needed = True

    def begin_anew(self) -> None:
        """Take over all partitions anew: the state in this process may be wrong, the store's is not."""
        parts = self._parts
        self._loop.settle()
        try:
            self.commits.commit_moved(self.owners.values(), last=True)
        except SourceError as error:
            parts.tell(SourceTrouble(error=str(error)))
        for owner in list(self.owners.values()):
            self.retake(owner)
        parts.intake.assigned(self.assignment, ())  # paused or not: what is to be read is resumed

    # ---- the way out
    def _hand_over(self, owners: Sequence[Ownership], deadline: Deadline, trigger: str) -> HandOver:
        return HandOver(
            self._parts,
            self._loop,
            source=self.source,
            commits=self.commits,
            owners=owners,
            deadline=deadline,
            trigger=trigger,
        )

    def _end(self, owners: Sequence[Ownership], trigger: str) -> HandOver:
        """Nothing new starts, and what has not started is handed back."""
        for owner in owners:
            if owner.cut is not None and not owner.owned:
                self.cuts.setdefault(owner.partition, owner.cut)  # not adopted yet: the next ownership begins there
            elif self.commits.is_untold(owner):
                self.cuts.setdefault(owner.partition, owner.adopting)
        path = self._hand_over(owners, Deadline(0.0, self._parts.runtime), trigger)
        path.fence()
        path.hand_back()
        return path

    def retake(self, owner: Ownership) -> None:
        """Let the partition go at the store and take it over anew, though the client keeps it."""
        self._end([owner], "retaken").let_go()
        if self.owners.get(owner.partition) is owner:
            del self.owners[owner.partition]

    def _forget(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that are not assigned any more."""
        self.assignment.difference_update(partitions)
        for partition in partitions:
            owner = self.owners.get(partition)
            if owner is not None and owner.phase is Phase.GONE:  # else a signal handler came between: `begin_anew`
                del self.owners[partition]
            self.cuts.pop(partition, None)
            self.wishes.pop(partition, None)
        self._parts.intake.gone(partitions)

    def session_lost(self) -> None:
        """All ownerships end without a word to the store: others may have taken over. New ones begin with a session."""
        owners, now = list(self.owners.values()), self._parts.runtime.now()
        self._takeover.session_lost(owners)
        path = self._end(owners, "session lost")
        path.lose()
        self.owners.clear()
        if owners:
            self.reports.lost(path.report(), now)

    def _look_whether_it_leaves(self) -> None:
        """A drain inside a rebalance goes on as the app is asked to stop: the drain of the leaving begins with that."""
        if self._parts.stopping.begun and self.leaving is None:
            self.leaving = Deadline(self._parts.settings.drain_s, self._parts.runtime)

    def leave(self, deadline: Deadline) -> None:
        """Leave with nothing left to commit: a commit inside the client's close() may hang, or be refused."""
        parts = self._parts
        deadline = self.leaving = self.leaving or deadline
        path = self._hand_over(list(self.owners.values()), deadline, "leave")
        path.fence()
        path.hand_back()
        self._keep_alive()
        path.drain(self._keep_alive)
        path.settle()
        in_vain = parts.stopping.hurry or (isinstance(self.source, AsksBrokers) and self.source.cut_off())
        committing = Deadline(0.0 if in_vain else _LAST_COMMIT_S, parts.runtime)
        try:
            while self.commits.finish(self.owners.values()):
                self.source.poll(1, 0.02)
                if committing.passed or parts.stopping.hurry:
                    break
        except SourceError as error:
            parts.tell(SourceTrouble(error=str(error)))
        path.let_go()
        self.reports.close()
        self.reports.add(path.report(), (), parts.runtime.now())
        self.owners.clear()

    def _keep_alive(self) -> None:
        """Polls keep the membership while handlers drain; what they bring is not ours to handle any more."""
        try:
            self._parts.intake.apply(self.source, self.assignment, self.owners)
            self.source.poll(1, 0.0)
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))
