"""Prefetch: the messages that Kafka's client has fetched and the application has not consumed, as in librdkafka.

All partitions share one queue, in the order of the fetch responses. A response has up to `Fetches.records` of each
partition in turn, so one backlog stands before whatever comes after it. A partition that is looked at while the queue
has `Fetches.queued` messages is not fetched for `Fetches.backoff_s`. A pause or a seek outdates what the queue has of
its partition: outdated messages are dropped when their turn comes, and count until then, but for those at the queue's
head (`rd_kafka_q_purge_toppar_version`). After a resume the partition is fetched anew from the application's position.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import SourceError
from holdfast.plugin.ports import Batch, End
from holdfast.records import Record
from holdfast.testing.brokers.kafka_fetch import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.records import Fence, Partition
    from holdfast.testing.brokers.agenda import Line
    from holdfast.testing.brokers.kafka_reader import Reader, Slips
    from holdfast.testing.brokers.kafka_topics import KafkaTopics
    from holdfast.testing.brokers.logs import Stored
    from tests.simulation.drawing.world import Fetches

#: The broker answers a fetch without anything new after so long (`fetch.wait.max.ms`). Partitions that are resumed
#: meanwhile are not in that fetch.
_HANGS_S = 0.5


class _Place:
    """Where the client fetches one partition."""

    __slots__ = ("backs_off_until", "end", "fetched", "moved", "offset", "reader")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        #: How often the application has moved or paused it, and that number at the last fetch from its position.
        self.moved, self.fetched = 0, -1
        #: The next offset to fetch.
        self.offset = 0
        #: The end that the queue was given last.
        self.end = -1
        self.backs_off_until = 0.0


class _Message(NamedTuple):
    """One entry of the queue."""

    partition: Partition
    place: _Place
    #: `_Place.moved` when it was fetched.
    moved: int
    offset: int
    #: None = the end of the partition was reached at that offset.
    stored: Stored | None
    log: int
    spoilt: bool


class _Asked(NamedTuple):
    """The fetch that is under way."""

    #: When its answer can be there, and when the broker answers without anything.
    arrives: float
    until: float
    places: list[tuple[Partition, _Place, int]]


class Prefetch:
    """The queue of one client. Called with the broker's lock, by the member's thread.

    Args:
        broker: its logs.
        fetches: the client's settings.
        line: between the client and the broker.
        stir: wakes a poll that waits.
    """

    def __init__(self, broker: KafkaTopics, fetches: Fetches, line: Line, stir: Callable[[], None]) -> None:
        self._broker, self._fetches, self._line, self._stir = broker, fetches, line, stir
        self._queue: deque[_Message] = deque()
        self._places: dict[Partition, _Place] = {}
        self._asked: _Asked | None = None

    def __len__(self) -> int:
        """Messages, outdated ones included."""
        return len(self._queue)

    def moved(self, partition: Partition) -> None:
        """The application has paused, resumed or moved that partition: what was fetched of it is outdated."""
        if (place := self._places.get(partition)) is not None:
            place.moved += 1

    def take(
        self,
        now: float,
        readers: Mapping[Partition, Reader],
        owners: Mapping[Partition, Fence],
        at_most: int,
        slips: Slips | None,
    ) -> Fetched:
        """Consume up to `at_most` messages; the ends of partitions count as messages."""
        self._go_on(now, readers)
        records: list[Record] = []
        ends: list[End] = []
        trouble = None
        while self._queue and len(records) + len(ends) < at_most and trouble is None:
            message = self._queue.popleft()
            partition, reader = message.partition, message.place.reader
            if not self._counts(message, readers) or reader.paused:
                continue
            if message.stored is None:
                reader.position = reader.told_end = message.offset
                ends.append(End(partition, message.offset))
                continue
            if message.spoilt:
                trouble = SourceError(f"consuming {partition}: the record at {message.offset} cannot be read")
                continue
            reader.position = message.offset + 1
            fence, stored = owners.get(partition), message.stored
            if slips is not None and slips.leaves_out(partition, reader, message.log, message.offset):
                fence = None
            if fence is not None:
                at_ms = stored.timestamp_ms
                records.append(
                    Record(partition, message.offset, stored.key, stored.value, stored.headers, at_ms, fence)
                )
        self._go_on(now, readers)
        return Fetched(Batch(records, ends), trouble)

    # ---- inside
    def _counts(self, message: _Message, readers: Mapping[Partition, Reader]) -> bool:
        place = message.place
        return place.moved == message.moved and readers.get(message.partition) is place.reader

    def _go_on(self, now: float, readers: Mapping[Partition, Reader]) -> None:
        """Do what the client's own threads have done by now: one fetch after the other."""
        if not (self._line.hears and self._line.speaks):
            return
        while True:
            while self._queue and not self._counts(self._queue[0], readers):
                self._queue.popleft()
            if self._asked is None:
                self._ask(now, readers)
            asked = self._asked
            if asked is None or now < asked.arrives:
                return
            brought = self._answer(asked, readers)
            if not brought and now < asked.until:
                return  # the broker holds it until something comes, which wakes the poll
            self._queue += brought
            self._asked = None
            if not brought:
                return

    def _ask(self, now: float, readers: Mapping[Partition, Reader]) -> None:
        fetches, places = self._fetches, []
        self._places = {each: place for each, place in self._places.items() if readers.get(each) is place.reader}
        for partition, reader in readers.items():
            place = self._places.setdefault(partition, _Place(reader))
            if place.fetched != place.moved:
                place.fetched, place.offset, place.end = place.moved, reader.position, -1
            if reader.paused or place.backs_off_until > now:
                continue
            if len(self._queue) >= fetches.queued:
                place.backs_off_until = now + fetches.backoff_s
                self._broker.after(now, fetches.backoff_s, self._stir)
                continue
            places.append((partition, place, place.moved))
        if places:
            way_s = fetches.way_s + 2 * self._line.delay_s
            self._asked = _Asked(now + way_s, now + way_s + _HANGS_S, places)
            self._broker.after(now, way_s, self._stir)
            self._broker.after(now, way_s + _HANGS_S, self._stir)

    def _answer(self, asked: _Asked, readers: Mapping[Partition, Reader]) -> list[_Message]:
        brought: list[_Message] = []
        for partition, place, moved in asked.places:
            log = self._broker.logs.get(partition)
            if log is None or not log.led or place.moved != moved or readers.get(partition) is not place.reader:
                continue
            if not log.start <= place.offset <= log.end:
                place.offset = log.start  # out of range: the policy is "earliest"
            offsets = log.from_(place.offset, self._fetches.records)
            for offset in offsets:
                stored, spoilt = log.records[offset], offset in log.spoilt
                brought.append(_Message(partition, place, moved, offset, stored, log.born, spoilt))
                place.offset = offset + 1
            if not offsets and place.end != log.end:  # an end beyond the last record lies behind markers
                place.offset = place.end = log.end
                brought.append(_Message(partition, place, moved, log.end, None, log.born, spoilt=False))
        return brought
