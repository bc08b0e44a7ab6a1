"""Requests about one queue: its offsets (14, 15, 29, 30, 31), and its messages (11).

Only code 22 says that a group has no offset, and only if the request has setZeroIfNotFound=false. For a group without
members brokers answer code 1, as for any failure; only the tools' request (203) tells which.
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
    # Without setZeroIfNotFound=false a broker answers 0 for a group without an offset while the queue's head is in
    # memory.
    fields = {"consumerGroup": group, **_of(queue), "setZeroIfNotFound": "false"}
    return Request(codes.Request.QUERY_CONSUMER_OFFSET, f"asking for the offset of {group} in {queue}", fields)


def read_query(answer: Answer) -> int | None:
    """The committed offset; None: the group has none (only code 22 says so). Raises SourceError."""
    if answer.code == codes.QUERY_NOT_FOUND:
        return None
    return answer.expect().number("offset")


def commit(queue: Partition, group: str, offset: int) -> Request:
    """Set a group's offset: the next one to read."""
    fields = {"consumerGroup": group, **_of(queue), "commitOffset": str(offset)}
    return Request(codes.Request.UPDATE_CONSUMER_OFFSET, f"committing {offset} for {group} in {queue}", fields)


def read_commit(answer: Answer) -> None:
    """Check the answer to a commit. Raises CommitIgnored, SourceError."""
    answer.expect()
    if answer.remark:  # the answer to a commit that was applied has none
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
    """The first offset whose message was stored at this time or later."""
    fields = {**_of(queue), "timestamp": str(timestamp_ms)}
    return Request(codes.Request.SEARCH_OFFSET_BY_TIMESTAMP, f"asking for the offset of a time in {queue}", fields)


def read_offset(answer: Answer) -> int:
    """The offset in an answer. Raises SourceError."""
    return answer.expect().number("offset")


def _of(queue: Partition) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.number)}


_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4

#: Added to a pull's timeout: a broker ends suspended pulls on a tick of 5 s, so one may last that much longer.
PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull.

    Args:
        queue: the queue to read.
        group: the consumer group. The request creates it at the broker, if the broker allows that.
        offset: the next offset to read.
        subscription: sent along, so that no heartbeat is needed. The broker compares only hashes of tags.
        max_messages: a broker returns 32 at most by default, and 256 KiB.
        suspend_s: how long the broker may wait for messages; 0: it answers at once.
        commit: an offset that a master commits with the pull; slaves do not.
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
        """Seconds after which no answer is expected any more."""
        return self.suspend_s + PATIENCE_S


class PullStatus(Enum):
    """The status of a pull."""

    FOUND = "found"
    NONE_NEW = "none new"
    NONE_MATCHED = "none matched"  #: there are messages, but not with these tags: go on at next_offset
    MOVED = "moved"  #: the offset is outside of the log, or was reset: go on at next_offset


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
        """Whether the answer to a pull at offset `asked` means a reset of the group. A reset has no code of its own:
        brokers also answer MOVED for an offset below the log (to its beginning) and beyond it (to either end)."""
        if self.status is not PullStatus.MOVED:
            return False
        if asked < self.min_offset:
            return self.next_offset != self.min_offset
        return asked <= self.max_offset or self.next_offset not in (self.min_offset, self.max_offset)

    def messages(self) -> list[StoredMessage]:
        """Decode the messages. Raises Malformed."""
        return decode_messages(self.body) if self.status is PullStatus.FOUND else []


def pull(request: PullRequest, *, of_master: bool) -> Request:
    """The pull request, to a master or to a slave."""
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
    """Read the answer to a pull. Raises SourceError for codes other than the four of `_STATUS`. Raises
    SourceUnavailable if a broker finds nothing at the offset `asked` and would go on behind it: it cannot read its
    index there (OFFSET_FOUND_NULL), and would skip one of its files, 300,000 messages."""
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
