"""Requests about offsets: 14, 15, 29, 30, 31."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.errors import CommitIgnored
from holdfast.adapters.rocketmq.remoting.in_flight import Request

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.records import Partition


def query(queue: Partition, group: str) -> Request:
    """A group's committed offset."""
    # Without setZeroIfNotFound=false a broker answers 0 for a group that has none, while the queue's head is in memory.
    fields = {"consumerGroup": group, **_of(queue), "setZeroIfNotFound": "false"}
    return Request(codes.Request.QUERY_CONSUMER_OFFSET, f"asking for the offset of {group} in {queue}", fields)


def read_query(answer: Answer) -> int | None:
    """None = the group has none (22, and nothing else says that). Raises SourceError."""
    if answer.code == codes.QUERY_NOT_FOUND:
        return None
    return answer.expect().number("offset")


def commit(queue: Partition, group: str, offset: int) -> Request:
    """Set a group's offset: the next one to read."""
    fields = {"consumerGroup": group, **_of(queue), "commitOffset": str(offset)}
    return Request(codes.Request.UPDATE_CONSUMER_OFFSET, f"committing {offset} for {group} in {queue}", fields)


def read_commit(answer: Answer) -> None:
    """Raises CommitIgnored, SourceError."""
    answer.expect()
    if answer.remark:  # what was applied has none
        raise CommitIgnored(
            f"{answer.what} at {answer.address}: not applied, {answer.remark[:100]!r}: the next pull tells"
        )


def longest(queue: Partition) -> Request:
    """The end of the log."""
    return Request(codes.Request.GET_MAX_OFFSET, f"asking for the end of {queue}", _of(queue))


def first(queue: Partition) -> Request:
    """The beginning of the log."""
    return Request(codes.Request.GET_MIN_OFFSET, f"asking for the beginning of {queue}", _of(queue))


def at_time(queue: Partition, timestamp_ms: int) -> Request:
    """The first offset stored at that time or later."""
    fields = {**_of(queue), "timestamp": str(timestamp_ms)}
    return Request(codes.Request.SEARCH_OFFSET_BY_TIMESTAMP, f"asking for the offset of a time in {queue}", fields)


def read_offset(answer: Answer) -> int:
    """Raises SourceError."""
    return answer.expect().number("offset")


def _of(queue: Partition) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.number)}
