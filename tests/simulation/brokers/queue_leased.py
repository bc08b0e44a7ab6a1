"""A leased source whose queues move between members without a report. The test says what it delivers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable
from holdfast.plugin.ports import Batch, Seen
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.records import Fence
    from holdfast.runtime import Condition
    from holdfast.timing import Deadline


class Log:
    """The bounds of each queue's log, as the broker reports them."""

    def __init__(self, *, first: int = 0, end: int = 1_000, committed: int | None = None) -> None:
        self.first, self.end, self.committed = first, end, committed
        self.dense = True
        self.brokers = {"a"}
        self.answers = True


class QueueLeasedMember:
    """One member. A record's value is its offset."""

    lease_s = 10.0
    group = "g"

    def __init__(self, log: Log, changed: Condition, *, patience_s: float, ids: str) -> None:
        self.log, self.changed, self.queue_lease_wait_s, self._ids = log, changed, patience_s, ids
        self.acked: list[int] = []
        self._new: deque[Record] = deque()
        self._fence: Fence
        self.wound_up = False

    def deliver(self, *offsets: int, number: int = 0) -> None:
        """Have the next poll return these records."""
        with self.changed:
            for offset in offsets:
                value = str(offset).encode()
                self._new.append(Record(Partition("jobs", number), offset, None, value, (), -1, self._fence))
            self.changed.notify_all()

    # ---- LeasedSource
    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Begin."""
        self._fence = fence

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return the records of `deliver`."""
        with self.changed:
            if not self._new and timeout_s > 0:
                self.changed.wait(min(timeout_s, 0.01))
            return Batch([self._new.popleft() for _ in range(min(max_records, len(self._new)))])

    def identity(self, record: Record) -> str:
        """The offset, as text."""
        return f"{self._ids}{record.offset}"

    def extend(self, records: Sequence[Record]) -> None:
        """Nothing to do: no lease ends."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Acknowledge records that are done."""
        with self.changed:
            self.acked += [record.offset for record in records]
            self.changed.notify_all()
        return ()

    def release(self, records: Iterable[Record]) -> None:
        """Give records back: they come again."""
        with self.changed:
            self._new.extend(records)

    def drain(self) -> None:
        """The app is leaving."""

    def close(self, deadline: Deadline) -> None:
        """The end."""

    # ---- QueueLeasedSource
    def queue(self, record: Record) -> Partition | None:
        """The record's queue; None = two brokers have a queue of that number."""
        if len(self.log.brokers) > 1:
            return None
        return record.partition._replace(broker=min(self.log.brokers))

    def position_name(self, queue: Partition) -> str:
        """The position's name, of broker and queue number."""
        return f"p/{queue.broker}/{queue.number}"

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """The bounds of the queue's log."""
        if not self.log.answers:
            raise SourceUnavailable("a test said so")
        return Seen(self.log.first, self.log.end, self.log.committed, self.log.dense)
