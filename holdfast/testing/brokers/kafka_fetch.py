"""Fetching: a member of a Kafka group reads its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import SourceError
from holdfast.plugin.ports import Batch, End
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Fence, Partition
    from holdfast.testing.brokers.kafka_reader import Reader, Slips
    from holdfast.testing.brokers.kafka_topics import KafkaTopics


class Fetched(NamedTuple):
    """Records and ends of logs, in the order of each partition."""

    batch: Batch
    #: Why there is no more, to be raised by the next poll.
    trouble: SourceError | None = None


def fetch(
    broker: KafkaTopics,
    readers: dict[Partition, Reader],
    owners: Mapping[Partition, Fence],
    at_most: int,
    slips: Slips | None = None,
) -> Fetched:
    """Read on where the readers stand. Called with the broker's lock.

    Args: slips: what the client leaves out; None = nothing.

    The readers change their order: who was read last is asked last the next time.
    """
    records: list[Record] = []
    ends: list[End] = []
    for partition, reader in list(readers.items()):
        log = broker.logs.get(partition)
        if reader.paused or len(records) >= at_most or log is None or not log.led:
            continue
        if reader.position == log.end == reader.told_end:
            continue  # there is nothing, and that was said
        if not log.start <= reader.position <= log.end:
            reader.position = log.start  # out of range: the policy is "earliest"
        for offset in log.from_(reader.position, at_most - len(records)):
            if offset in log.spoilt:
                # Behind a hole that nobody looked at, nothing counts.
                trouble = SourceError(f"consuming {partition}: the record at {offset} cannot be read")
                return Fetched(Batch(records, ends), trouble)
            fence = owners.get(partition)
            if slips is not None and slips.leaves_out(partition, reader, log.born, offset):
                fence = None
            if fence is not None:
                stored = log.records[offset]
                at_ms = stored.timestamp_ms
                records.append(Record(partition, offset, stored.key, stored.value, stored.headers, at_ms, fence))
            reader.position = offset + 1
            readers[partition] = readers.pop(partition)
        if not log.from_(reader.position, 1) and reader.told_end != log.end:
            reader.position = reader.told_end = log.end
            ends.append(End(partition, log.end))
    return Fetched(Batch(records, ends))
