"""Offsets asked of a consumer: all answered, or raised as one typed error, in bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaException
from holdfast.adapters.kafka.admin import request_s
from holdfast.adapters.kafka.callbacks import topic_partitions
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.kafka._client import Consumer, TopicPartition
    from holdfast.timing import Deadline

#: What ListOffsets takes for a time to answer with the log's start or end (Kafka's protocol).
EARLIEST, LATEST = -2, -1


def offsets_at(
    consumer: Consumer, partitions: Sequence[Partition], when: int, deadline: Deadline, what: str
) -> dict[Partition, int]:
    """The first offset at or after a time (ms since 1970), or of EARLIEST, LATEST; -1 = the log ends before that time.

    Args:
        consumer: whose isolation.level decides where a log ends.
        partitions: none asks nothing.
        when: see above.
        deadline: of the whole call.
        what: for the error: what is being done.

    Raises:
        SourceError: of the call, or of one partition.
    """
    asked = topic_partitions(partitions, dict.fromkeys(partitions, when))
    replies = _ask(lambda timeout_s: consumer.offsets_for_times(asked, timeout=timeout_s), asked, deadline, what)
    return {Partition(reply.topic, reply.partition): reply.offset for reply in replies}


def committed(
    consumer: Consumer, partitions: Sequence[Partition], deadline: Deadline, what: str
) -> list[TopicPartition]:
    """What the group has committed, with its metadata; an offset below 0 = nothing. Arguments and errors as above."""
    asked = topic_partitions(partitions)
    return _ask(lambda timeout_s: consumer.committed(asked, timeout=timeout_s), asked, deadline, what)


def _ask(
    call: Callable[[float], list[TopicPartition]], asked: Sequence[TopicPartition], deadline: Deadline, what: str
) -> list[TopicPartition]:
    if not asked:
        return []
    try:
        replies = call(request_s(deadline))
    except KafkaException as error:
        raise faults.as_source_error(error.args[0], what) from error
    for reply in replies:
        if reply.error is not None:
            raise faults.as_source_error(reply.error, f"{what}: {reply.topic}-{reply.partition}")
    return replies
