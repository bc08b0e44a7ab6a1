"""A loop's calls about offsets, in the client's words, and their meaning to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import KafkaError, KafkaException, TopicPartition, partition_of, topic_partitions
from holdfast.adapters.kafka.loop_arguments import partitions_given
from holdfast.adapters.kafka.loop_errors import as_client, differs
from holdfast.adapters.kafka.offsets import BEGINNING, END, TAIL
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.record.entry import UNSTARTED, EntryState
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.kafka._client import Message
    from holdfast.adapters.kafka.messages import MessageSource
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.own_loop.driven import Driven

#: The client's value for an unknown offset (rdkafka.h, RD_KAFKA_OFFSET_INVALID).
_INVALID = -1001
_LOST = KafkaError._ASSIGNMENT_LOST  # noqa: SLF001 - librdkafka's name
#: How long a call without a timeout of its own may wait for the broker or the store.
_ASK_S = 10.0
#: How often a waiting commit looks for the store's answer.
_LOOK_S = 0.005


class LoopOffsets:
    """A loop's commits, positions and seeks. Used under the lock of its `Driven`."""

    def __init__(self, driven: Driven, source: MessageSource) -> None:
        self._driven, self._source, self._family = driven, source, driven.family
        self._refused_marks = 0
        #: The topics to which the loop has subscribed.
        self.topics: Sequence[str] = ()
        #: Offsets that the loop has committed synchronously.
        self._stood: dict[Ownership, int] = {}
        #: Partitions that on_assign has got and not assigned.
        self.left_out: set[Partition] = set()

    def done_below(self, offsets: list[TopicPartition] | None) -> dict[Partition, int] | None:
        """Note records below these offsets as done.

        Returns:
            Partitions and offsets; None = all partitions, since no offsets were given.
        """
        if offsets is None:
            return None
        named = [one for one in partitions_given(offsets) if one.offset >= 0]
        below = {partition_of(one): one.offset for one in named}
        for partition, offset in below.items():
            if self.is_assigned(partition):
                self._driven.end_below(partition, offset)
        return below

    def store(self, message: Message | None, offsets: list[TopicPartition] | None, *, allowed: bool) -> None:
        """Store offsets: records below them are done. Offsets of partitions that are not ours are ignored, as by the
        client.

        Args: allowed: enable.auto.offset.store is false.

        Raises:
            KafkaException: as the client.
        """
        given = [behind(message)] if message is not None else partitions_given(offsets)
        if not allowed:
            why = "StoreOffsets failed: set enable.auto.offset.store=false to say by yourself what is done"
            raise as_client(KafkaError._INVALID_ARG, why)  # noqa: SLF001 - librdkafka's name
        named = [partition_of(one) for one in given]
        if named and not any(map(self.is_assigned, named)):
            raise as_client(self._unlike(named[0]), f"StoreOffsets failed: {named[0]} is not assigned to this consumer")
        self.done_below(given)

    def commit(
        self, below: Mapping[Partition, int] | None, *, asynchronous: bool, by_offsets: bool = False
    ) -> list[TopicPartition] | None:
        """Commit the watermarks of partitions.

        Args:
            below: the partitions, and the offsets below which the loop has reported their records as done; None = all.
            asynchronous: as the client's.
            by_offsets: whether the loop has given offsets, which may lie beyond the returned records.

        Raises:
            KafkaException: _TIMED_OUT: the store has not acknowledged the done records; _ASSIGNMENT_LOST: records that
                were reported as done are not in the loop's hands any more, and are returned again; _NO_OFFSET: there is
                nothing to commit.
        """
        self._driven.collect()
        self._driven.settle()
        ahead = self._skipped(below) if below and by_offsets else {}
        if asynchronous:
            if below is None:  # only partitions that have moved: elsewhere a transaction may have committed meanwhile
                self._family.partitions.commits.commit_moved(self._owners(below))
            else:
                self._family.partitions.commits.commit(self._owners(below))
            if ahead:
                self._source.commit(ahead)
            if lost := sorted((below or {}).keys() - self._owned(below).keys() - ahead.keys()):
                self._source.callbacks.not_committed(KafkaError(_LOST), topic_partitions(lost, below))
            return None
        self._until_settled(below)
        owned = self._owned(below)
        if below is None:
            owned = {partition: owner for partition, owner in owned.items() if self._has_news(owner)}
        targets = {partition: owner.ledger.watermark for partition, owner in owned.items()} | ahead
        self._check_ours(below, targets)
        replies = self._source.commit_now(targets)
        for reply in replies:
            owner = self._family.owners.get(partition_of(reply))
            if owner is not None and owner.phase is Phase.OWNED and reply.error is None:
                owner.committed, owner.committed_at = reply.offset, self._driven.parts.runtime.now()
                self._stood[owner] = reply.offset
        return replies

    def _has_news(self, owner: Ownership) -> bool:
        """Whether the loop has an offset to commit there: the client raises _NO_OFFSET if all is committed."""
        self._stood = {each: at for each, at in self._stood.items() if each.phase is Phase.OWNED}
        stood = self._stood.get(owner)
        if owner.elsewhere > owner.ledger.watermark:
            return False  # another program has committed a higher offset
        return owner.moved_at > 0 if stood is None else stood != owner.ledger.watermark

    def _skipped(self, below: Mapping[Partition, int]) -> dict[Partition, int]:
        """Skip records that the loop reports as done before they were returned: reading goes on after them, here and at
        the next owner.

        Returns:
            Such partitions, and the offsets at which they go on.
        """
        ours = self._family.partitions
        found = {partition: offset for partition, offset in below.items() if self._is_beyond(partition, offset)}
        for partition, offset in found.items():
            ours.restart(partition, offset)
            self._driven.user.reads_from(partition, offset)
        return found

    def _is_beyond(self, partition: Partition, offset: int) -> bool:
        owner = self._family.owners.get(partition)
        if owner is None or self._driven.done_when == "explicit":
            return False
        if owner.phase in (Phase.RESETTING, Phase.ADOPTING):  # a lower offset may be a late commit
            return offset >= owner.adopting
        return owner.phase is Phase.OWNED and (_unreturned(owner, offset) or owner.ledger.next < offset)

    def _owners(self, below: Mapping[Partition, int] | None) -> list[Ownership]:
        return [owner for owner in self._family.owners.values() if below is None or owner.partition in below]

    def _owned(self, below: Mapping[Partition, int] | None) -> dict[Partition, Ownership]:
        return {owner.partition: owner for owner in self._owners(below) if owner.phase is Phase.OWNED}

    def _check_ours(self, below: Mapping[Partition, int] | None, targets: Mapping[Partition, int]) -> None:
        """Check that the records which the loop has reported as done will be committed. Raises KafkaException:
        _NO_OFFSET only if nothing was lost, since loops take that for harmless."""
        for partition, offset in (below or {}).items():
            least = 0 if self._driven.done_when == "explicit" else offset
            if targets.get(partition, -1) < least:
                raise differs(
                    _LOST,
                    f"{partition} cannot be committed at {offset}: records below it were not returned to this loop, or "
                    "this loop does not own them any more; they are returned (again)",
                )
        user, refused = self._driven.user, self._family.partitions.refused_marks
        lost = user.lost or refused > self._refused_marks
        user.lost, self._refused_marks = False, refused
        if not targets and lost:
            raise differs(
                _LOST, "this loop does not own the returned records any more: their partitions' new owners get them"
            )
        if not targets:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - librdkafka's name

    def _until_settled(self, below: Mapping[Partition, int] | None) -> None:
        """Wait until the store has acknowledged the done records: only acknowledged ones are committed."""
        driven, owners = self._driven, self._owners(below)
        deadline = Deadline(min(_ASK_S, self._source.max_poll_interval_s / 2), driven.parts.runtime)
        while any(entry.state is EntryState.ENDED for owner in owners for entry in owner.entries.values()):
            if deadline.passed:
                raise differs(
                    KafkaError._TIMED_OUT,  # noqa: SLF001 - librdkafka's name
                    "the store has not acknowledged the done records, so they cannot be committed yet: commit again; "
                    "once it answers, they are committed in any case",
                )
            driven.parts.workers.wake.wait(_LOOK_S)
            driven.work()

    def position(self, one: TopicPartition) -> TopicPartition:
        """The position: the offset after the last returned record, and after following offsets that are not
        returned."""
        partition = partition_of(one)
        position = self._family.partitions.wishes.get(partition)
        if position is None:
            position = self._read_up_to(partition)
        return TopicPartition(one.topic, one.partition, _INVALID if position is None else position)

    def _read_up_to(self, partition: Partition) -> int | None:
        owner = self._family.owners.get(partition)
        if owner is None:
            return None
        returned, ledger = self._driven.user.position(partition), owner.ledger
        if owner.phase is not Phase.OWNED or ledger.next == ledger.first or _unreturned(owner, ledger.next):
            return returned
        return max(ledger.next, returned or 0)

    def take_error(self) -> Message | None:
        """Take the next message with an error that may be returned now."""
        told = self._source.error_messages
        if not told:
            return None
        self._driven.collect()  # records that were given back come before an end of their partition
        at = self.next_returnable
        if at is None:
            return None
        message = told[at]
        del told[at]
        return message

    @property
    def next_returnable(self) -> int | None:
        """The index of the first such message that may be returned now: the end of a partition follows its records."""
        return next((at for at, message in enumerate(self._source.error_messages) if not self._is_ahead(message)), None)

    @staticmethod
    def _is_end_of(message: Message, partition: Partition | None = None) -> bool:
        error = message.error()
        end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name
        return end and (partition is None or place_of(message)[0] == partition)

    def _is_ahead(self, message: Message) -> bool:
        """Whether it is the end of a partition that is paused, or that has fetched records not returned yet."""
        if not self._is_end_of(message):
            return False
        partition, offset = place_of(message)
        if self._driven.user.is_held(partition):
            return True
        owner = self._family.owners.get(partition)
        return owner is not None and _unreturned(owner, offset)

    def seek(self, one: TopicPartition) -> None:
        """Read on from there; inside of on_assign, after that has returned, as with `assign`. Raises KafkaException,
        SourceError."""
        partition = partition_of(one)
        if not self.is_assigned(partition):
            raise as_client(self._unlike(partition), f"Failed to seek: {partition} is not assigned to this consumer")
        if not is_place(one.offset):
            raise as_client(KafkaError._INVALID_ARG, f"Failed to seek to offset {one.offset}")  # noqa: SLF001 - librdkafka's name
        if self._source.callbacks.wanted is not None:
            self._source.callbacks.wanted.append(one)
            return
        self._go(partition, one)

    def begin(
        self, came: Sequence[Partition], wanted: Sequence[TopicPartition], chosen: Sequence[Partition] | None
    ) -> None:
        """Begin with partitions after on_assign. The group may give partitions that on_assign has not assigned to
        another member; until then none of their records is returned. Raises SourceError.

        Args:
            came: the new partitions.
            wanted: offsets that on_assign has given.
            chosen: the partitions that on_assign has assigned; None = it has called no assign.
        """
        left_out = set() if chosen is None else set(came).difference(chosen)
        again = self.left_out.intersection(came) - left_out
        self.left_out = (self.left_out | left_out) - again
        self._driven.user.let(again)
        self._driven.user.hold(left_out)
        self._begin_at([one for one in wanted if partition_of(one) not in left_out])

    def _begin_at(self, wanted: Sequence[TopicPartition]) -> None:
        """Begin at the offsets that on_assign has given by `assign` and `seek`; the last one of a partition counts.
        Raises SourceError."""
        for partition, one in {partition_of(one): one for one in wanted}.items():
            self._go(partition, one)

    def _go(self, partition: Partition, one: TopicPartition) -> None:
        self._driven.read_from(partition, self._resolved(one))
        told = self._source.error_messages
        for message in [message for message in told if self._is_end_of(message, partition)]:
            told.remove(message)  # reading up to the end again brings it again

    def is_assigned(self, partition: Partition) -> bool:
        """Whether the partition is assigned to the client."""
        return partition in self._family.partitions.assignment

    def _unlike(self, partition: Partition) -> int:
        """The client's code for a partition that is not assigned: _STATE if it knows the topic, else
        _UNKNOWN_PARTITION."""
        known = {*self.topics, *(each.topic for each in self._family.partitions.assignment)}
        return KafkaError._STATE if partition.topic in known else KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - librdkafka's names

    def _resolved(self, one: TopicPartition) -> int:
        return self._source.resolve(partition_of(one), one.offset, Deadline(_ASK_S, SYSTEM_CLOCK))


def _unreturned(owner: Ownership, below: int) -> bool:
    """Whether a fetched record below this offset was not returned."""
    return any(entry.state in UNSTARTED and entry.record.offset < below for entry in owner.entries.values())


def is_place(offset: int) -> bool:
    """Whether reading may begin there: a number, the beginning, the end, or so many records before the end."""
    return offset >= 0 or offset in (BEGINNING, END) or offset <= TAIL


def behind(message: Message) -> TopicPartition:
    """The offset to commit when the message is done. Raises ValueError, as `place_of`."""
    partition, offset = place_of(message)
    return TopicPartition(partition.topic, partition.number, offset + 1)


def place_of(message: Message) -> tuple[Partition, int]:
    """Partition and offset of a message. Raises ValueError: it has none."""
    topic, number, offset = message.topic(), message.partition(), message.offset()
    if topic is None or number is None or offset is None:
        raise ValueError("this message carries an error, not a record")
    return Partition(topic, number), offset
