"""The leased family: members own no partitions; each record has a lease at the broker and is acknowledged alone.

On the way out, and when its session is lost, a leased source takes back what no worker has begun (`Workers.recall`): a
lease is not to wait for the slow handler before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.keys import key_text
from holdfast.errors import SourceError
from holdfast.plugin.engine.family import Family, Loop
from holdfast.plugin.engine.leased.queue_leases import QueueLeases
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.engine.record.attempts import Ended, Outcome
from holdfast.plugin.engine.record.entry import UNSTARTED, EntryState
from holdfast.plugin.events import Overrun, SourceTrouble
from holdfast.plugin.observe.snapshot import SourceFigures
from holdfast.plugin.observe.source_state import KnowsMembership, member_name_of
from holdfast.plugin.ports import BatchedSource, FixedLeaseSource, QueueLeasedSource
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.sessions import Sessions
    from holdfast.plugin.ports import Batch, LeasedSource
    from holdfast.records import Partition, Record

_CLOSE_S = 10.0
_PATIENCE_S = 300.0
#: The time between two looks at leases that cannot be renewed.
_LOOK_S = 0.05


class _SessionFence:
    """The fence of a leased source's records: the session alone, since nothing is owned."""

    epoch = 0

    def __init__(self, sessions: Sessions, family: Leased) -> None:
        self._sessions, self._family = sessions, family

    @property
    def session(self) -> str:
        return self._sessions.session.id if self._sessions.session else ""

    @property
    def cancelled(self) -> bool:
        session = self._sessions.session
        return session is None or not session.live()

    def overdue(self, record: Record) -> bool:
        return self._family.overdue(record)


class TurningLoop(Loop, Protocol):
    """A loop that can be asked for a whole turn of its own."""

    def turn(self) -> None:
        """One round: the whole way of records, once."""
        ...


class Leased(Family):
    """Drives a LeasedSource: dedup by key or by the message's identity, renewal, acknowledgement. One thread."""

    source: LeasedSource

    def __init__(self, parts: Parts, loop: TurningLoop, source: LeasedSource) -> None:
        self._parts, self._loop, self.source = parts, loop, source
        parts.intake.can_pause = False
        self._owners: dict[Partition, Ownership] = {}
        #: Ownerships of lost sessions: their handlers may still run, and hold their records' leases until they end.
        self._former: list[Ownership] = []
        self._extend_at = self._look_at = 0.0
        self._fixed = source if isinstance(source, FixedLeaseSource) else None
        self._queue_leases: QueueLeases | None = None
        if isinstance(source, QueueLeasedSource) and not parts.sessions.storeless:
            self._queue_leases = QueueLeases(
                source, sessions=parts.sessions, outage=parts.outage, clock=parts.runtime, tell=parts.tell
            )
        #: On the way out, while the client hands over the rest of what it has begun.
        self._winding_up = False
        self._left = False

    @property
    def owners(self) -> Mapping[Partition, Ownership]:
        """The ownerships under the current session."""
        return self._owners

    @property
    def lease_s(self) -> float | None:
        """The broker's lease. Who takes a record over at the broker asks the store next: that lease should not be the
        longer one."""
        return self.source.lease_s

    @property
    def patience_s(self) -> float:
        """A leased source knows no polls that must come; five minutes, as Kafka's default."""
        return _PATIENCE_S

    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Begin to receive. Raises SourceError."""
        self.source.open(topics, _SessionFence(self._parts.sessions, self), deadline)
        self._parts.intake.ramp_up()

    def overdue(self, record: Record) -> bool:
        """Whether the record's handler runs for longer than it may. Any thread."""
        owner = self._owners.get(record.partition)
        return any(
            each.overdue(record) for each in (owner, *self._former) if each and each.partition == record.partition
        )

    def subscribe(self, topics: Collection[str]) -> None:
        """Raises SourceError: a leased source is subscribed once."""
        raise SourceError(
            f"this source cannot change its subscription to {sorted(topics)} while it runs: start it anew"
        )

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records. Raises SourceError."""
        return self.source.poll(max_records, timeout_s)

    def admit(self, records: Sequence[Record]) -> Iterator[tuple[Ownership, Sequence[Record]]]:
        """Any record may be handled here, unless it is in the process already: its lease had run out meanwhile."""
        for record in records if self._queue_leases is None else self._queue_leases.sift(records):
            owner = self._admit(record)
            if owner is None:
                self._give_back(record)
            elif record.offset not in owner.entries:
                if self._queue_leases is not None:
                    self._queue_leases.entered(record)
                yield owner, (record,)

    def _admit(self, record: Record) -> Ownership | None:
        session = self._parts.sessions.session
        if session is None or (self._parts.stopping.begun and not self._winding_up):
            return None
        owner = self._owners.get(record.partition)
        if owner is None:
            owner = self._owners[record.partition] = Ownership(record.partition, session, runtime=self._parts.runtime)
            owner.name = str(record.partition)
            owner.own(Ledger(0))  # nothing is in order here: no watermark is asked for
        return owner

    def default_key(self, record: Record) -> str | None:
        """There is no position, so the message's identity is claimed."""
        return key_text(self.source.identity(record))

    def refusal(self, record: Record) -> Exception | None:
        """See `FixedLeaseSource`."""
        return None if self._fixed is None else self._fixed.refusal(record)

    def settle(self, entries: Sequence[Entry]) -> None:
        """Acknowledge. A record whose lease had ended comes again, and its claim says that it is done."""
        if self._queue_leases is not None:
            self._queue_leases.done(entries)
        late = set(map(id, self.source.acknowledge([entry.record for entry in entries])))
        if late:
            self._parts.tell(SourceTrouble(error=f"{len(late)} acknowledgements came after their lease had ended"))
        for entry in entries:
            entry.owner.entries.pop(entry.record.offset, None)
            entry.state = EntryState.GONE
            self._parts.intake.left(entry)
            if self._queue_leases is not None:
                self._queue_leases.left(entry.record)

    def given_up(self, entry: Entry) -> None:
        """Give the record back, so that another need not wait for its lease to end."""
        if self._queue_leases is not None:
            self._queue_leases.left(entry.record)
        self._give_back(entry.record)

    def _give_back(self, record: Record) -> None:
        try:
            self.source.release([record])
        except SourceError as error:  # best effort: the lease ends by itself
            self._parts.tell(SourceTrouble(error=str(error)))

    def tend(self) -> None:
        """Renew the leases of all that is in the process, each third of a lease."""
        self._parts.intake.look_at_ramp(lag=None, produced_per_s=None)
        now = self._parts.runtime.now()
        if self._fixed is not None and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._end_leases(self._fixed)
        if now < self._extend_at:
            return
        self._extend_at = now + self.source.lease_s / 3
        self._former = [owner for owner in self._former if owner.entries]
        owners = [*self._owners.values(), *self._former]
        records = [entry.record for owner in owners for entry in owner.entries.values()]
        try:
            self.source.extend(records)
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))

    def _end_leases(self, source: FixedLeaseSource) -> None:
        """Give back what cannot start and end within its lease any more. What has failed, and would come again only to
        be refused, is a dead letter now, while its error is known."""
        grace_s, outcomes = self._parts.settings.handler_grace_s, self._parts.outcomes
        for owner in self._owners.values():
            for entry in list(owner.entries.values()):
                if entry.state not in UNSTARTED or entry.letter is not None:
                    continue
                timeout_s = entry.handler.timeout_s
                needs_s = source.spare_s + (0.0 if timeout_s is None else timeout_s + grace_s)
                if source.left_s(entry.record) >= needs_s:
                    continue
                last = source.deliveries_left(entry.record) <= 1
                if not (last and outcomes.no_more_attempts(entry)):
                    outcomes.hand_back(entry)

    def figures(self) -> SourceFigures:
        """A leased source has neither positions nor commits."""
        in_group = self.source.in_group if isinstance(self.source, KnowsMembership) else True
        return SourceFigures(in_group=in_group, member=member_name_of(self.source))

    def session_lost(self) -> None:
        """Give back what has not started; what runs may finish under its old session."""
        self._fence()
        for owner in self._owners.values():
            owner.move(Phase.GONE)
        self._former.extend(self._owners.values())
        self._owners.clear()
        if self._queue_leases is not None:
            self._queue_leases.session_lost()

    def leave(self, deadline: Deadline) -> None:
        """Fence, give back, drain, acknowledge, leave."""
        self._wind_up(Deadline(deadline.left_s() / 2, self._parts.runtime))
        self._fence()
        try:
            self.source.drain()
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))

        def over() -> bool:
            self.tend()
            return not any(
                entry.started and entry.state is not EntryState.STUCK
                for owner in self._owners.values()
                for entry in owner.entries.values()
            )

        self._loop.work_until(over, deadline)
        self._loop.collect()
        self._loop.settle()
        for owner in self._owners.values():
            for offset, entry in owner.entries.items():
                if entry.state is EntryState.STUCK or (entry.state is EntryState.TAKEN and entry.started):
                    self._parts.tell(Overrun(partition=owner.partition, offset=offset))
        if self._queue_leases is not None:
            self._queue_leases.leave()

    def _wind_up(self, deadline: Deadline) -> None:
        """Take the rest of what the client has begun to hand over: given back, all of it would come again, and late."""
        parts, source = self._parts, self.source
        if not isinstance(source, BatchedSource):
            return
        source.wind_up()
        self._winding_up = True
        # A record that failed for good, a store that is away, an event loop that ends: that batch comes to no end.
        while parts.stopping.error is None and parts.sessions.session is not None and not parts.stopping.hurry:
            if source.wound_up or deadline.passed or parts.workers.home_ends:
                break
            self._loop.turn()
        self._winding_up = False

    def close(self) -> None:
        """Close the client. Idempotent. Not before the linger: what still runs has to be acknowledged."""
        if not self._left:
            self._left = True
            self.source.close(Deadline(_CLOSE_S, self._parts.runtime))

    def _fence(self) -> None:
        for owner in self._owners.values():
            if owner.phase < Phase.FENCED:  # a session may be lost on the way out
                owner.move(Phase.FENCED)
            for entry in list(owner.entries.values()):
                if entry.state not in (EntryState.TAKEN, EntryState.STUCK, EntryState.ENDED):
                    self._parts.outcomes.hand_back(entry)
        for entry in self._parts.workers.recall():  # their lease is not to wait for handlers that run
            self._parts.outcomes.came_back(Ended(entry, Outcome.NOT_STARTED))
