"""Topics, their partitions and their logs, of Kafka and of RocketMQ."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.runtime import Runtime


def position_name(group: str, partition: Partition, log: int) -> str:
    """The name of a partition's position in the store. A topic that is deleted and made again has other names.

    Args:
        group: name of the group.
        partition: the partition.
        log: the topic's id, from `Topics.id_of`.
    """
    return f"{group}/{partition.topic}/{log}/{partition.number}"


class Stored(NamedTuple):
    """A record in a log."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int = -1


class Log:
    """One partition's records. Offsets may have gaps, from compaction and transactions."""

    def __init__(self, born: int = 0) -> None:
        #: A number that no other log has: a topic that is made again has new logs.
        self.born = born
        self.start = 0
        self.end = 0
        self.offsets: list[int] = []
        self.records: dict[int, Stored] = {}
        #: Offsets of records that cannot be read.
        self.spoilt: set[int] = set()
        #: Whether the partition has a leader. Without one nothing is read.
        self.led = True

    def append(self, record: Stored) -> int:
        """Add a record at the end. Returns: its offset."""
        self.records[self.end] = record
        self.offsets.append(self.end)
        self.end += 1
        return self.end - 1

    def from_(self, offset: int, at_most: int) -> list[int]:
        """Up to `at_most` offsets of records, from `offset` on."""
        if not self.led:
            return []
        first = bisect_left(self.offsets, offset)
        return self.offsets[first : first + at_most]

    def keep(self, offsets: Iterable[int]) -> None:
        """Delete all records but these; the log's bounds do not change."""
        self.offsets = sorted(offsets)
        self.records = {offset: self.records[offset] for offset in self.offsets}
        self.spoilt &= self.records.keys()


class Topics:
    """A broker's topics. Any thread.

    `changed` is notified at each change. It is a broker's only lock, and is never held around a callback of a member.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.changed = runtime.condition()
        self.logs: dict[Partition, Log] = {}
        self._ids: dict[str, int] = {}
        self._made = 0

    # ---- topics
    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or add partitions to it. A topic that was removed is made again with another id."""
        with self.changed:
            if topic not in self._ids:
                self._ids[topic] = self._new_id()
            for number in range(partitions):
                if Partition(topic, number) not in self.logs:
                    self.logs[Partition(topic, number)] = self._new_log()
            self._topics_changed()

    def remove(self, topic: str) -> None:
        """Delete a topic and its committed offsets."""
        with self.changed:
            del self._ids[topic]
            for partition in self.of(topic):
                del self.logs[partition]
            self._forgotten(topic)
            self._topics_changed()

    def delete(self, topic: str) -> None:
        """Delete a topic and make it again in one step, with another id and as many empty partitions."""
        with self.changed:
            self._ids[topic] = self._new_id()
            for partition in self.of(topic):
                self.logs[partition] = self._new_log()
            self._forgotten(topic)
            self.changed.notify_all()

    def id_of(self, topic: str) -> int:
        """The topic's id, which changes when it is deleted and made again. Raises KeyError: there is no such topic."""
        return self._ids[topic]

    def has(self, topic: str) -> bool:
        """Whether there is a topic of that name."""
        return topic in self._ids

    def of(self, topic: str) -> list[Partition]:
        """A topic's partitions."""
        return [partition for partition in self.logs if partition.topic == topic]

    def lead(self, topic: str, number: int, *, led: bool) -> None:
        """A partition loses its leader, or gets one again."""
        with self.changed:
            self.logs[Partition(topic, number)].led = led
            self._grew(Partition(topic, number))

    # ---- records
    def produce(
        self,
        topic: str,
        number: int,
        *values: str | None,
        key: str | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        """Store one record for each value. Returns: their offsets."""
        with self.changed:
            head, key_bytes = tuple(headers), None if key is None else key.encode()
            records = [Stored(key_bytes, None if each is None else each.encode(), head) for each in values]
            return self.store(Partition(topic, number), *records)

    def store(self, partition: Partition, *records: Stored) -> list[int]:
        """Store records as they are."""
        with self.changed:
            log = self.logs[partition]
            self._grew(partition)
            return [log.append(record) for record in records]

    def store_again(self, topic: str, number: int, offset: int) -> int:
        """Store a record a second time, as a producer does that got no answer. Returns: the copy's offset."""
        with self.changed:
            log = self.logs[Partition(topic, number)]
            self._grew(Partition(topic, number))
            return log.append(log.records[offset])

    def spoil(self, topic: str, number: int, offset: int) -> None:
        """Make that record unreadable."""
        with self.changed:
            self.logs[Partition(topic, number)].spoilt.add(offset)

    def leave_out(self, topic: str, number: int, offsets: int) -> None:
        """Add so many offsets without a record at the end: transaction markers, aborted records."""
        with self.changed:
            self.logs[Partition(topic, number)].end += offsets
            self._grew(Partition(topic, number))

    def compact(self, topic: str, number: int, keep: Iterable[int]) -> None:
        """Delete all records but those at these offsets."""
        with self.changed:
            self.logs[Partition(topic, number)].keep(keep)

    def expire(self, topic: str, number: int, first: int) -> None:
        """Delete all records before that offset, as retention does."""
        with self.changed:
            log = self.logs[Partition(topic, number)]
            log.keep(offset for offset in log.offsets if offset >= first)
            log.start, log.end = first, max(first, log.end)
            self._grew(Partition(topic, number))

    def cut(self, topic: str, number: int, end: int) -> None:
        """Cut the log's end off, as an unclean election does."""
        with self.changed:
            log = self.logs[Partition(topic, number)]
            log.keep(offset for offset in log.offsets if offset < end)
            log.end = end
            self._grew(Partition(topic, number))

    # ---- for the brokers
    def _new_id(self) -> int:
        self._made += 1
        return self._made

    def _new_log(self) -> Log:
        return Log(self._new_id())

    def _grew(self, partition: Partition) -> None:
        """The partition may have new records. Called with the lock."""
        self.changed.notify_all()

    def _topics_changed(self) -> None:
        """Partitions were added or removed. Called with the lock."""
        self.changed.notify_all()

    def _forgotten(self, topic: str) -> None:
        """The topic was deleted. Called with the lock."""
