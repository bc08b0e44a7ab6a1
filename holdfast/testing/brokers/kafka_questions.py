"""Requests of a member of a Kafka group that wait for an answer: topic ids, offsets, the ends of logs."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast.errors import SourceError, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import Committed
from holdfast.testing.brokers.logs import position_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.records import Partition
    from holdfast.runtime import Runtime
    from holdfast.testing.brokers.agenda import Line
    from holdfast.testing.brokers.kafka_client import GroupClient
    from holdfast.testing.brokers.kafka_group import MemoryGroup
    from holdfast.testing.brokers.kafka_topics import KafkaTopics
    from holdfast.timing import Deadline

T = TypeVar("T")


class Questions:
    """The requests of a member that wait for an answer. One thread calls all methods but `fail`."""

    #: Whether its commits carry holdfast's mark.
    marked = True
    #: `auto.offset.reset`.
    begins: Literal["earliest", "latest"] = "earliest"

    def __init__(self, broker: KafkaTopics, client: GroupClient, of_group: MemoryGroup, runtime: Runtime) -> None:
        self.broker, self.client, self.of_group = broker, client, of_group
        self._runtime = runtime
        self._faults: dict[str, deque[Exception]] = defaultdict(deque)
        self._topic_ids: dict[str, int] = {}
        #: Partition -> topic id, as it was when `position_names` asked; commits carry it.
        self._named: dict[Partition, int] = {}
        self._ends_asked_at: float | None = None
        #: Partition -> topic id: "latest" applies to it while its topic has that id. And topics that are read from
        #: their first record.
        self._never_read: dict[Partition, int] = {}
        self._whole: frozenset[str] = frozenset()

    @property
    def line(self) -> Line:
        """The line between the member and its brokers."""
        return self.client.line

    # ---- for tests
    def fail(self, method: str, *errors: Exception) -> None:
        """Have the next calls of that method raise these errors, one each. Any thread."""
        with self.broker.changed:
            self._faults[method].extend(errors)

    def forgive(self, method: str) -> None:
        """Drop the errors that are left for that method."""
        with self.broker.changed:
            self._faults[method].clear()

    def failing(self, method: str) -> int:
        """How many errors are left for that method."""
        return len(self._faults[method])

    def _check(self, method: str) -> None:
        if self._faults[method]:
            raise self._faults[method].popleft()

    # ---- PartitionedSource
    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """The positions' names, of group, topic, topic id and number."""
        return self._ask("position_names", deadline, lambda: {each: self._position_name(each) for each in partitions})

    def _position_name(self, partition: Partition) -> str | SourceError:
        if not self.broker.has(partition.topic):
            return UnknownTopic(f"asking for the id of {partition.topic}: there is no such topic")
        found = self._topic_ids[partition.topic] = self._named[partition] = self.broker.id_of(partition.topic)
        return position_name(self.of_group.name, partition, found)

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """The group's committed offsets."""
        return self._ask("committed", deadline, lambda: {each: self._committed(each) for each in partitions})

    def _committed(self, partition: Partition) -> Committed | None:
        found = self.of_group.committed.get(partition)
        if found is None:
            return None
        if found.topic_id and found.topic_id != self._topic_ids.get(partition.topic, found.topic_id):
            return None  # committed in a topic of that name that was deleted since
        return Committed(found.offset, found.ours, marked=self.marked, store=found.store if found.ours else "")

    def reads_all_of(self, topics: Collection[str]) -> None:
        """Read these topics from their first record, also with "latest"."""
        self._whole = frozenset(topics)

    def _look(self, topics: Collection[str]) -> None:
        """Called before the member joins: "latest" applies to the partitions that exist now, of topics without a
        committed offset."""
        has = {partition.topic for partition in self.of_group.committed}
        for topic in topics if self.begins == "latest" else ():
            if topic not in has | self._whole and self.broker.has(topic):
                self._never_read.update(dict.fromkeys(self.broker.of(topic), self.broker.id_of(topic)))

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """The first offset of each partition. The partition's leader answers."""
        return self._ask(
            "first_offsets",
            deadline,
            lambda: {each: self._first(each) for each in partitions},
        )

    def _first(self, partition: Partition) -> int | SourceError:
        if not self._led(partition):
            return _no_leader(partition)
        log = self.broker.logs[partition]
        return log.end if self._never_read.get(partition) == self.broker.id_of(partition.topic) else log.start

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs now. The partitions' leaders answer. Raises SourceError: a partition has no leader."""
        return self._ask("last_offsets", deadline, lambda: self._ends(partitions))

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs, without waiting; None = not answered yet. Raises SourceUnavailable: no answer in
        time."""
        self._check("look_at_ends")
        line, now = self.line, self.broker.settle()
        with self.broker.changed:
            if line.hears and line.speaks and not line.delay_s:
                return self._ends(partitions)
            asked_at, self._ends_asked_at = self._ends_asked_at or now, self._ends_asked_at or now
            waited_s = now - asked_at
            if line.hears and line.speaks and waited_s >= 2 * line.delay_s:
                self._ends_asked_at = None
                return self._ends(partitions)
        if waited_s >= self.client.request_s:
            self._ends_asked_at = None
            raise SourceUnavailable("asking for the ends of the logs: no answer in time")
        return None

    def _ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        for each in partitions:
            if not self._led(each):
                raise _no_leader(each)
        return self.end_offsets(partitions)

    def _led(self, partition: Partition) -> bool:
        return partition in self.broker.logs and self.broker.logs[partition].led

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs, as the client knows them; this client knows all."""
        with self.broker.changed:
            return {each: self.broker.logs[each].end for each in partitions if each in self.broker.logs}

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The starts of the logs, as the client knows them; this client knows all."""
        with self.broker.changed:
            return {each: self.broker.logs[each].start for each in partitions if each in self.broker.logs}

    # ---- inside
    def _ask(self, method: str, deadline: Deadline, answer: Callable[[], T]) -> T:
        """Send a request and wait for the answer. Raises SourceUnavailable: no answer until the deadline."""
        self._check(method)
        self.line.wait_for_answer(method, self._runtime, deadline)
        self.broker.settle()
        with self.broker.changed:
            return answer()


def _no_leader(partition: Partition) -> SourceError:
    return SourceUnavailable(f"{partition} has no leader now")
