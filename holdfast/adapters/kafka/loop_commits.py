"""Commits as a loop sees them: only its own, with its own metadata, as if the client had made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import KafkaError, TopicPartition, partition_of
from holdfast.adapters.kafka.commit_mark import is_marked, note_in
from holdfast.adapters.kafka.loop_errors import as_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.records import Partition

#: The client's value for an unknown offset (rdkafka.h, RD_KAFKA_OFFSET_INVALID).
_INVALID = -1001
#: Bytes of a loop's metadata. Brokers take 4,096 (offset.metadata.max.bytes), of which our mark needs some hundred.
_LONGEST_NOTE = 3_500


class LoopCommits:
    """The commits of one consumer. Used under the lock of its `Driven`."""

    def __init__(self) -> None:
        #: Offsets that the engine has committed at a takeover, only to have its mark there. The loop does not see them.
        self._adopted: dict[Partition, int] = {}
        #: Partitions of these for which the group had no committed offset before.
        self._begun: set[Partition] = set()
        #: The metadata that the loop has committed, with its offset.
        self._notes: dict[Partition, tuple[int, str]] = {}

    def adopted(self, offsets: Mapping[Partition, int], *, begins: bool) -> None:
        """Note offsets that the engine commits at a takeover, to have its mark there.

        Args:
            offsets: those.
            begins: whether the group had no committed offset there.
        """
        self._adopted.update(offsets)
        (self._begun.update if begins else self._begun.difference_update)(offsets)

    def sent(self, offsets: Mapping[Partition, int]) -> None:
        """Note a commit that is sent. With another offset than the adopted one, it is of done records: the loop sees
        it."""
        self._forget(partition for partition, offset in offsets.items() if self._adopted.get(partition) != offset)

    def by_loop(self, offsets: Iterable[TopicPartition]) -> None:
        """Note offsets that the loop commits itself. Raises KafkaException: the metadata is too long for brokers."""
        for one in offsets:
            partition = partition_of(one)
            if len((one.metadata or "").encode()) > _LONGEST_NOTE:
                raise as_client(KafkaError.OFFSET_METADATA_TOO_LARGE, f"Commit failed: more than {_LONGEST_NOTE} bytes")
            self._forget([partition])
            self._notes.pop(partition, None)
            if one.metadata:
                self._notes[partition] = (one.offset, one.metadata)

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are gone: their next owners may commit."""
        partitions = list(partitions)
        self._forget(partitions)
        for partition in partitions:
            self._notes.pop(partition, None)

    def note(self, partition: Partition, offset: int) -> str:
        """The loop's own metadata for this offset; "" = none."""
        at, said = self._notes.get(partition, (-1, ""))
        return said if at == offset else ""

    def for_loop(self, offsets: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offsets of a commit's answer that the loop's on_commit gets."""
        adopted = self._adopted
        return [self.without_mark(one) for one in offsets if adopted.get(partition_of(one)) != one.offset]

    def read(self, replies: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Committed offsets as the client would read them: without an offset that only the takeover has committed."""
        return [self.without_mark(one, begun=True) for one in replies]

    def without_mark(self, one: TopicPartition, *, begun: bool = False) -> TopicPartition:
        """Remove our mark from an offset.

        Args:
            one: the offset.
            begun: whether to hide an offset that only the takeover has committed.
        """
        if one.error is not None or not is_marked(one):
            return one
        partition = partition_of(one)
        if begun and partition in self._begun and self._adopted.get(partition) == one.offset:
            return TopicPartition(one.topic, one.partition, _INVALID)
        more: dict[str, Any] = {"metadata": note} if (note := note_in(one)) else {}
        epoch: int | None = one.leader_epoch  # the binding's stub lacks None
        if epoch is not None:
            more["leader_epoch"] = epoch
        return TopicPartition(one.topic, one.partition, one.offset, **more)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for partition in list(partitions):
            self._adopted.pop(partition, None)
            self._begun.discard(partition)
