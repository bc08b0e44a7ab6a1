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
    #: An error that ended the fetch; the next poll raises it.
    trouble: SourceError | None = None


def fetch(
    broker: KafkaTopics,
    readers: dict[Partition, Reader],
    owners: Mapping[Partition, Fence],
    at_most: int,
    slips: Slips | None = None,
) -> Fetched:
    """Read on from the readers' positions. Called with the broker's lock.

    Args:
        broker: its logs.
        readers: a reader that was read moves to the end, so that the next fetch begins with the others.
        owners: Partition -> the fence that its records carry; records of other partitions are dropped.
        at_most: number of records.
        slips: the records that the client skips; None = none.
    """
    records: list[Record] = []
    ends: list[End] = []
    for partition, reader in list(readers.items()):
        log = broker.logs.get(partition)
        if reader.paused or len(records) >= at_most or log is None or not log.led:
            continue
        if reader.position == log.end == reader.told_end:
            continue  # there is nothing new, and the end was reported
        if not log.start <= reader.position <= log.end:
            reader.position = log.start  # out of range: the policy is "earliest"
        for offset in log.from_(reader.position, at_most - len(records)):
            if offset in log.spoilt:
                # Records fetched so far come first; the next poll raises the error.
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
