"""The leased family: no partitions are owned; each record has a lease at the broker and is acknowledged alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import SourceError
from holdfast.plugin.events import Overrun, SourceTrouble
from holdfast.plugin.lanes import Gate
from holdfast.plugin.ledger import Ledger
from holdfast.plugin.ownership import Ownership, Phase
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.plugin.lanes import Entry
    from holdfast.plugin.loop import Engine
    from holdfast.plugin.ports import Batch, End, LeasedSource
    from holdfast.records import Partition, Record

_CLOSE_S = 10.0
_PATIENCE_S = 300.0


class _SessionFence:
    """What the records of a leased source carry: the session alone, since nothing is owned."""

    epoch = 0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def session(self) -> str:
        return self._engine.session.id if self._engine.session else ""

    @property
    def cancelled(self) -> bool:
        session = self._engine.session
        return session is None or not session.live()


class Leased:
    """Drives a LeasedSource: dedup by key or by the message's identity, renewal, acknowledgement. One thread."""

    def __init__(self, engine: Engine, source: LeasedSource) -> None:
        self._engine, self.source = engine, source
        engine.intake.can_pause = False
        self._owners: dict[Partition, Ownership] = {}
        #: Of sessions that were lost: their handlers may still run, and hold their records' leases until they end.
        self._former: list[Ownership] = []
        self._extend_at = 0.0
        self._left = False

    @property
    def lease_s(self) -> float | None:
        """Who takes a record over at the broker asks the store next: that lease should not be the longer one."""
        return self.source.lease_s

    @property
    def patience_s(self) -> float:
        """A leased source knows no polls that must come; five minutes, as Kafka's default."""
        return _PATIENCE_S

    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Begin to receive. Raises SourceError."""
        self.source.open(topics, _SessionFence(self._engine), deadline)

    def subscribe(self, topics: Collection[str]) -> None:
        """Raises SourceError: a leased source is subscribed once."""
        raise SourceError(
            f"this source cannot change its subscription to {sorted(topics)} while it runs: start it anew"
        )

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records. Raises SourceError."""
        return self.source.poll(max_records, timeout_s)

    def reached(self, ends: Sequence[End]) -> None:
        """A leased source has no positions."""

    def admit(self, record: Record) -> Ownership | None:
        """Any record may be handled here, unless it is in the process already: its lease had run out meanwhile."""
        session = self._engine.session
        if session is None or self._engine.stopping:
            return None
        owner = self._owners.get(record.partition)
        if owner is None:
            owner = self._owners[record.partition] = Ownership(record.partition, session)
            owner.name = str(record.partition)
            owner.own(Ledger(0))  # nothing is in order here: no watermark is asked for
        return None if record.offset in owner.entries else owner

    def default_key(self, record: Record) -> str | None:
        """There is no position, so the message's identity is claimed."""
        return self.source.identity(record)

    def settle(self, entries: Sequence[Entry]) -> None:
        """Acknowledge. A record whose lease had ended comes again, and its claim says that it is done."""
        late = set(map(id, self.source.acknowledge([entry.record for entry in entries])))
        if late:
            self._engine.tell(SourceTrouble(error=f"{len(late)} acknowledgements came after their lease had ended"))
        for entry in entries:
            entry.owner.entries.pop(entry.record.offset, None)
            entry.gate = Gate.GONE
            self._engine.intake.left(entry)

    def given_up(self, entry: Entry) -> None:
        """Give the record back, so that another need not wait for its lease to end."""
        try:
            self.source.release([entry.record])
        except SourceError as error:  # best effort: the lease ends by itself
            self._engine.tell(SourceTrouble(error=str(error)))

    def tend(self) -> None:
        """Renew the leases of all that is in the process, each third of a lease."""
        now = self._engine.clock.now()
        if now < self._extend_at:
            return
        self._extend_at = now + self.source.lease_s / 3
        self._former = [owner for owner in self._former if owner.entries]
        owners = [*self._owners.values(), *self._former]
        records = [entry.record for owner in owners for entry in owner.entries.values()]
        if records:
            try:
                self.source.extend(records)
            except SourceError as error:
                self._engine.tell(SourceTrouble(error=str(error)))

    def session_lost(self) -> None:
        """What has not started is given back; what runs may finish under its old session."""
        self._fence()
        for owner in self._owners.values():
            owner.move(Phase.GONE)
        self._former.extend(self._owners.values())
        self._owners.clear()

    def leave(self, deadline: Deadline) -> None:
        """Fence, give back, drain, acknowledge, leave."""
        self._fence()

        def over() -> bool:
            self.tend()
            return not any(entry.started for owner in self._owners.values() for entry in owner.entries.values())

        self._engine.work_until(over, deadline)
        self._engine.collect()
        self._engine.settle()
        for owner in self._owners.values():
            for offset, entry in owner.entries.items():
                if entry.gate is Gate.TAKEN and entry.started:
                    self._engine.tell(Overrun(partition=owner.partition, offset=offset))

    def close(self) -> None:
        """Close the client. Idempotent. Not before the linger: what still runs has to be acknowledged."""
        if not self._left:
            self._left = True
            self.source.close(Deadline(_CLOSE_S, self._engine.clock))

    def _fence(self) -> None:
        for owner in self._owners.values():
            if owner.phase < Phase.FENCED:  # a session may be lost on the way out
                owner.move(Phase.FENCED)
            for entry in list(owner.entries.values()):
                if entry.gate not in (Gate.TAKEN, Gate.ENDED):
                    self._engine.outcomes.hand_back(entry)
