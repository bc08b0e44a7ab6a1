"""One queue that is read: its pulls, and what has come and was not taken yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.headers import BASE64, Headers, headers_of, value_of
from holdfast.adapters.rocketmq.names import RETRY, tags_of
from holdfast.adapters.rocketmq.pulls import Pulls
from holdfast.adapters.rocketmq.remoting import decode_messages
from holdfast.adapters.rocketmq.remoting.messages import Plain, read_plain
from holdfast.adapters.rocketmq.remoting.properties import KEYS, RECONSUME_TIMES, RETRY_TOPIC, TAGS
from holdfast.errors import HoldfastError
from holdfast.plugin.dead_letter import RETRY_OF
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.adapters.rocketmq.remoting import PullAnswer, Subscription
    from holdfast.records import Fence, Partition

_BASE64 = BASE64.encode()


class Chunk:
    """What one pull brought. Decoded by who takes it."""

    __slots__ = ("body", "count", "next_offset", "records", "taken")

    def __init__(self, answer: PullAnswer, asked: int) -> None:
        self.body = answer.body
        self.next_offset = answer.next_offset
        #: At most; what the broker has filtered out counts, until it is decoded.
        self.count = max(1, answer.next_offset - asked) if answer.body else 0
        self.records: Sequence[Record] | None = None
        self.taken = 0


class Reading:
    """Its fields are guarded by the lock of its Prefetch, but for what never changes."""

    __slots__ = (
        "chunks",
        "count",
        "is_retry",
        "paused",
        "pulls",
        "queue",
        "queued",
        "size",
        "subscription",
        "tags",
        "troubles",
        "wait_until",
    )

    def __init__(self, queue: Partition, subscription: Subscription, offset: int | None, *, paused: bool) -> None:
        self.queue, self.subscription = queue, subscription
        self.tags = tags_of(subscription.expression)
        self.is_retry = queue.topic.startswith(RETRY)
        self.pulls = Pulls(offset)
        self.paused = paused
        self.chunks: deque[Chunk] = deque()
        self.count = self.size = 0
        #: Whether it stands in the row of those that have something.
        self.queued = False
        self.troubles = 0
        self.wait_until = 0.0

    def records(self, chunk: Chunk, fence: Fence | None) -> tuple[Sequence[Record], HoldfastError | None]:
        """Decode a chunk: its records, and why there are no more of them."""
        found: list[Record] = []
        new = tuple.__new__
        queue, tags, plain = self.queue, self.tags, self.tags is None and not self.is_retry
        try:
            for offset, born_ms, tries, body, raw in read_plain(chunk.body) or _one_by_one(chunk.body):
                headers: Sequence[tuple[str, bytes]]
                if plain and not tries and _BASE64 not in raw:
                    headers, key = Headers(raw), value_of(raw, b"KEYS") if b"KEYS" in raw else None
                else:
                    headers = headers_of(raw)
                    # The broker compares hashes of tags.
                    if tags is not None and (_last(headers, TAGS) or b"").decode("utf-8", "replace") not in tags:
                        continue
                    key = _last(headers, KEYS)
                    if tries or self.is_retry:
                        headers = _with_retry(headers, tries)
                # Record(...) goes through a function in Python, which costs as much as all the rest.
                found.append(new(Record, (queue, offset, key, body, headers, born_ms, fence)))
        except HoldfastError as error:
            return found, error
        return found, None


def _one_by_one(payload: bytes) -> Iterator[Plain]:
    """What is not plain, or not right: raises HoldfastError where it comes to that."""
    for each in decode_messages(payload):
        yield Plain(each.offset, each.born_ms, each.reconsume_times, each.body, each.raw_properties)


def _last(headers: Sequence[tuple[str, bytes]], wanted: str) -> bytes | None:
    return next((value for name, value in reversed(headers) if name == wanted), None)


def _with_retry(headers: Sequence[tuple[str, bytes]], tries: int) -> tuple[tuple[str, bytes], ...]:
    """The origin of a record that comes by a retry topic, and how often it has been tried."""
    added = [(RECONSUME_TIMES, str(tries).encode())]
    origin = next((value for name, value in headers if name == RETRY_TOPIC), None)
    if origin is not None:
        added.append((RETRY_OF, origin))
    return (*(each for each in headers if each[0] != RECONSUME_TIMES), *added)
