"""A queue in memory whose messages have a lease each, and a leased source on it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from holdfast.errors import SourceUnavailable
from holdfast.plugin.ports import Batch
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.records import Fence
    from holdfast.timing import Deadline


class HandClock:
    """Seconds that pass when a test says so. Any thread."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@dataclass(slots=True)
class Message:
    number: int
    value: bytes
    visible_at: float = 0.0
    #: The delivery that may acknowledge it: each has a number of its own.
    receipt: int | None = None
    deliveries: int = 0
    done: bool = False


class MemoryQueue:
    """The broker's side. A message is hidden while its lease lasts, and comes again after it. Any thread."""

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.clock = HandClock()
        self.changed = threading.Condition(threading.RLock())
        self.messages: list[Message] = []
        self._receipts = count()

    def put(self, *values: str) -> None:
        with self.changed:
            self.messages += [Message(len(self.messages) + n, value.encode()) for n, value in enumerate(values)]
            self.changed.notify_all()

    def pass_time(self, seconds: float) -> None:
        with self.changed:
            self.clock.sleep(seconds)
            self.changed.notify_all()

    @property
    def open(self) -> list[str]:
        """What is not acknowledged."""
        with self.changed:
            return [message.value.decode() for message in self.messages if not message.done]

    def receive(self, at_most: int) -> list[tuple[int, Message]]:
        now = self.clock.now()
        found = [each for each in self.messages if not each.done and each.visible_at <= now][:at_most]
        for message in found:
            message.visible_at = now + self.lease_s
            message.receipt = next(self._receipts)
            message.deliveries += 1
        return [(message.receipt, message) for message in found if message.receipt is not None]

    def held(self, receipt: int) -> Message | None:
        """The message, while that delivery's lease lasts."""
        return next(
            (
                each
                for each in self.messages
                if each.receipt == receipt and not each.done and each.visible_at > self.clock.now()
            ),
            None,
        )


class MemoryLeasedSource:
    """One member. All methods belong to one thread."""

    def __init__(self, queue: MemoryQueue, group: str = "g", *, topic: str = "jobs") -> None:
        self.queue, self.group, self._partition = queue, group, Partition(topic, 0)
        self.extends = 0
        self.late = 0
        self.released = 0
        self.closed = False
        self.drained = False
        #: Raised by the next calls of that name.
        self.faults: dict[str, list[Exception]] = {}
        self._numbers: dict[int, int] = {}
        self._extending = threading.Lock()
        self._fence: Fence

    def _check(self, method: str) -> None:
        if self.faults.get(method):
            raise self.faults[method].pop(0)

    # ---- LeasedSource
    @property
    def lease_s(self) -> float:
        return self.queue.lease_s

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        self._fence = fence

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        self._check("poll")
        with self.queue.changed:
            found = self.queue.receive(max_records)
            if not found and timeout_s > 0:
                self.queue.changed.wait(timeout_s)
                found = self.queue.receive(max_records)
            self._numbers.update({receipt: message.number for receipt, message in found})
            return Batch(
                [
                    Record(self._partition, receipt, b"%d" % message.number, message.value, (), -1, self._fence)
                    for receipt, message in found
                ]
            )

    def identity(self, record: Record) -> str:
        return str(self._numbers[record.offset])

    def extend(self, records: Sequence[Record]) -> None:
        if not self._extending.acquire(blocking=False):
            raise AssertionError("two renewals at once")
        try:
            self._check("extend")
            with self.queue.changed:
                for record in records:
                    message = self.queue.held(record.offset)
                    if message is not None:
                        message.visible_at = self.queue.clock.now() + self.lease_s
                self.extends += 1
                self.queue.changed.notify_all()
        finally:
            self._extending.release()

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        self._check("acknowledge")
        with self.queue.changed:
            late = []
            for record in records:
                message = self.queue.held(record.offset)
                if message is None:
                    late.append(record)
                else:
                    message.done = True
            self.late += len(late)
            self.queue.changed.notify_all()
            return late

    def release(self, records: Iterable[Record]) -> None:
        self._check("release")
        with self.queue.changed:
            for record in records:
                message = self.queue.held(record.offset)
                if message is not None:
                    message.visible_at = self.queue.clock.now()
                    self.released += 1
            self.queue.changed.notify_all()

    def drain(self) -> None:
        self.drained = True
        self._check("drain")

    def close(self, deadline: Deadline) -> None:
        self.closed = True
        self._check("close")

    def go_away(self, method: str, times: int = 1) -> None:
        """The broker does not answer that for a while."""
        self.faults[method] = [SourceUnavailable(f"{method}: a test said so") for _ in range(times)]
