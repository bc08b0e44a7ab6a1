"""Requests about one queue: its offsets (14, 15, 29, 30, 31), and its messages (11).

Only code 22 says that a group has no offset, and only if setZeroIfNotFound=false was asked. For a group without members
brokers have code 1, as for any failure: the tools' request (203) tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.answers import CommitIgnored
from holdfast.adapters.rocketmq.remoting.decoding import decode_messages
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.errors import SettingError, SourceUnavailable

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.membership import Subscription
    from holdfast.adapters.rocketmq.remoting.messages import StoredMessage
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


_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4

#: A suspended pull ends on a tick of 5 s, so it may last so much longer than asked for; and some.
PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull.

    Args:
        queue: to read.
        group: for which; a group that the broker does not know is created by this, if it may be.
        offset: the next one to read.
        subscription: sent along, so that no heartbeat is needed; the broker compares tags by hash: compare again.
        max_messages: a broker gives 32 at most by default, and 256 KiB.
        suspend_s: how long the broker may wait for messages; 0 = it answers at once.
        commit: an offset that the broker notes on the way; masters alone do.
    """

    queue: Partition
    group: str
    offset: int
    subscription: Subscription
    max_messages: int = 32
    suspend_s: float = 15.0
    commit: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_messages <= 1024:
            raise SettingError("max_messages", self.max_messages, "1 to 1024")
        if not 0 <= self.suspend_s <= 300:
            raise SettingError("suspend_s", self.suspend_s, "0 (answer at once) to 300 seconds")

    @property
    def timeout_s(self) -> float:
        """After which there is no answer."""
        return self.suspend_s + PATIENCE_S


class PullStatus(Enum):
    """The status of a pull."""

    FOUND = "found"
    NONE_NEW = "none new"
    NONE_MATCHED = "none matched"  #: messages were there, but not of these tags: go on from next_offset
    MOVED = "moved"  #: the offset was outside of the log, or was reset: next_offset is where to go on


_STATUS: Final = {
    codes.SUCCESS: PullStatus.FOUND,
    codes.PULL_NOT_FOUND: PullStatus.NONE_NEW,
    codes.PULL_RETRY_IMMEDIATELY: PullStatus.NONE_MATCHED,
    codes.PULL_OFFSET_MOVED: PullStatus.MOVED,
}


class PullAnswer(NamedTuple):
    """The answer to a pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    address: str
    suggested_broker_id: int
    remark: str | None

    def is_reset(self, asked: int) -> bool:
        """Whether somebody has reset the group, of an answer to a pull there: no code of its own tells it. A broker
        moves an offset for two other reasons: one below the log to its beginning, one beyond it to either end."""
        if self.status is not PullStatus.MOVED:
            return False
        if asked < self.min_offset:
            return self.next_offset != self.min_offset
        return asked <= self.max_offset or self.next_offset not in (self.min_offset, self.max_offset)

    def messages(self) -> list[StoredMessage]:
        """The messages, decoded by whoever calls. Raises Malformed."""
        return decode_messages(self.body) if self.status is PullStatus.FOUND else []


def pull(request: PullRequest, *, of_master: bool) -> Request:
    """The request to a master, or to a slave."""
    bits = _SUBSCRIPTION
    if request.suspend_s > 0:
        bits |= _SUSPEND
    if of_master and request.commit is not None:
        bits |= _COMMIT
    fields = {
        "consumerGroup": request.group,
        "topic": request.queue.topic,
        "queueId": str(request.queue.number),
        "queueOffset": str(request.offset),
        "maxMsgNums": str(request.max_messages),
        "sysFlag": str(bits),
        "commitOffset": str(request.commit or 0),
        "suspendTimeoutMillis": str(int(request.suspend_s * 1000)),
        "subscription": request.subscription.expression,
        "subVersion": str(request.subscription.version),
        "expressionType": request.subscription.kind,
    }
    return Request(codes.Request.PULL_MESSAGE, f"pulling {request.queue} from {request.offset}", fields)


def read_pull(answer: Answer, asked: int | None = None) -> PullAnswer:
    """Raises SourceError for all but the four; and SourceUnavailable where nothing is found at the offset that was
    asked for, and the broker would go on behind it: it cannot read its index there (OFFSET_FOUND_NULL), and leaves out
    a file of it, 300,000 messages."""
    answer.expect(*_STATUS)
    following = answer.number("nextBeginOffset")
    if answer.code == codes.PULL_NOT_FOUND and asked is not None and following > asked:
        raise SourceUnavailable(
            f"{answer.what} at {answer.address}: the broker cannot find messages {asked} to {following - 1}, and would "
            f"leave them out; they are asked for again: see its store.log, mend its consume queue, or reset the group "
            f"to {following}"
        )
    return PullAnswer(
        _STATUS[answer.code],
        following,
        answer.number("minOffset"),
        answer.number("maxOffset"),
        answer.body,
        answer.address,
        answer.number("suggestWhichBrokerId"),
        answer.remark,
    )
