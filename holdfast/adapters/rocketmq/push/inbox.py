"""Inbox: each of the client's threads puts a record here, and waits for the record's outcome.

The client calls back on its own threads, and continues its batch by the callback's result. Therefore a callback waits
here as long as the record is in the engine.

At the end, the client's shutdown begins before the callbacks are answered: a thread that is answered earlier would get
another batch.
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
        #: A locked lock for each waiting callback. A lock also works on threads that Python has not created.
        self.waiting: list[threading.Lock] = []
        self.done = False


class Inbox:
    """The records between the client and the engine. Any thread, unless a method says otherwise."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._new: deque[_Delivery] = deque()
        self._here: dict[tuple[Partition, int], _Delivery] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of callbacks without an answer."""
        with self._changed:
            return sum(len(each.waiting) for each in self._here.values())

    # ---- the client's threads
    def hand_over(self, record: Record, identity: str) -> bool:
        """Hand a record to the engine and wait, without a limit, for its outcome. Returns whether it is acknowledged.

        If the same record is here already, a further delivery shares its outcome. Another record with the same topic,
        queue number and offset (of another broker, whose name the client does not report) waits until the first is
        done.
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
        """Take records; waits for the first one, at most `timeout_s`."""
        with self._changed:
            if not self._new and timeout_s > 0:
                self._changed.wait(timeout_s)
            return [self._new.popleft().record for _ in range(min(at_most, len(self._new)))]

    def identity(self, record: Record) -> str:
        """The message's identity, the same in all deliveries."""
        with self._changed:
            return self._here[record.partition, record.offset].identity

    def acknowledge(self, records: Iterable[Record]) -> Sequence[Record]:
        """Acknowledge: let the callbacks of these records return True. Returns the records without a callback."""
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
        """Put unhandled records back. Their callbacks go on waiting, and `take` returns the records again."""
        with self._changed:
            for record in records:
                delivery = self._here.get((record.partition, record.offset))
                if delivery is not None and delivery not in self._new:
                    self._new.append(delivery)
            self._changed.notify()

    def close(self) -> None:
        """Let all callbacks return False, also later ones: their records were not handled. Idempotent."""
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
