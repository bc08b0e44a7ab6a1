"""One queue that is read: its pulls, and what has come and was not taken yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.headers import Headers, headers_of, value_of
from holdfast.adapters.rocketmq.names import RETRY, tags_of
from holdfast.adapters.rocketmq.pulls import Pulls
from holdfast.adapters.rocketmq.remoting import Malformed
from holdfast.adapters.rocketmq.remoting.decoding import Plain, decode_each, read_plain
from holdfast.adapters.rocketmq.remoting.messages import KEYS, RECONSUME_TIMES, RETRY_TOPIC, TAGS
from holdfast.errors import HoldfastError, RecordUnreadable, SourceError
from holdfast.plugin.retrying.dead_letter import PREFIX, RETRY_OF
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.adapters.rocketmq.remoting import PullAnswer, Subscription
    from holdfast.records import Fence, Partition

#: What may begin a property whose value is in base64, or that only we may put on.
_OURS = PREFIX.encode()
_TRIES = RECONSUME_TIMES.encode()
_RETRY_TOPIC = RETRY_TOPIC.encode()
#: Headers that say what sources alone know; what others have written under these names is left out.
_ONLY_OURS = frozenset({RECONSUME_TIMES, RETRY_OF})


class Moved(NamedTuple):
    """The broker says that the group is to read on elsewhere."""

    queue: Partition
    #: Where it was asked to read, and what it answered.
    asked: int
    answer: PullAnswer

    @property
    def is_reset(self) -> bool:
        """A reset is told by no code of its own. But no other reason moves an offset that lies within the log, or to a
        place that is neither its beginning nor its end."""
        least, most = self.answer.min_offset, self.answer.max_offset
        return least <= self.asked <= most or self.answer.next_offset not in (least, most)


class Chunk:
    """The messages of one pull. Decoded by who takes it."""

    __slots__ = ("asked", "body", "count", "next_offset", "records", "taken", "unreadable")

    def __init__(self, answer: PullAnswer, asked: int) -> None:
        self.body = answer.body
        self.asked, self.next_offset = asked, answer.next_offset
        #: At most; what the broker has filtered out counts, until it is decoded.
        self.count = max(1, answer.next_offset - asked) if answer.body else 0
        self.records: Sequence[Record] | None = None
        #: Of those whose value is what there is of a message that cannot be read: offset to why.
        self.unreadable: dict[int, RecordUnreadable] = {}
        self.taken = 0


class Reading:
    """The reading of a queue. The lock of its Prefetch guards all fields but those that never change."""

    __slots__ = (
        "_reads",
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

    def __init__(
        self,
        queue: Partition,
        subscription: Subscription,
        offset: int | None,
        *,
        paused: bool,
        reads: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Args: reads: whether that topic is read by this source."""
        self.queue, self.subscription, self._reads = queue, subscription, reads
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
        """Decode a chunk: its records, and why there are no more of them. One that cannot be read is one too, and in
        `unreadable`."""
        found: list[Record] = []
        new = tuple.__new__
        queue, tags, plain = self.queue, self.tags, self.tags is None and not self.is_retry
        try:
            for offset, born_ms, tries, body, raw in read_plain(chunk.body) or self._one_by_one(chunk):
                headers: Sequence[tuple[str, bytes]]
                if plain and not tries and _OURS not in raw and _TRIES not in raw:
                    headers, key = Headers(raw), (value_of(raw, b"KEYS") or None) if b"KEYS" in raw else None
                else:
                    headers = headers_of(raw)
                    # The broker compares hashes of tags.
                    if tags is not None and not self._is_wanted(tags, _last(headers, TAGS), offset, chunk):
                        continue
                    key = _last(headers, KEYS) or None
                    headers = self._with_retry(headers, raw, tries)
                # Record(...) goes through a function in Python, which costs as much as all the rest.
                found.append(new(Record, (queue, offset, key, body, headers, born_ms, fence)))
        except HoldfastError as error:
            after = f", behind offset {found[-1].offset}" if found else ""
            return found, _stops(f"{queue}{after}, up to {chunk.next_offset}", error)
        return found, None

    def _is_wanted(self, tags: frozenset[str], tag: bytes | None, offset: int, chunk: Chunk) -> bool:
        if tag is None and offset in chunk.unreadable:
            return True  # its tag may be what cannot be read; the broker, which has it in its index, has chosen it
        return (tag or b"").decode("utf-8", "replace") in tags

    def _with_retry(
        self, headers: Sequence[tuple[str, bytes]], raw: bytes, tries: int
    ) -> tuple[tuple[str, bytes], ...]:
        """How often a record has been tried, by its frame, and where one was born that comes by a retry topic: a topic
        that is read. Elsewhere, or of another topic, the property is anybody's."""
        added: list[tuple[str, bytes]] = []
        if tries or self.is_retry:
            added.append((RECONSUME_TIMES, str(tries).encode()))
        if self.is_retry:
            origin = value_of(raw, _RETRY_TOPIC)
            if origin is not None and self._reads(origin.decode("utf-8", "replace")):
                added.append((RETRY_OF, origin))
        return (*(each for each in headers if each[0] not in _ONLY_OURS), *added)

    def _one_by_one(self, chunk: Chunk) -> Iterator[Plain]:
        """Read messages that are not plain, or not right. Raises HoldfastError where nothing more can be read."""
        for each in decode_each(chunk.body, chunk.next_offset):
            if each.offset < chunk.asked:
                continue  # of several in one entry the broker gives all, wherever in it the pull began
            try:
                body = each.body
            except Malformed as error:
                body = each.raw_body
                unreadable = RecordUnreadable(
                    f"{self.queue}@{each.offset} (message {each.message_id}) cannot be read: {error}"
                )
                unreadable.__cause__ = error
                chunk.unreadable[each.offset] = unreadable
            yield Plain(each.offset, each.born_ms, each.reconsume_times, body, each.raw_properties)


def _stops(place: str, error: HoldfastError) -> SourceError:
    """An error that stops the app: it is nothing of the record itself, so that a dead letter would be no cure."""
    stops = SourceError(f"{place}: {error}")
    stops.__cause__ = error
    return stops


def _last(headers: Sequence[tuple[str, bytes]], wanted: str) -> bytes | None:
    return next((value for name, value in reversed(headers) if name == wanted), None)
