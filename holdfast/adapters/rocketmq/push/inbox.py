"""Inbox: where the client's threads leave a record each, and wait until it is known what became of it.

The client calls back in threads of its own, and goes on with its batch by what the callback returns. So a callback
stands here for as long as the record is on its way through the engine.

The client's shutdown is begun first and the callbacks are answered after: one that is answered earlier gets another
batch.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.records import Partition, Record


class _Delivery:
    """One record in the process, and the callbacks that wait for it."""

    __slots__ = ("done", "identity", "record", "waiting")

    def __init__(self, record: Record, identity: str) -> None:
        self.record, self.identity = record, identity
        #: One locked lock a callback: a thread that Python does not know needs nothing more to wait.
        self.waiting: list[threading.Lock] = []
        self.done = False


class Inbox:
    """Any thread, unless a method says otherwise."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._new: deque[_Delivery] = deque()
        self._here: dict[tuple[Partition, int], _Delivery] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """Callbacks that have no answer yet."""
        with self._changed:
            return sum(len(each.waiting) for each in self._here.values())

    # ---- the client's threads
    def hand_over(self, record: Record, identity: str) -> bool:
        """Wait, without a limit, for what becomes of the record. True = it is acknowledged.

        What is here already, delivered once more, shares the outcome. Another record of the same place (of another
        broker, whose name the client does not tell) waits until that one has left.
        """
        place = (record.partition, record.offset)
        while True:
            answer = threading.Lock()
            answer.acquire()
            with self._changed:
                if self._closed:
                    return False
                delivery = self._here.get(place)
                if delivery is None:
                    delivery = self._here[place] = _Delivery(record, identity)
                    self._new.append(delivery)
                    self._changed.notify()
                same = delivery.identity == identity
                delivery.waiting.append(answer)
            answer.acquire()
            if same:
                return delivery.done

    # ---- the engine's thread
    def take(self, at_most: int, timeout_s: float) -> list[Record]:
        """Records that have come; returns at the first one, and after `timeout_s` without any."""
        with self._changed:
            if not self._new and timeout_s > 0:
                self._changed.wait(timeout_s)
            return [self._new.popleft().record for _ in range(min(at_most, len(self._new)))]

    def identity(self, record: Record) -> str:
        """The name by which the message is known, wherever it is delivered again."""
        with self._changed:
            return self._here[record.partition, record.offset].identity

    def acknowledge(self, records: Iterable[Record]) -> Sequence[Record]:
        """Let the callbacks of these records return well. Replies with the records that nobody waits for any more."""
        late = []
        with self._changed:
            for record in records:
                delivery = self._here.pop((record.partition, record.offset), None)
                if delivery is None:
                    late.append(record)
                else:
                    delivery.done = True
                    _answer(delivery)
        return late

    def give_again(self, records: Iterable[Record]) -> None:
        """Take records back that were not handled. Their callbacks wait on, and the records are taken once more."""
        with self._changed:
            for record in records:
                delivery = self._here.get((record.partition, record.offset))
                if delivery is not None and delivery not in self._new:
                    self._new.append(delivery)
            self._changed.notify()

    def close(self) -> None:
        """All callbacks return, now and from now on: what they brought was not handled. Idempotent."""
        with self._changed:
            self._closed = True
            for delivery in self._here.values():
                _answer(delivery)
            self._here.clear()
            self._new.clear()
            self._changed.notify_all()


def _answer(delivery: _Delivery) -> None:
    for each in delivery.waiting:
        each.release()
    delivery.waiting.clear()
