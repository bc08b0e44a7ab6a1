"""Pulls: read once from all queues of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import RecordUnreadable
from holdfast.plugin.ports import End
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Fence
    from holdfast.testing.brokers.logs import Log
    from tests.simulation.brokers.rocketmq import RocketBroker


class Pulled:
    """A member's position in a queue."""

    __slots__ = ("log", "paused", "position", "told_end")

    def __init__(self, position: int | None, *, paused: bool) -> None:
        #: None = the engine has not decided yet.
        self.position, self.paused = position, paused
        self.told_end = -1
        #: The log that it reads; a topic that was made again has another.
        self.log: int | None = None


class PullTarget(NamedTuple):
    """A queue to read, and the fence of its records."""

    queue: Partition
    reader: Pulled
    log: Log
    fence: Fence | None


class Pull(NamedTuple):
    """The result of reading once from all queues."""

    records: list[Record]
    ends: list[End]
    unreadable: dict[tuple[Partition, int], RecordUnreadable]
    #: (queue, offset to read on from, True if its log was replaced or cut, False if the group was reset).
    moved: list[tuple[Partition, int, bool]]


def pull(
    broker: RocketBroker,
    group: str,
    readers: dict[Partition, Pulled],
    owners: Mapping[Partition, Fence],
    at_most: int,
) -> Pull:
    """Read on in each queue."""
    brought = Pull([], [], {}, [])
    with broker.changed:
        for queue, reader in list(readers.items()):
            log = broker.logs.get(queue)
            if reader.paused or reader.position is None or log is None or len(brought.records) >= at_most:
                continue
            reset = broker.reset_of(group, queue)
            is_cut = reader.log not in (None, log.born) or reader.position > log.end
            reader.log = log.born
            if reset is not None or is_cut:
                reader.position = log.start if reset is None else reset
                brought.moved.append((queue, reader.position, reset is None))
            elif _read(PullTarget(queue, reader, log, owners.get(queue)), brought, at_most):
                readers[queue] = readers.pop(queue)  # the other queues come first the next time
    return brought


def _read(place: PullTarget, brought: Pull, at_most: int) -> bool:
    """Read on in one queue. Returns: whether there was a message."""
    queue, reader, log, fence = place
    at, some = reader.position or 0, False
    if at < log.start:  # messages before it have expired unread
        at = log.start
        brought.ends.append(End(queue, at))
    for offset in log.from_(at, at_most - len(brought.records)):
        stored = log.records[offset]
        if fence is not None:
            brought.records.append(Record(queue, offset, stored.key, stored.value, stored.headers, -1, fence))
        if offset in log.spoilt:
            brought.unreadable[queue, offset] = RecordUnreadable(f"{queue}@{offset} cannot be read")
        at, some = offset + 1, True
    if not log.from_(at, 1) and reader.told_end != log.end:
        at = reader.told_end = log.end
        brought.ends.append(End(queue, at))
    reader.position = at
    return some
