"""One queue that is read: its pulls, and what has come and was not taken yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.headers import Headers, headers_of, value_of
from holdfast.adapters.rocketmq.names import RETRY, popped_from, tags_of
from holdfast.adapters.rocketmq.pulls import Pulls
from holdfast.adapters.rocketmq.remoting import Malformed
from holdfast.adapters.rocketmq.remoting.decoding import Plain, entries, read_plain
from holdfast.adapters.rocketmq.remoting.messages import KEYS, POLL_BYTES, RECONSUME_TIMES, RETRY_TOPIC, TAGS
from holdfast.errors import HoldfastError, RecordUnreadable, SourceError
from holdfast.plugin.retrying.dead_letter import PREFIX, RETRY_OF
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.adapters.rocketmq.remoting import PullAnswer, StoredMessage, Subscription
    from holdfast.records import Fence, Partition

#: Of one read, where the reader asks for no less: a batch in one entry may be hundreds of thousands.
MOST_RECORDS: Final = 10_000
#: What may begin a property whose value is in base64, or that only we may put on.
_OURS = PREFIX.encode()
_TRIES = RECONSUME_TIMES.encode()
_RETRY_TOPIC = RETRY_TOPIC.encode()
#: What a broker adds to a message that it has given out (POP) and brings again (PopReviveService of 5.5.0).
_ORIGIN_GROUP, _FIRST_POP_TIME = b"ORIGIN_GROUP", b"1ST_POP_TIME"
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
        """See `PullAnswer.is_reset`."""
        return self.answer.is_reset(self.asked)


class Chunk:
    """The messages of one pull, decoded by who takes them: what is plain at once, since it is as large as it came, the
    rest one by one and no further than there is room for. Nothing is kept unpacked from one call to the next."""

    __slots__ = ("_at", "_plain", "asked", "body", "count", "next_offset", "over", "room", "unreadable")

    def __init__(self, answer: PullAnswer, asked: int) -> None:
        self.body = answer.body
        #: The next offset to read, and where in the body its entry begins.
        self.asked, self._at = asked, 0
        self.next_offset = answer.next_offset
        #: At most; what the broker has filtered out counts, until it is decoded.
        self.count = max(1, answer.next_offset - asked) if answer.body else 0
        self._plain: list[Plain] | None = None
        #: Nothing of it is left to read.
        self.over = not answer.body
        #: What was left of the room at the end of the last read.
        self.room = 0
        #: Of those whose value is what there is of a message that cannot be read: offset to why.
        self.unreadable: dict[int, RecordUnreadable] = {}

    def read(self, queue: Partition, at_most: int, room: int) -> Iterable[Plain]:
        """The next messages.

        Args:
            queue: where they are from.
            at_most: so many.
            room: bytes of bodies, unpacked; the last body may overshoot it.

        Raises:
            HoldfastError: nothing more can be read.
        """
        if not self._at and self._plain is None:
            self._plain = read_plain(self.body)
        plain = self._plain
        if plain is None:
            return self._one_by_one(queue, at_most, room)
        self._plain, self.room = plain[at_most:], room - len(self.body)
        self.over = not self._plain
        return plain[:at_most]

    def _one_by_one(self, queue: Partition, at_most: int, room: int) -> Iterator[Plain]:
        self.room = room
        for entry in entries(self.body, self.next_offset, self._at):
            for each in entry.messages:
                if each.offset < self.asked:
                    continue  # of several in one entry the broker gives all, wherever in it the pull began
                yield self._unpacked(queue, each)
                at_most -= 1
                if (at_most <= 0 or self.room <= 0) and isinstance(entry.messages, Iterator):
                    self.asked = each.offset + 1  # within a batch
                    return
            self._at = entry.after
            if at_most <= 0 or self.room <= 0:
                break
        self.over = self._at >= len(self.body)

    def _unpacked(self, queue: Partition, message: StoredMessage) -> Plain:
        try:
            body = message.body
        except Malformed as error:
            body = message.raw_body
            unreadable = RecordUnreadable(
                f"{queue}@{message.offset} (message {message.message_id}) cannot be read: {error}"
            )
            unreadable.__cause__ = error
            self.unreadable[message.offset] = unreadable
            self.room = 0  # how much was unpacked in vain is not known
        self.room -= len(body)
        return Plain(message.offset, message.born_ms, message.reconsume_times, body, message.raw_properties)


class Reading:
    """The reading of a queue. The lock of its Prefetch guards all fields but those that never change."""

    __slots__ = (
        "_born_in",
        "_group",
        "_popped_from",
        "chunks",
        "count",
        "expected",
        "is_retry",
        "paused",
        "pulls",
        "queue",
        "queued",
        "reserved",
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
        group: str = "",
        born_in: Callable[[str], str | None] = lambda named: named,
    ) -> None:
        """Args:
        queue: which.
        subscription: what of it.
        offset: where to begin; None: not before a seek.
        paused: nothing is read before it is resumed.
        group: who reads.
        born_in: see `Topics`.
        """
        self.queue, self.subscription, self._group, self._born_in = queue, subscription, group.encode(), born_in
        self.tags = tags_of(subscription.expression)
        self.is_retry = queue.topic.startswith(RETRY)
        #: Of a topic into which brokers put what they gave out one by one, and was not acknowledged: of which one.
        self._popped_from = born_in(queue.topic) if popped_from(group, queue.topic) else None
        self.pulls = Pulls(offset)
        self.paused = paused
        self.chunks: deque[Chunk] = deque()
        self.count = self.size = 0
        #: What each pull under way may bring, in messages and bytes, by what the last one has: next to nothing at the
        #: log's end. None: it was not asked yet. And what was set aside for those that are under way.
        self.expected: tuple[int, int] | None = None
        self.reserved = (0, 0)
        #: Whether it stands in the row of those that have something.
        self.queued = False
        self.troubles = 0
        self.wait_until = 0.0

    def records(
        self, chunk: Chunk, fence: Fence | None, *, at_most: int = MOST_RECORDS, room: int = POLL_BYTES
    ) -> tuple[Sequence[Record], HoldfastError | None]:
        """Decode the next messages of a chunk: their records, and why there are no more of them. One that cannot be
        read is one too, and in `unreadable`. `at_most` and `room` as of `Chunk.read`."""
        found: list[Record] = []
        new = tuple.__new__
        queue, tags, plain = self.queue, self.tags, self.tags is None and not self.is_retry
        try:
            for offset, born_ms, tries, body, raw in chunk.read(queue, at_most, room):
                headers: Sequence[tuple[str, bytes]]
                if self._popped_from is not None and not self._was_popped_by_us(raw):
                    continue
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
        if self.is_retry and (origin := self._popped_from or self._origin(raw)) is not None:
            added.append((RETRY_OF, origin.encode()))
        return (*(each for each in headers if each[0] not in _ONLY_OURS), *added)

    def _origin(self, raw: bytes) -> str | None:
        """The topic that is read, which a message says that it was born in."""
        said = value_of(raw, _RETRY_TOPIC)
        return None if said is None else self._born_in(said.decode("utf-8", "replace"))

    def _was_popped_by_us(self, raw: bytes) -> bool:
        """Not of a group whose own retry topic has the same name: that of "billing_orders" is also where brokers put
        what "billing" had of "orders"."""
        group = value_of(raw, _ORIGIN_GROUP)
        return group == self._group if group is not None else value_of(raw, _FIRST_POP_TIME) is not None


def _stops(place: str, error: HoldfastError) -> SourceError:
    """An error that stops the app: it is nothing of the record itself, so that a dead letter would be no cure."""
    stops = SourceError(f"{place}: {error}")
    stops.__cause__ = error
    return stops


def _last(headers: Sequence[tuple[str, bytes]], wanted: str) -> bytes | None:
    return next((value for name, value in reversed(headers) if name == wanted), None)
