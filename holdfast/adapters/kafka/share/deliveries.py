"""Deliveries: the records in this process, and what their clients are to be told. Only state, no I/O.

A record *waits* (received), is *out* (with the engine), and is then acknowledged or given back. Kafka 4.3.1 with
librdkafka 2.16 behaves so (docs/reference/share-groups.md):

- A client polls again only when all that its last poll brought is acknowledged. So each delivery belongs to one client,
  and each gets an answer: after the end of its lock too, when the broker takes none.
- A record is delivered again to another client while it is out here: its lock has ended, or its broker was started
  again. It stays one record, with two deliveries.
- A record that is given back at its last delivery is archived: nobody gets it any more. So it is never given back: it
  waits for the engine once more and, shortly before its lock ends, is rescued into the dead letters (`Reader`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka._client import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.adapters.kafka._client import Message
    from holdfast.adapters.kafka.share.limits import Limits
    from holdfast.records import Partition, Record
    from holdfast.runtime import Runtime

    Place = tuple[Partition, int]

#: How many records are remembered that are done here, and of which the broker has not said that it knows.
_REMEMBERED = 10_000


class Said(Enum):
    """The broker's answer to an acknowledgement."""

    TAKEN = "taken"
    LATE = "late"  #: the lock had ended: the record is, or will be, delivered again
    UNKNOWN = "unknown"


class Delivery:
    """One delivery of a record to one client."""

    __slots__ = ("client", "message", "number", "until")

    def __init__(self, client: int, message: Message, number: int, until: float) -> None:
        self.client, self.message = client, message
        #: How often the record was delivered, with this time; and when its lock ends, by our clock.
        self.number, self.until = number, until


class Answer(NamedTuple):
    """An answer about a delivery, which its client is to give the broker."""

    delivery: Delivery
    kind: AcknowledgeType
    place: Place


class Held:
    """A record in the process, with its deliveries that have no answer yet; newest last."""

    __slots__ = ("deliveries", "number", "out", "record", "until")

    def __init__(self, record: Record, delivery: Delivery) -> None:
        self.record, self.deliveries, self.out = record, [delivery], False
        self.number, self.until = delivery.number, delivery.until

    def add(self, delivery: Delivery) -> None:
        """Note that it was delivered again."""
        self.deliveries.append(delivery)
        self.number, self.until = delivery.number, max(self.until, delivery.until)


class Deliveries:
    """Any thread: the loop's, and one for each client."""

    def __init__(self, limits: Limits, clients: int, runtime: Runtime) -> None:
        self._limits, self._clock = limits, runtime
        #: Guards the fields below.
        self.changed = runtime.condition()
        self._held: dict[Place, Held] = {}
        self._waiting: deque[Held] = deque()
        #: What each client is to tell.
        self._answers: list[list[Answer]] = [[] for _ in range(clients)]
        #: Records that are done here, while the broker may deliver them again -> when they were produced: after a topic
        #: was deleted and made again, another record may have their place.
        self._done: OrderedDict[Place, int] = OrderedDict()
        self._draining = False
        self._late = 0
        #: Records whose last lock has ended here, and which no dead letter has: the broker delivers them no more.
        self.lost: deque[Record] = deque()

    @property
    def load(self) -> int:
        """Records in the process."""
        return len(self._held)

    # ---- records
    def arrived(self, came: Iterable[tuple[Record, Delivery]]) -> None:
        """Take what a poll has brought. One whose lock has ended while it was on its way is given back."""
        with self.changed:
            now = self._clock.now()
            for record, delivery in came:
                place = record.partition, record.offset
                held = self._held.get(place)
                if held is not None and held.record.timestamp_ms == record.timestamp_ms:
                    held.add(delivery)
                elif self._done.get(place) == record.timestamp_ms:
                    self._answer(delivery, AcknowledgeType.ACCEPT, place)
                elif delivery.until <= now or (self._draining and delivery.number < self._limits.deliveries):
                    self._answer(delivery, AcknowledgeType.RELEASE, place)
                else:
                    held = self._held[place] = Held(record, delivery)
                    self._waiting.append(held)
            self.changed.notify_all()

    def take(self, at_most: int) -> list[Record]:
        """The next records for the engine."""
        with self.changed:
            some = [self._waiting.popleft() for _ in range(min(at_most, len(self._waiting)))]
            for held in some:
                held.out = True
            return [held.record for held in some]

    def wait(self, timeout_s: float) -> None:
        """Wait until a record has come."""
        with self.changed:
            if not self._waiting:
                self.changed.wait(timeout_s)

    def until(self, record: Record) -> float:
        """When the record's lock ends, by our clock. Without the lock: asked for each record many times a second."""
        held = self._held.get((record.partition, record.offset))
        return 0.0 if held is None else held.until

    def deliveries_left(self, record: Record) -> int:
        """How often it would be delivered again."""
        held = self._held.get((record.partition, record.offset))
        return 0 if held is None else max(0, self._limits.deliveries - held.number)

    def done(self, records: Iterable[Record]) -> None:
        """Acknowledge these, and further deliveries of them."""
        with self.changed:
            for record in records:
                place = record.partition, record.offset
                if (held := self._held.pop(place, None)) is not None:
                    self._is_done(place, held)
            self.changed.notify_all()

    def back(self, records: Iterable[Record]) -> None:
        """Give these back, so that another member may get them. At its last delivery one waits once more."""
        with self.changed:
            for record in records:
                place = record.partition, record.offset
                held = self._held.get(place)
                if held is None or not held.out:
                    continue
                held.out = False
                if held.number >= self._limits.deliveries and held.deliveries:
                    self._waiting.appendleft(held)
                else:
                    self._give_back(place, held)
            self.changed.notify_all()

    def drain(self) -> None:
        """Give back what waits, and what polls under way still bring."""
        with self.changed:
            self._draining = True
            self._sweep(None)
            self.changed.notify_all()

    def late(self, at_most: int) -> int:
        """How many acknowledgements came after their lock had ended; each is counted in one call."""
        with self.changed:
            late = min(self._late, at_most)
            self._late -= late
            return late

    # ---- for one client's thread
    def answers(self, client: int, wait_s: float) -> Sequence[Answer]:
        """Take what the client is to tell; waits for the first of it."""
        with self.changed:
            if not self._answers[client]:
                self.changed.wait(wait_s)
            found, self._answers[client] = self._answers[client], []
            return found

    def lapse(self, client: int) -> Sequence[Held]:
        """Give back what waits and can hardly be handled any more, and let deliveries go whose lock has ended.

        Returns: records that wait at their last delivery, and that only the dead letters can save now.
        """
        with self.changed:
            now = self._clock.now()
            self._sweep(now + self._limits.spare_s)
            for place, held in list(self._held.items()):
                over = [each for each in held.deliveries if each.client == client and each.until <= now]
                for delivery in over:
                    held.deliveries.remove(delivery)
                    self._answer(delivery, AcknowledgeType.RELEASE, place)
                if not held.deliveries and not held.out:
                    self._drop(place, held)
                    if held.number >= self._limits.deliveries:
                        self.lost.append(held.record)
            return [
                held
                for held in self._waiting
                if held.number >= self._limits.deliveries
                and held.deliveries[-1].client == client
                and (self._draining or held.until <= now + self._limits.spare_s)
            ]

    def rescued(self, held: Held) -> None:
        """The dead letters have it: it is done."""
        place = held.record.partition, held.record.offset
        with self.changed:
            if self._held.get(place) is held and not held.out:
                self._drop(place, held)
                self._is_done(place, held)
            self.changed.notify_all()

    def forget(self, client: int) -> None:
        """The client ends: nothing is answered for what it has brought; its group gives that to others."""
        with self.changed:
            self._answers[client].clear()
            for place, held in list(self._held.items()):
                held.deliveries = [each for each in held.deliveries if each.client != client]
                if not held.deliveries and not held.out:
                    self._drop(place, held)

    def told(self, answers: Iterable[Answer], said: Mapping[Partition, Said]) -> None:
        """The broker has answered; a partition without an answer counts as unknown."""
        with self.changed:
            for answer in answers:
                fate = said.get(answer.place[0], Said.UNKNOWN)
                if answer.kind is not AcknowledgeType.ACCEPT:
                    continue
                if fate is Said.TAKEN:
                    self._done.pop(answer.place, None)
                elif fate is Said.LATE:
                    self._late += 1

    # ---- inside; with the lock
    def _answer(self, delivery: Delivery, kind: AcknowledgeType, place: Place) -> None:
        self._answers[delivery.client].append(Answer(delivery, kind, place))

    def _is_done(self, place: Place, held: Held) -> None:
        for delivery in held.deliveries:
            self._answer(delivery, AcknowledgeType.ACCEPT, place)
        self._done[place] = held.record.timestamp_ms
        self._done.move_to_end(place)
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)

    def _give_back(self, place: Place, held: Held) -> None:
        self._held.pop(place, None)
        for delivery in held.deliveries:
            self._answer(delivery, AcknowledgeType.RELEASE, place)

    def _drop(self, place: Place, held: Held) -> None:
        self._held.pop(place, None)
        if held in self._waiting:
            self._waiting.remove(held)

    def _sweep(self, until: float | None) -> None:
        """Give back what waits and has another delivery: all of it, or what ends by then."""
        keep: deque[Held] = deque()
        for held in self._waiting:
            last = held.number >= self._limits.deliveries
            if last or (until is not None and held.until > until):
                keep.append(held)
            else:
                self._give_back((held.record.partition, held.record.offset), held)
        self._waiting = keep
