"""RocketMQ's queues by a push client, as of PushSource: the clients assign queues by themselves and report nothing.

The client hands over batches, several at once, each record after record. It commits the answered offset of each queue.
A batch that is not fully answered when the client closes is sent back as a whole, and comes again by the group's retry
topic. Each client assigns queues among the members that it has heard of lately, so for a while two members may read one
queue, or none.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.push.client import RETRY
from holdfast.errors import SourceUnavailable
from holdfast.plugin.ports import Batch, Seen
from holdfast.records import Partition, Record
from tests.simulation.brokers.rocketmq_member import UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.records import Fence
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.logs import Stored
    from holdfast.timing import Deadline
    from tests.simulation.brokers.rocketmq import RocketBroker

_THREADS, _BATCH = 4, 32
#: Time between assignments and commits of a member; silence after which others assign without it; time until a record
#: that was sent back comes again.
_SHARE_S, _SILENT_S, _BACK_S = 0.3, 1.0, 0.5
#: How long a poll waits that finds nothing.
_IDLE_S = 0.02


class Returned(NamedTuple):
    """A record that was sent back, in the retry topic."""

    offset: int
    topic: str
    stored: Stored
    due: float


class PushGroup:
    """A group: when each member was heard, and the records that were sent back. Each call is one step."""

    def __init__(self, broker: RocketBroker, name: str) -> None:
        self.broker, self.name = broker, name
        #: Member -> time at which it was heard last.
        self.heard: dict[str, float] = {}
        #: All records ever sent back; those that wait; those taken and not answered, with the member that took them.
        self.returned: list[Returned] = []
        self.waiting: deque[Returned] = deque()
        self.open: set[int] = set()
        self._taken: dict[int, str] = {}

    def members(self, now: float) -> list[str]:
        """The members that were heard lately, in order."""
        return sorted(name for name, at in self.heard.items() if now - at < _SILENT_S)

    def send_back(self, topic: str, stored: Stored, now: float) -> None:
        """Send a record back: it comes again as a new record of the retry topic."""
        record = Returned(len(self.returned), topic, stored, now + _BACK_S)
        self.returned.append(record)
        self.waiting.append(record)
        self.open.add(record.offset)

    def take(self, name: str, now: float) -> Returned | None:
        """The next record for that member, also one that a member took which is silent now."""
        members = {*self.members(now), name}
        for offset in [offset for offset, by in self._taken.items() if by not in members]:
            del self._taken[offset]
            if offset in self.open:
                self.waiting.append(self.returned[offset])
        if not self.waiting or self.waiting[0].due > now:
            return None
        found = self.waiting.popleft()
        self._taken[found.offset] = name
        return found


class _Reading:
    """A queue that one member reads."""

    def __init__(self, queue: Partition, born: int, position: int) -> None:
        self.queue, self.born, self.position = queue, born, position
        self.unanswered: set[int] = set()

    @property
    def answered(self) -> int:
        """The offset below which all records are answered."""
        return min(self.unanswered, default=self.position)


class _Batch:
    """A batch that one thread of the client hands over. `reading` None = it came by the retry topic."""

    def __init__(self, reading: _Reading | None, records: Iterable[tuple[Record, Stored]]) -> None:
        self.reading, self.records = reading, list(records)
        #: The number of answered records.
        self.done = 0
        self.is_out = False

    @property
    def next(self) -> Record:
        """The record that is handed over now."""
        return self.records[self.done][0]


class PushMember:
    """One member: a leased source with queues. One thread calls all methods."""

    lease_s = 30.0
    queue_lease_wait_s = 1.0

    def __init__(self, group: PushGroup, name: str, runtime: Runtime) -> None:
        self.group, self.name = group.name, name
        self._of, self._broker, self._runtime = group, group.broker, runtime
        self._fence: Fence
        self._topics: frozenset[str] = frozenset()
        self._readings: dict[Partition, _Reading] = {}
        self._batches: list[_Batch] = []
        #: (queue, offset) of a record with the engine -> batches that wait for it; and records that the engine gave
        #: back.
        self._out: dict[tuple[Partition, int], list[_Batch]] = {}
        self._again: deque[Record] = deque()
        self._share_at = 0.0
        #: Other members do not hear it until this time of the broker's clock.
        self.unheard_until = 0.0
        self._winding_up = False

    # ---- LeasedSource
    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Begin."""
        self._fence, self._topics = fence, frozenset(topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return the records that the client's threads hand over."""
        self._tend()
        found = self._take(max_records)
        if not found and timeout_s > 0:
            self._runtime.sleep(min(timeout_s, _IDLE_S))
            found = self._take(max_records)
        return Batch(found)

    def identity(self, record: Record) -> str:
        """The message's UNIQ_KEY."""
        return (record.header(UNIQUE_KEY) or b"").decode()

    def extend(self, records: Sequence[Record]) -> None:
        """There is no lease to renew."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Answer records: their callbacks return, and the next records of their batches are handed over."""
        late = []
        for record in records:
            batches = self._out.pop((record.partition, record.offset), None)
            if batches is None:
                late.append(record)
            for batch in batches or ():
                self._answered(batch)
        return late

    def release(self, records: Iterable[Record]) -> None:
        """Have this member deliver records once more."""
        self._again.extend(each for each in records if (each.partition, each.offset) in self._out)

    def drain(self) -> None:
        """Nothing to do: `wind_up` has told the client."""

    def close(self, deadline: Deadline) -> None:
        """Leave: each record without an answer goes back, with its whole batch."""
        now = self._broker.runtime.now()
        for batch in self._batches:
            for record, stored in batch.records:
                self._of.send_back(record.topic, stored, now)
            self._over(batch)
        self._batches.clear()
        self._commit()
        self._of.heard.pop(self.name, None)

    # ---- QueueLeasedSource
    def queue(self, record: Record) -> Partition | None:
        """The record's queue; None = it came by the retry topic."""
        return None if record.partition.broker == RETRY else record.partition._replace(broker="a")

    def position_name(self, queue: Partition) -> str:
        """The position's name, of broker and queue number."""
        return f"{self.group}/{queue.topic}/{queue.broker}/{queue.number}"

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """The log's bounds. Raises SourceUnavailable."""
        own = queue._replace(broker="")
        log = self._broker.logs.get(own)
        if log is None:
            raise SourceUnavailable(f"{queue}: its topic is gone")
        return Seen(log.start, log.end, self._broker.offsets.get((self.group, own)), dense=True)

    # ---- BatchedSource
    def wind_up(self) -> None:
        """Fetch nothing more; batches that have begun are handed over to their end."""
        self._winding_up = True

    @property
    def wound_up(self) -> bool:
        """Whether nothing more will be handed over."""
        return not self._batches

    # ---- inside
    def _tend(self) -> None:
        """Send a heartbeat, assign queues, commit."""
        now = self._broker.settle()
        if now >= self.unheard_until:
            self._of.heard[self.name] = now
        if now < self._share_at or self._winding_up:
            return
        self._share_at = now + _SHARE_S
        self._commit()
        members = sorted({*self._of.members(now), self.name})
        queues = sorted(each for each in self._broker.logs if each.topic in self._topics)
        own = queues[members.index(self.name) :: len(members)]
        self._readings = {queue: self._reading(queue) for queue in own}

    def _reading(self, queue: Partition) -> _Reading:
        """The reading of a queue; a new one begins at the group's offset."""
        reading, log = self._readings.get(queue), self._broker.logs[queue]
        if reading is not None and reading.born == log.born:
            return reading
        committed = self._broker.offsets.get((self.group, queue), log.start)
        return _Reading(queue, log.born, committed if log.start <= committed <= log.end else log.start)

    def _commit(self) -> None:
        with self._broker.changed:
            for queue, reading in self._readings.items():
                log = self._broker.logs.get(queue)
                if log is not None and log.born == reading.born:
                    self._broker.commit(self.group, queue, reading.answered, self)

    def _take(self, at_most: int) -> list[Record]:
        found: list[Record] = []
        while self._again and len(found) < at_most:
            found.append(self._again.popleft())
        if not self._winding_up:
            self._fetch()
        for batch in self._batches:
            if batch.is_out or len(found) >= at_most:
                continue
            record = batch.next
            waiting = self._out.setdefault((record.partition, record.offset), [])
            if waiting and self.identity(waiting[0].next) != self.identity(record):
                continue  # records of the former log must be answered first
            waiting.append(batch)
            batch.is_out = True
            if len(waiting) == 1:
                found.append(record)
        return found

    def _fetch(self) -> None:
        now = self._broker.runtime.now()
        while len(self._batches) < _THREADS and (back := self._of.take(self.name, now)) is not None:
            record = self._record(Partition(back.topic, 0, RETRY), back.offset, back.stored)
            self._batches.append(_Batch(None, [(record, back.stored)]))
        for queue, reading in list(self._readings.items()):
            log = self._broker.logs.get(queue)
            if len(self._batches) >= _THREADS:
                break
            if log is None or log.born != reading.born:
                continue
            offsets = log.from_(reading.position, _BATCH)
            if offsets:
                reading.unanswered.update(offsets)
                reading.position = offsets[-1] + 1
                some = [(self._record(queue, each, log.records[each]), log.records[each]) for each in offsets]
                self._batches.append(_Batch(reading, some))
                self._readings[queue] = self._readings.pop(queue)  # the other queues come first the next time

    def _record(self, partition: Partition, offset: int, stored: Stored) -> Record:
        return Record(partition, offset, stored.key, stored.value, stored.headers, -1, self._fence)

    def _answered(self, batch: _Batch) -> None:
        batch.done, batch.is_out = batch.done + 1, False
        if batch.done == len(batch.records):
            self._batches.remove(batch)
            self._over(batch)

    def _over(self, batch: _Batch) -> None:
        """Drop a batch that was answered or sent back."""
        for record, _ in batch.records:
            if batch.reading is None:
                self._of.open.discard(record.offset)
            else:
                batch.reading.unanswered.discard(record.offset)
