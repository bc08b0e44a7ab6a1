"""What a loop says about offsets, in the client's words, and what it means to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import KafkaError, KafkaException, TopicPartition
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.kafka._client import Message
    from holdfast.adapters.kafka.messages import MessageSource
    from holdfast.plugin.driven import Driven

#: What the client calls an offset that it does not know (rdkafka.h, RD_KAFKA_OFFSET_INVALID).
_INVALID = -1001
#: How long a call that has no time-out of its own may ask the broker.
_ASK_S = 10.0


class LoopOffsets:
    """Under the lock of its `Driven`."""

    def __init__(self, driven: Driven, source: MessageSource) -> None:
        self._driven, self._source, self._family = driven, source, driven.family

    def done_below(self, message: Message | None, offsets: list[TopicPartition] | None) -> set[Partition] | None:
        """The message and all before it, or what lies below the offsets, is done.

        Returns:
            The partitions that this is about; None = all: neither was named.

        Raises:
            KafkaException: a partition that is not ours.
        """
        if message is not None:
            partition, offset = place_of(message)
            offsets = [TopicPartition(partition.topic, partition.number, offset + 1)]
        if offsets is None:
            return None
        partitions = set()
        for one in offsets:
            partition = self.assigned(one)
            self._driven.end_below(partition, one.offset)
            partitions.add(partition)
        return partitions

    def commit(self, partitions: set[Partition] | None, *, asynchronous: bool) -> list[TopicPartition] | None:
        """Commit where these partitions stand; None = all. Raises KafkaException."""
        self._driven.collect()
        self._driven.settle()
        owners = [
            owner for owner in self._family.owners.values() if partitions is None or owner.partition in partitions
        ]
        if asynchronous:
            self._family.commits.commit(owners)
            return None
        targets = {owner.partition: owner.ledger.watermark for owner in owners if owner.open}
        if not targets:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - librdkafka's name
        replies = self._source.commit_now(targets)
        for reply in replies:
            owner = self._family.owners.get(Partition(reply.topic, reply.partition))
            if owner is not None and reply.error is None:
                owner.committed, owner.committed_at = reply.offset, self._driven.clock.now()
        return replies

    def position(self, one: TopicPartition) -> TopicPartition:
        """Behind the last record that was returned."""
        partition = Partition(one.topic, one.partition)
        position = self._driven.position(partition) if partition in self._family.owners else None
        return TopicPartition(one.topic, one.partition, _INVALID if position is None else position)

    def seek(self, one: TopicPartition) -> None:
        """A reset of that partition. Raises KafkaException, SourceError."""
        partition = self.assigned(one)
        self._driven.read_from(partition, self._resolved(one))

    def begin_at(self, wanted: Sequence[TopicPartition]) -> None:
        """What on_assign has said by `assign`: a reset, unless they begin there anyway. Raises SourceError."""
        for one in wanted:
            partition = Partition(one.topic, one.partition)
            offset = self._resolved(one)
            owner = self._family.owners.get(partition)
            if owner is None or not owner.open or owner.ledger.next != offset:
                self._driven.read_from(partition, offset)

    def assigned(self, one: TopicPartition, otherwise: int = KafkaError._ASSIGNMENT_LOST) -> Partition:  # noqa: SLF001 - librdkafka's name
        """Raises KafkaException, of the code `otherwise`: it was never ours, or has gone meanwhile."""
        partition = Partition(one.topic, one.partition)
        if partition not in self._family.assigned:
            raise KafkaException(KafkaError(otherwise))
        return partition

    def _resolved(self, one: TopicPartition) -> int:
        return self._source.resolve(Partition(one.topic, one.partition), one.offset, Deadline(_ASK_S, SYSTEM_CLOCK))


def place_of(message: Message) -> tuple[Partition, int]:
    """Partition and offset of a message. Raises ValueError: it has none."""
    topic, number, offset = message.topic(), message.partition(), message.offset()
    if topic is None or number is None or offset is None:
        raise ValueError("this message carries an error, not a record")
    return Partition(topic, number), offset
