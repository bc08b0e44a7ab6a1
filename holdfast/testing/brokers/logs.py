"""Topics, their partitions and logs, as brokers keep them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.runtime import Runtime


class Stored(NamedTuple):
    """A record as it lies in a log."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Log:
    """One partition's records. Offsets may have gaps, as compaction and transactions leave them."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.offsets: list[int] = []
        self.records: dict[int, Stored] = {}

    def append(self, record: Stored) -> int:
        """Add one at the end. Returns: its offset."""
        self.records[self.end] = record
        self.offsets.append(self.end)
        self.end += 1
        return self.end - 1

    def from_(self, offset: int, at_most: int) -> list[int]:
        """The offsets of the records from there on."""
        first = bisect_left(self.offsets, offset)
        return self.offsets[first : first + at_most]

    def keep(self, offsets: Iterable[int]) -> None:
        """Of the records only these stay; the log's bounds do not change."""
        self.offsets = sorted(offsets)
        self.records = {offset: self.records[offset] for offset in self.offsets}


class Topics:
    """A broker's topics. Any thread.

    `changed` is notified at each change. It is the only lock of a broker, and is never held around a callback.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.changed = runtime.condition()
        self.logs: dict[Partition, Log] = {}
        self._ids: dict[str, int] = {}

    def create(self, topic: str, partitions: int) -> None:
        """A new topic, more partitions of an old one, or, once it was deleted, another of the same name."""
        with self.changed:
            self._ids.setdefault(topic, sum(self._ids.values()) + 1)
            for number in range(partitions):
                self.logs.setdefault(Partition(topic, number), Log())
            self._topics_changed()

    def delete(self, topic: str) -> None:
        """Delete a topic and make it again at once, with another id and as many partitions, which are empty."""
        with self.changed:
            self._ids[topic] = sum(self._ids.values()) + 1
            for partition in [partition for partition in self.logs if partition.topic == topic]:
                self.logs[partition] = Log()
            self.changed.notify_all()

    def produce(
        self,
        topic: str,
        number: int,
        *values: str | None,
        key: str | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> list[int]:
        """Store records, one a value. Returns: their offsets."""
        with self.changed:
            log, head = self.logs[Partition(topic, number)], tuple(headers)
            key_bytes = None if key is None else key.encode()
            self.changed.notify_all()
            return [log.append(Stored(key_bytes, None if each is None else each.encode(), head)) for each in values]

    def leave_out(self, topic: str, number: int, offsets: int) -> None:
        """So many offsets at the end carry no record: transaction markers."""
        with self.changed:
            self.logs[Partition(topic, number)].end += offsets
            self.changed.notify_all()

    def compact(self, topic: str, number: int, keep: Iterable[int]) -> None:
        """Of the records only these offsets stay."""
        with self.changed:
            self.logs[Partition(topic, number)].keep(keep)

    def cut(self, topic: str, number: int, end: int) -> None:
        """The log goes back, as after an unclean election."""
        with self.changed:
            log = self.logs[Partition(topic, number)]
            log.keep(offset for offset in log.offsets if offset < end)
            log.end = end
            self.changed.notify_all()

    def id_of(self, topic: str) -> int:
        """Another one after the topic was deleted and made again."""
        return self._ids[topic]

    def _topics_changed(self) -> None:
        """There are partitions that were not there. Called with the lock."""
        self.changed.notify_all()
