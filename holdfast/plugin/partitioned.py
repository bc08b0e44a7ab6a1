"""The partitioned family: ownership, watermark, marks, commits; and leaving the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Mark, Poll, Polled
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.plugin.commits import Commits
from holdfast.plugin.events import LogWentBack, SourceTrouble
from holdfast.plugin.lanes import Gate
from holdfast.plugin.ownership import Ownership, Phase
from holdfast.plugin.rebalance import HandOver, Rebalance
from holdfast.plugin.reports import Reports
from holdfast.plugin.takeover import Takeover
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.plugin.lanes import Entry
    from holdfast.plugin.loop import Engine
    from holdfast.plugin.ports import Batch, End, PartitionedSource
    from holdfast.records import Partition, Record

#: How often the store is asked what became of records that former owners had in hand.
_POLL_S = 0.05
#: How often all partitions are looked at: turns of quick handlers are shorter, and groups have thousands of partitions.
_TEND_S = 0.005
#: How often topics are asked for their identity, and positions kept from expiring; one call each, for all partitions.
_REFRESH_S = 30.0
_REFRESH_LOOK_S = 0.5
#: How often the broker is asked for the ends of logs that seem to have gone back.
_SUSPECTS_S = 0.2
#: How many seeks in a row may be refused (one each 5 ms) before somebody is told.
_SEEKS_TOLD = 1_000
#: How long leaving waits for the broker to accept the last commit. The positions in the store hold without it.
_LAST_COMMIT_S = 5.0
_CLOSE_S = 10.0


class Partitioned:
    """Drives a PartitionedSource. One thread."""

    def __init__(self, engine: Engine, source: PartitionedSource) -> None:
        self._engine, self.source = engine, source
        #: What the client has been assigned, and the ownerships of it. One may lack the other for a while: no session.
        self.assigned: set[Partition] = set()
        self.owners: dict[Partition, Ownership] = {}
        self._cuts: dict[Partition, int] = {}
        self.commits = Commits(source, engine.settings, engine.clock)
        self.takeover = Takeover(engine, source, self.commits)
        self.reports = Reports(engine.clock, engine.tell)
        self._poll_at = 0.0
        self._tend_at = 0.0
        self._suspects_at = 0.0
        self._refresh_at = engine.clock.now() + _REFRESH_S
        self._left = False

    @property
    def lease_s(self) -> float | None:
        """A takeover takes the longer of the store's lease and the broker's session timeout."""
        return self.source.session_timeout_s

    @property
    def patience_s(self) -> float:
        """As long as the broker waits for a member that does not poll."""
        return self.source.max_poll_interval_s

    # ---- the loop's steps
    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Join the group. Raises SourceError."""
        self.source.open(topics, Rebalance(self._engine, self), self.owners, deadline)

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription. Raises SourceError."""
        self.source.subscribe(topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records, and rebalances inside. Raises SourceError."""
        return self.source.poll(max_records, timeout_s)

    def reached(self, ends: Sequence[End]) -> None:
        """The source has read partitions up to there, after the records of the same poll were admitted."""
        for end in ends:
            owner = self.owners.get(end.partition)
            if owner is not None and owner.open:
                owner.ledger.reached(end.offset)

    def admit(self, record: Record) -> Ownership | None:
        """The record's owner; None = it is not to be handled here (now)."""
        owner = self.owners.get(record.partition)
        if owner is None or owner is not record.fence or not owner.open:
            return None  # the latter: fetched under an earlier ownership, it comes again
        if record.offset < owner.ledger.next:
            # Clients go back by themselves: an answer that comes after a seek, a reset after an error. Nothing more of
            # this partition until the broker has said whether its log did.
            owner.suspect, owner.seek_needed = record.offset, True
            return None
        if not owner.ledger.polled(record.offset):
            owner.suppressed += 1
            return None
        return owner

    def default_key(self, record: Record) -> str | None:  # noqa: ARG002 - the port's signature
        """Without a business key the position protects the record."""
        return None

    def settle(self, entries: Sequence[Entry]) -> None:
        """Mark positions. Raises StoreUnavailable: all of them may be marked again."""
        by_owner: dict[Ownership, list[Entry]] = {}
        for entry in entries:
            if entry.gate is not Gate.GONE:
                by_owner.setdefault(entry.owner, []).append(entry)
        by_session: dict[object, list[Ownership]] = {}
        for owner in by_owner:
            by_session.setdefault(owner.session_, []).append(owner)
        for owners in by_session.values():
            marks = [_mark(owner, by_owner[owner]) for owner in owners]
            for owner, fenced in zip(owners, owners[0].session_.mark(marks), strict=True):
                self._marked(owner, by_owner[owner], fenced)

    def given_up(self, entry: Entry) -> None:
        """Nothing to do: the next owner reads it again."""

    def tend(self) -> None:
        """What time brings: takeovers, seeks, pauses, commits, reports. Looks at every partition, so not every turn."""
        engine = self._engine
        if self._left or (engine.clock.now() < self._tend_at and not engine.intake.tight):
            return
        self._tend_at = engine.clock.now() + _TEND_S
        try:
            self.create_owners(self.assigned)
            self.take_over(list(self.owners.values()), inside=False)
            self._poll_handed()
            self._look_at_suspects()
            for owner in self.owners.values():
                if owner.seek_needed and owner.suspect is None and owner.phase is Phase.OWNED:
                    self._seek(owner)
            engine.intake.apply(self.source, self.assigned, self.owners, stopped=engine.stalled)
            self.commits.step(self.owners.values())
            if engine.clock.now() >= self._refresh_at:
                self._refresh_at = engine.clock.now() + _REFRESH_S
                self._refresh()
        except SourceError as error:
            if not error.retriable:
                engine.fail(error)
            engine.tell(SourceTrouble(error=str(error)))
        self.reports.step(self.source.end_offsets)

    def session_lost(self) -> None:
        """All ownerships end without a word to the store: others may have taken over. New ones begin with a session."""
        for owner in list(self.owners.values()):
            self._end(owner)
            owner.move(Phase.GONE)
        self.owners.clear()

    def leave(self, deadline: Deadline) -> None:
        """Leave with nothing left to commit: a commit inside the client's close() may hang, or be refused."""
        engine = self._engine
        path = HandOver(engine, self, list(self.owners.values()), deadline)
        path.fence()
        path.hand_back()
        self._keep_alive()
        path.drain(self._keep_alive)
        path.settle()
        committing = Deadline(0.0 if engine.hurry else _LAST_COMMIT_S, engine.clock)
        try:
            while self.commits.finish(self.owners.values()):
                self.source.poll(1, 0.02)
                if committing.passed or engine.hurry:
                    break
        except SourceError as error:
            engine.tell(SourceTrouble(error=str(error)))
        path.let_go()
        self.reports.close()
        self.reports.add(path.report("leave"), (), engine.clock.now())
        self.owners.clear()
        self.close()

    def close(self) -> None:
        """Close the client, whatever state it is in. Idempotent."""
        if not self._left:
            self._left = True
            self.source.close(Deadline(_CLOSE_S, self._engine.clock))

    # ---- for the rebalance
    def create_owners(self, partitions: Iterable[Partition]) -> list[Ownership]:
        """Ownerships for those of the partitions that have none."""
        session = self._engine.session
        if session is None or self._engine.stopping:
            return []
        created = []
        for partition in sorted(set(partitions) - self.owners.keys()):
            owner = Ownership(partition, session, self._cuts.pop(partition, None))
            self.owners[partition] = owner
            created.append(owner)
        return created

    def take_over(self, owners: Sequence[Ownership], *, inside: bool) -> None:
        """Go on towards OWNED, as far as store and broker answer. `inside` a rebalance the client is told the start."""
        engine = self._engine
        if engine.outage.may_ask and any(owner.phase < Phase.OWNED for owner in owners):
            with engine.outage.asking():
                engine.debts.pay()
                if inside:
                    self.takeover.begin(owners)
                else:
                    self.takeover.step(owners)

    def retake(self, owner: Ownership) -> None:
        """Let the partition go at the store and take it over anew, though the client keeps it."""
        self._end(owner).let_go()
        if self.owners.get(owner.partition) is owner:
            del self.owners[owner.partition]

    def forget(self, partitions: Sequence[Partition]) -> None:
        """They are not assigned any more."""
        self.assigned.difference_update(partitions)
        for partition in partitions:
            self.owners.pop(partition, None)
            self._cuts.pop(partition, None)
        self._engine.intake.gone(partitions)

    # ---- inside
    def _marked(self, owner: Ownership, entries: Sequence[Entry], fenced: frozenset[int]) -> None:
        for entry in entries:
            offset = entry.record.offset
            if offset not in fenced:
                owner.ledger.settle(offset)
            owner.entries.pop(offset, None)
            entry.gate = Gate.GONE
            self._engine.intake.left(entry)
        if fenced and owner.phase is Phase.OWNED:
            self.retake(owner)  # somebody has taken over behind our back: as if the partition had been lost

    def _poll_handed(self) -> None:
        """Ask what became of records that former owners had in hand."""
        engine = self._engine
        waiting = [owner for owner in self.owners.values() if owner.waiting and owner.phase is Phase.OWNED]
        if not waiting or engine.session is None or not engine.outage.may_ask or engine.clock.now() < self._poll_at:
            return
        self._poll_at = engine.clock.now() + _POLL_S
        with engine.outage.asking():
            polls = [Poll(owner.name, owner.epoch, sorted(owner.waiting)) for owner in waiting]
            replies = engine.session.poll(polls)
            engine.outage.answered()
            for owner, reply in zip(waiting, replies, strict=True):
                if isinstance(reply, Polled):
                    self._resolve(owner, reply)
                else:
                    self.retake(owner)

    def _resolve(self, owner: Ownership, reply: Polled) -> None:
        engine = self._engine
        for offset in reply.done | reply.yours:
            owner.waiting.discard(offset)
            entry = owner.entries.get(offset)
            if offset in reply.done:
                owner.ledger.knows(offset)
                if entry is not None:
                    owner.suppressed += 1
                    engine.outcomes.hand_back(entry)
            elif entry is not None:
                engine.claiming.resume(entry)

    def _refresh(self) -> None:
        """Keep positions from expiring, and see whether a topic was deleted and made again under us."""
        engine = self._engine
        owners = [owner for owner in self.owners.values() if owner.phase is Phase.OWNED]
        if not owners or engine.session is None or not engine.outage.may_ask:
            return
        names: Mapping[Partition, str] = {}
        try:
            names = self.source.position_names(
                [owner.partition for owner in owners], Deadline(_REFRESH_LOOK_S, engine.clock)
            )
        except SourceError as error:  # also of a topic that is gone: the client tells of that in its own way
            engine.tell(SourceTrouble(error=str(error)))
        for owner in owners:
            if names.get(owner.partition, owner.name) != owner.name:
                engine.tell(LogWentBack(partition=owner.partition, offset=0, expected=owner.ledger.next))
                self.retake(owner)
        with engine.outage.asking():
            kept = [owner for owner in owners if owner.phase is Phase.OWNED]
            engine.session.mark([Mark(owner.name, owner.epoch, owner.ledger.watermark, ()) for owner in kept])
            engine.outage.answered()

    def _look_at_suspects(self) -> None:
        """A log that ends before what was read of it was cut, or made again: as if somebody had reset the group."""
        suspects = [owner for owner in self.owners.values() if owner.suspect is not None and owner.phase is Phase.OWNED]
        if not suspects or self._engine.clock.now() < self._suspects_at:
            return
        self._suspects_at = self._engine.clock.now() + _SUSPECTS_S
        ends = self.source.last_offsets(
            [owner.partition for owner in suspects], Deadline(_REFRESH_LOOK_S, self._engine.clock)
        )
        for owner in suspects:
            came, expected = owner.suspect or 0, owner.ledger.next
            owner.suspect = None
            if ends[owner.partition] < expected:
                self._engine.tell(LogWentBack(partition=owner.partition, offset=came, expected=expected))
                # Not above the watermark: below what came there may be records that wait or run.
                self._cuts[owner.partition] = min(came, owner.ledger.watermark)
                self.retake(owner)

    def _seek(self, owner: Ownership) -> None:
        try:
            self.source.seek(owner.partition, owner.ledger.next)
        except SourceUnavailable as error:
            # The client is not ready to: in the next turn. But not for ever, and not in silence.
            owner.seeks += 1
            if owner.seeks % _SEEKS_TOLD == 0:
                self._engine.tell(SourceTrouble(error=f"{owner.partition} stands still: {error}"))
            return
        owner.seeks = 0
        owner.seek_needed = False

    def _end(self, owner: Ownership) -> HandOver:
        """Nothing new starts, and what has not started is handed back."""
        path = HandOver(self._engine, self, [owner], Deadline(0.0, self._engine.clock))
        path.fence()
        path.hand_back()
        return path

    def _keep_alive(self) -> None:
        """Polls keep the membership while handlers drain; what they bring is not ours to handle any more."""
        try:
            self._engine.intake.apply(self.source, self.assigned, self.owners, stopped=True)
            self.source.poll(1, 0.0)
        except SourceError as error:
            self._engine.tell(SourceTrouble(error=str(error)))


def _mark(owner: Ownership, entries: Sequence[Entry]) -> Mark:
    offsets = {entry.record.offset for entry in entries}
    return Mark(owner.name, owner.epoch, owner.ledger.watermark_with(offsets), sorted(offsets))
