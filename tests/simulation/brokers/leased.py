"""A queue in memory whose messages have a lease each, and a leased source on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from holdfast.errors import RecordUnreadable, SourceUnavailable
from holdfast.plugin.ports import Batch
from holdfast.records import Partition, Record
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.records import Fence
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline


@dataclass(slots=True)
class Message:
    """A message at the broker."""

    number: int
    value: bytes
    #: None = the partition of the source that receives it.
    partition: Partition | None = None
    key: bytes | None = None
    #: The client cannot read it.
    spoilt: bool = False
    visible_at: float = 0.0
    #: The number of its last delivery, which alone may acknowledge it.
    receipt: int | None = None
    #: The member that received it last.
    holder: object = None
    deliveries: int = 0
    done: bool = False


class MemoryQueue:
    """The broker's side. A message is hidden while its lease lasts, and delivered again after it. Any thread.

    Args:
        lease_s: the time of a lease.
        runtime: of the machine that it runs on.
    """

    def __init__(self, lease_s: float = 30.0, *, runtime: Runtime = MACHINE) -> None:
        self.lease_s = lease_s
        self.runtime = runtime
        self.changed = runtime.condition()
        self.messages: list[Message] = []
        #: Messages without an acknowledgement, in order; and receipt -> delivered message.
        self._open: dict[int, Message] = {}
        self._delivered: dict[int, Message] = {}
        self._receipts = count()
        self._ahead = 0.0

    def now(self) -> float:
        """Seconds of the broker's clock. Call it before taking `changed`: reading a clock may wait."""
        return self.runtime.now() + self._ahead

    def put(self, *values: str) -> None:
        """Store one message for each value."""
        for value in values:
            self.store(value)

    def store(
        self, value: str, partition: Partition | None = None, *, key: str | None = None, spoilt: bool = False
    ) -> Message:
        """Store one."""
        with self.changed:
            key_bytes = None if key is None else key.encode()
            message = Message(len(self.messages), value.encode(), partition, key_bytes, spoilt)
            self.messages.append(message)
            self._open[message.number] = message
            self.changed.notify_all()
            return message

    def pass_time(self, seconds: float) -> None:
        """The broker's clock jumps ahead."""
        with self.changed:
            self._ahead += seconds
            self.changed.notify_all()

    @property
    def open(self) -> list[str]:
        """The messages that are not acknowledged."""
        with self.changed:
            return [message.value.decode() for message in self._open.values()]

    def receive(self, at_most: int, now: float, holder: object = None) -> list[tuple[int, Message]]:
        """Deliver visible messages, each with a new receipt. Called with the lock."""
        found = list(islice((each for each in self._open.values() if each.visible_at <= now), at_most))
        for message in found:
            self.delivered(message, holder)
            message.visible_at = now + self.lease_s
            message.receipt, message.holder = next(self._receipts), holder
            self._delivered[message.receipt] = message
            message.deliveries += 1
        return [(message.receipt, message) for message in found if message.receipt is not None]

    def quiet_s(self, now: float, at_most: float) -> float:
        """Seconds until the next lease ends. Called with the lock."""
        return min([at_most, *(each.visible_at - now for each in self._open.values())])

    def of(self, receipt: int) -> Message:
        """The message of a receipt. Raises KeyError: no such receipt."""
        return self._delivered[receipt]

    def held(self, receipt: int, now: float) -> Message | None:
        """The message, while that delivery's lease lasts. Called with the lock."""
        found = self._delivered.get(receipt)
        still = found is not None and found.receipt == receipt and not found.done and found.visible_at > now
        return found if still else None

    def acknowledge(self, message: Message, holder: object) -> None:
        """Acknowledge a message. Called with the lock."""
        message.done = True
        del self._open[message.number]
        self.acknowledged(message, holder)

    def end_leases(self, holder: object) -> None:
        """End the leases of that member: its messages are visible again at once."""
        now = self.now()
        with self.changed:
            for message in self._open.values():
                if message.holder is holder:
                    message.visible_at = min(message.visible_at, now)
            self.changed.notify_all()

    # ---- for judges; called with the lock
    def delivered(self, message: Message, holder: object) -> None:
        """A message is about to be delivered to that member; `message` has its former holder still."""

    def acknowledged(self, message: Message, holder: object) -> None:
        """A member acknowledges a message."""


class MemoryLeasedSource:
    """One member. One thread calls all methods but `extend`."""

    def __init__(self, queue: MemoryQueue, group: str = "g", *, topic: str = "jobs") -> None:
        self.queue, self.group, self._partition = queue, group, Partition(topic, 0)
        self.extends = 0
        self.late = 0
        self.released = 0
        self.closed = False
        self.drained = False
        #: Method -> errors that its next calls raise.
        self.faults: dict[str, list[Exception]] = {}
        self._extending = False
        self._fence: Fence

    def go_away(self, method: str, times: int = 1) -> None:
        """Have the next calls of that method get no answer."""
        self.faults[method] = [SourceUnavailable(f"{method}: a test said so") for _ in range(times)]

    def _check(self, method: str) -> None:
        if self.faults.get(method):
            raise self.faults[method].pop(0)

    # ---- LeasedSource
    @property
    def lease_s(self) -> float:
        """The queue's time of a lease."""
        return self.queue.lease_s

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Begin."""
        self._fence = fence

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return visible messages. A record's offset is its receipt."""
        self._check("poll")
        now = self.queue.now()
        with self.queue.changed:
            found = self.queue.receive(max_records, now, self)
            if not found and timeout_s > 0:
                self.queue.changed.wait(self.queue.quiet_s(now, timeout_s))
        if not found:
            now = self.queue.now()
            with self.queue.changed:
                found = self.queue.receive(max_records, now, self)
        records = [self._record(receipt, message) for receipt, message in found]
        unreadable = {
            (record.partition, record.offset): RecordUnreadable(f"message {message.number} cannot be read")
            for record, (_, message) in zip(records, found, strict=True)
            if message.spoilt
        }
        return Batch(records, unreadable=unreadable) if unreadable else Batch(records)

    def _record(self, receipt: int, message: Message) -> Record:
        partition = message.partition or self._partition
        key = b"%d" % message.number if message.partition is None else message.key
        return Record(partition, receipt, key, message.value, (), -1, self._fence)

    def identity(self, record: Record) -> str:
        """The message's number."""
        return str(self.queue.of(record.offset).number)

    def extend(self, records: Sequence[Record]) -> None:
        """Renew leases. Two calls at once are an error of the engine."""
        if self._extending:
            raise AssertionError("two renewals at once")
        self._extending = True
        try:
            self._check("extend")
            now = self.queue.now()
            with self.queue.changed:
                for record in records:
                    message = self.queue.held(record.offset, now)
                    if message is not None:
                        message.visible_at = now + self.lease_s
                self.extends += 1
                self.queue.changed.notify_all()
        finally:
            self._extending = False

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Acknowledge records. Returns: the records whose lease has ended."""
        self._check("acknowledge")
        now, late = self.queue.now(), []
        with self.queue.changed:
            for record in records:
                message = self.queue.held(record.offset, now)
                if message is None:
                    late.append(record)
                else:
                    self.queue.acknowledge(message, self)
            self.late += len(late)
            self.queue.changed.notify_all()
            return late

    def release(self, records: Iterable[Record]) -> None:
        """Make these records visible again."""
        self._check("release")
        now = self.queue.now()
        with self.queue.changed:
            for record in records:
                message = self.queue.held(record.offset, now)
                if message is not None:
                    message.visible_at = now
                    self.released += 1
            self.queue.changed.notify_all()

    def drain(self) -> None:
        """The app is leaving."""
        self.drained = True
        self._check("drain")

    def close(self, deadline: Deadline) -> None:
        """The end."""
        self.closed = True
        self._check("close")
