"""RocketMQ's queues by a client that pushes: it shares them out by itself, and says nothing of it (as PushSource).

It hands over batches, one record after the other, several batches at once. It commits what is answered of a queue. What
of a batch is not answered when it closes is sent back with the whole batch, and comes again by the group's retry topic.
Each member takes those for members that it has heard of lately: so two may read one queue for a while, and none.
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
#: How often a member shares out and commits; after how long of silence the others do so without it; and how long what
#: was sent back is hidden.
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
    """A group: its members as they hear of each other, and what they have sent back. Each call is one step."""

    def __init__(self, broker: RocketBroker, name: str) -> None:
        self.broker, self.name = broker, name
        #: When each member was heard last.
        self.heard: dict[str, float] = {}
        #: All that was ever sent back; what waits to be taken; what is not answered; and who has taken it.
        self.returned: list[Returned] = []
        self.waiting: deque[Returned] = deque()
        self.open: set[int] = set()
        self._taken: dict[int, str] = {}

    def members(self, now: float) -> list[str]:
        """In their order."""
        return sorted(name for name, at in self.heard.items() if now - at < _SILENT_S)

    def send_back(self, topic: str, stored: Stored, now: float) -> None:
        """Have a record come again, as another one."""
        record = Returned(len(self.returned), topic, stored, now + _BACK_S)
        self.returned.append(record)
        self.waiting.append(record)
        self.open.add(record.offset)

    def take(self, name: str, now: float) -> Returned | None:
        """The next one for that member, also of those that one has taken that is not heard any more."""
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
    """One queue, as one member reads it."""

    def __init__(self, queue: Partition, born: int, position: int) -> None:
        self.queue, self.born, self.position = queue, born, position
        self.unanswered: set[int] = set()

    @property
    def answered(self) -> int:
        """All below is."""
        return min(self.unanswered, default=self.position)


class _Batch:
    """A batch that one thread of the client hands over. `reading` is None: it came by the retry topic."""

    def __init__(self, reading: _Reading | None, records: Iterable[tuple[Record, Stored]]) -> None:
        self.reading, self.records = reading, list(records)
        #: So many were answered.
        self.done = 0
        self.is_out = False

    @property
    def next(self) -> Record:
        """The one that is handed over now."""
        return self.records[self.done][0]


class PushMember:
    """One member: a leased source with queues. All methods belong to one thread."""

    lease_s = 30.0
    queue_lease_wait_s = 1.0

    def __init__(self, group: PushGroup, name: str, runtime: Runtime) -> None:
        self.group, self.name = group.name, name
        self._of, self._broker, self._runtime = group, group.broker, runtime
        self._fence: Fence
        self._topics: frozenset[str] = frozenset()
        self._readings: dict[Partition, _Reading] = {}
        self._batches: list[_Batch] = []
        #: Which batches wait for a record that is with the engine; and what it gave back to have again.
        self._out: dict[tuple[Partition, int], list[_Batch]] = {}
        self._again: deque[Record] = deque()
        self._share_at = 0.0
        #: Others do not hear it until then, by the broker's clock.
        self.unheard_until = 0.0
        self._winding_up = False

    # ---- LeasedSource
    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Begin."""
        self._fence, self._topics = fence, frozenset(topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records that the client's threads call back with."""
        self._tend()
        found = self._take(max_records)
        if not found and timeout_s > 0:
            self._runtime.sleep(min(timeout_s, _IDLE_S))
            found = self._take(max_records)
        return Batch(found)

    def identity(self, record: Record) -> str:
        """UNIQ_KEY."""
        return (record.header(UNIQUE_KEY) or b"").decode()

    def extend(self, records: Sequence[Record]) -> None:
        """There is no lease to renew."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Answer records: their callbacks return, and the next ones of their batches come."""
        late = []
        for record in records:
            batches = self._out.pop((record.partition, record.offset), None)
            if batches is None:
                late.append(record)
            for batch in batches or ():
                self._answered(batch)
        return late

    def release(self, records: Iterable[Record]) -> None:
        """Have records delivered once more from here."""
        self._again.extend(each for each in records if (each.partition, each.offset) in self._out)

    def drain(self) -> None:
        """The client has been told by then."""

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
        """None: it came by the retry topic."""
        return None if record.partition.broker == RETRY else record.partition._replace(broker="a")

    def position_name(self, queue: Partition) -> str:
        """By broker and number."""
        return f"{self.group}/{queue.topic}/{queue.broker}/{queue.number}"

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """Where the log begins and ends. Raises SourceUnavailable."""
        own = queue._replace(broker="")
        log = self._broker.logs.get(own)
        if log is None:
            raise SourceUnavailable(f"{queue}: its topic is gone")
        return Seen(log.start, log.end, self._broker.offsets.get((self.group, own)), dense=True)

    # ---- BatchedSource
    def wind_up(self) -> None:
        """Nothing more is fetched; what has been begun is delivered on."""
        self._winding_up = True

    @property
    def wound_up(self) -> bool:
        """Whether nothing more will be delivered."""
        return not self._batches

    # ---- inside
    def _tend(self) -> None:
        """Be heard, share out, commit."""
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
        """A queue as it is read already, or from the group's offset on."""
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
                continue  # another log's: that has to leave first
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
                self._readings[queue] = self._readings.pop(queue)  # the others come first then

    def _record(self, partition: Partition, offset: int, stored: Stored) -> Record:
        return Record(partition, offset, stored.key, stored.value, stored.headers, -1, self._fence)

    def _answered(self, batch: _Batch) -> None:
        batch.done, batch.is_out = batch.done + 1, False
        if batch.done == len(batch.records):
            self._batches.remove(batch)
            self._over(batch)

    def _over(self, batch: _Batch) -> None:
        """All of it was answered, or sent back."""
        for record, _ in batch.records:
            if batch.reading is None:
                self._of.open.discard(record.offset)
            else:
                batch.reading.unanswered.discard(record.offset)
