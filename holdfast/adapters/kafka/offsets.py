"""Offsets read by a consumer, in bounded time. Either all are returned or one typed error is raised, or each partition
has its own answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaException, TopicPartition, partition_of, topic_partitions
from holdfast.adapters.kafka.admin import request_s
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.admin import Admin

#: Special times of ListOffsets, for the log's start and end (Kafka's protocol).
EARLIEST, LATEST = -2, -1
#: The client's special offsets (rdkafka.h): the log's beginning, its end, and n records before the end: TAIL - n.
BEGINNING, END, TAIL = -2, -1, -2000
#: The name of this call in errors.
ENDS = "asking for the ends of the logs"


class OffsetReader(Protocol):
    """A consumer, or an admin client in its place."""

    def list_topics(self, *, timeout: float) -> Any:  # noqa: ANN401 - as the client has it
        """The cluster's topics."""
        ...

    def committed(self, partitions: list[TopicPartition], timeout: float = ...) -> list[TopicPartition]:
        """The group's offsets."""
        ...


def offsets_at(
    consumer: Consumer, partitions: Sequence[Partition], when: int, deadline: Deadline, what: str
) -> dict[Partition, int]:
    """The first offset at or after a time (ms since 1970), or of EARLIEST, LATEST; -1 = the log ends before that time.

    Args:
        consumer: its isolation.level decides where a log ends.
        partitions: without any, no request is sent.
        when: see above.
        deadline: of the whole call.
        what: the name of this call in errors.

    Raises:
        SourceError: about the call, or about one partition.
    """
    asked = topic_partitions(partitions, dict.fromkeys(partitions, when))
    replies = _replies(consumer.offsets_for_times, asked, deadline, what)
    return {partition_of(reply): reply.offset for reply in _without_error(replies)}


def offsets_of_each(
    consumer: Consumer, partitions: Sequence[Partition], when: int, deadline: Deadline, what: str
) -> dict[Partition, int | SourceError]:
    """Ask for offsets of partitions that have a leader (`Admin.leaders`). Each gets its offset or its error. Raises
    errors about all."""
    asked = topic_partitions(partitions, dict.fromkeys(partitions, when))
    replies = _replies(consumer.offsets_for_times, asked, deadline, what)
    return {partition_of(reply): error or reply.offset for reply, error in replies}


def committed(
    consumer: OffsetReader, partitions: Sequence[Partition], deadline: Deadline, what: str
) -> list[TopicPartition]:
    """The offsets that the group has committed, with their metadata; an offset below 0 = none. Arguments and errors as
    above."""
    return _without_error(committed_of_each(consumer, partitions, deadline, what))


def committed_of_each(
    consumer: OffsetReader, partitions: Sequence[Partition], deadline: Deadline, what: str
) -> list[tuple[TopicPartition, SourceError | None]]:
    """The offsets that the group has committed, each with its error or None. Raises errors about all of them."""
    return _replies(consumer.committed, topic_partitions(partitions), deadline, what)


def _replies(
    call: Callable[..., list[TopicPartition]], asked: list[TopicPartition], deadline: Deadline, what: str
) -> list[tuple[TopicPartition, SourceError | None]]:
    if not asked:
        return []
    try:
        replies = call(asked, timeout=request_s(deadline))
    except KafkaException as error:
        raise faults.as_source_error(error.args[0], what) from error
    return [
        (each, None if each.error is None else faults.as_source_error(each.error, f"{what}: {partition_of(each)}"))
        for each in replies
    ]


def _without_error(replies: Sequence[tuple[TopicPartition, SourceError | None]]) -> list[TopicPartition]:
    """The replies. Raises SourceError: the first error among them."""
    for _, error in replies:
        if error is not None:
            raise error
    return [reply for reply, _ in replies]


def offsets_by_leader(
    consumer: Consumer, admin: Admin, partitions: Sequence[Partition], when: int, deadline: Deadline
) -> dict[Partition, int | SourceError]:
    """Ask as `offsets_of_each` about partitions that have a leader now. If a broker does not answer, ask about each
    broker's partitions in a call of their own.

    If a partition has no leader, the client waits for one, and delays all others in the same call.
    """
    leaders = admin.leaders({partition.topic for partition in partitions}, deadline)
    found: dict[Partition, int | SourceError] = {}
    led: dict[int, list[Partition]] = {}
    for one in partitions:
        leader = leaders.get(one, leaders.get(Partition(one.topic, -1)))
        if isinstance(leader, int):
            led.setdefault(leader, []).append(one)
        else:
            found[one] = leader or SourceUnavailable(f"{one}: the brokers know nothing of it yet")
    together = [one for each in led.values() for one in each]
    share = Deadline(deadline.left_s() / 2 if len(led) > 1 else deadline.left_s(), SYSTEM_CLOCK)
    try:
        return found | offsets_of_each(consumer, together, when, share, ENDS)
    except SourceError:
        if len(led) < 2:
            raise
    for own in led.values():
        share = Deadline(deadline.left_s() / len(led), SYSTEM_CLOCK)
        try:
            found |= offsets_of_each(consumer, own, when, share, ENDS)
        except SourceError as error:
            found |= dict.fromkeys(own, error)
    return found


def fetched_watermarks(consumer: Consumer, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
    """The start and the end of each log, from the client's last fetch; below 0 = not known. Partitions without a fetch
    are left out. Does not wait."""
    found: dict[Partition, tuple[int, int]] = {}
    for partition in partitions:
        try:
            where = TopicPartition(partition.topic, partition.number)
            found[partition] = consumer.get_watermark_offsets(where, cached=True)
        except KafkaException:
            continue  # not fetched yet: the same as unknown
    return found
