"""Reading: makes records of the messages that a pull has brought."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.headers import Headers, headers_of, value_of
from holdfast.adapters.rocketmq.names import RETRY, popped_from, tags_of
from holdfast.adapters.rocketmq.remoting import Malformed
from holdfast.adapters.rocketmq.remoting.decoding import Plain, entries, read_plain
from holdfast.adapters.rocketmq.remoting.messages import KEYS, POLL_BYTES, RECONSUME_TIMES, RETRY_TOPIC, TAGS
from holdfast.errors import HoldfastError, RecordUnreadable, SourceError
from holdfast.plugin.retrying.dead_letter import PREFIX, RETRY_OF
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.adapters.rocketmq.remoting import PullAnswer, StoredMessage
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.records import Fence, Partition

#: The most records of one read. A batch in one entry of the log may have hundreds of thousands.
MOST_RECORDS: Final = 10_000
#: The prefix of properties in base64, and of those that only holdfast may set.
_OURS = PREFIX.encode()
_TRIES = RECONSUME_TIMES.encode()
_RETRY_TOPIC = RETRY_TOPIC.encode()
#: Properties that a broker adds to a message that was given out by POP and is delivered again (PopReviveService of
#: 5.5.0).
_ORIGIN_GROUP, _FIRST_POP_TIME = b"ORIGIN_GROUP", b"1ST_POP_TIME"
#: Headers that only a source may set. Values from producers are removed.
_ONLY_OURS = frozenset({RECONSUME_TIMES, RETRY_OF})


class Chunk:
    """The messages of one pull. The thread that takes them decodes them: plain messages all at once, since they are as
    large as their raw bytes; compressed and batched ones one by one, as far as there is room. No unpacked message is
    kept from one call to the next."""

    __slots__ = ("_at", "_plain", "asked", "body", "count", "next_offset", "over", "room", "unreadable")

    def __init__(self, answer: PullAnswer, asked: int) -> None:
        self.body = answer.body
        #: The next offset to read, and the position in the body at which its entry begins.
        self.asked, self._at = asked, 0
        self.next_offset = answer.next_offset
        #: An upper bound: messages that the broker has filtered out count too.
        self.count = max(1, answer.next_offset - asked) if answer.body else 0
        self._plain: list[Plain] | None = None
        #: All messages are read.
        self.over = not answer.body
        #: The room that the last read has left, in bytes.
        self.room = 0
        #: Offset -> error, for messages that cannot be unpacked. Their value is the raw body.
        self.unreadable: dict[int, RecordUnreadable] = {}

    def read(self, queue: Partition, at_most: int, room: int) -> Iterable[Plain]:
        """The next messages.

        Args:
            queue: the queue, for errors.
            at_most: the most messages.
            room: bytes of unpacked bodies; the last body may exceed it.

        Raises:
            HoldfastError: the rest of the chunk cannot be read.
        """
        if not self._at and self._plain is None:
            self._plain = read_plain(self.body)
        plain = self._plain
        if plain is None:
            return self._decompressed_messages(queue, at_most, room)
        self._plain, self.room = plain[at_most:], room - len(self.body)
        self.over = not self._plain
        return plain[:at_most]

    def _decompressed_messages(self, queue: Partition, at_most: int, room: int) -> Iterator[Plain]:
        self.room = room
        for entry in entries(self.body, self.next_offset, self._at):
            for each in entry.messages:
                if each.offset < self.asked:
                    continue  # a broker returns a whole entry, also if the pull began within it
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
            self.room = 0  # an unknown number of bytes was unpacked before the error
        self.room -= len(body)
        return Plain(message.offset, message.born_ms, message.reconsume_times, body, message.raw_properties)


class Reader:
    """Decodes the messages of one queue into records."""

    __slots__ = ("_group", "_is_retry", "_popped_from", "_queue", "_tags", "_topics")

    def __init__(self, queue: Partition, group: str, topics: Topics) -> None:
        self._queue, self._group, self._topics = queue, group.encode(), topics
        self._tags = tags_of(topics.subscription(queue.topic).expression)
        self._is_retry = queue.topic.startswith(RETRY)
        #: For a POP retry topic: its origin topic.
        self._popped_from = topics.born_in(queue.topic) if popped_from(group, queue.topic) else None

    def records(
        self, chunk: Chunk, fence: Fence | None, *, at_most: int = MOST_RECORDS, room: int = POLL_BYTES
    ) -> tuple[Sequence[Record], HoldfastError | None]:
        """Decode the next messages of a chunk. Returns the records, and the error that stopped decoding, if any. A
        message that cannot be unpacked is a record too, and in `chunk.unreadable`. `at_most`, `room`: see `Chunk.read`.
        """
        found: list[Record] = []
        new = tuple.__new__
        queue, tags, plain = self._queue, self._tags, self._tags is None and not self._is_retry
        try:
            for offset, born_ms, tries, body, raw in chunk.read(queue, at_most, room):
                headers: Sequence[tuple[str, bytes]]
                if self._popped_from is not None and not self._was_popped_by_us(raw):
                    continue
                if plain and not tries and _OURS not in raw and _TRIES not in raw:
                    headers, key = Headers(raw), (value_of(raw, b"KEYS") or None) if b"KEYS" in raw else None
                else:
                    headers = headers_of(raw)
                    # The broker compares only hashes of tags.
                    if tags is not None and not self._is_wanted(tags, _last(headers, TAGS), offset, chunk):
                        continue
                    key = _last(headers, KEYS) or None
                    headers = self._with_retry(headers, raw, tries)
                # Record(...) calls a Python function, which costs as much as all the rest.
                found.append(new(Record, (queue, offset, key, body, headers, born_ms, fence)))
        except HoldfastError as error:
            after = f", behind offset {found[-1].offset}" if found else ""
            return found, _stopping_error(f"{queue}{after}, up to {chunk.next_offset}", error)
        return found, None

    def _is_wanted(self, tags: frozenset[str], tag: bytes | None, offset: int, chunk: Chunk) -> bool:
        if tag is None and offset in chunk.unreadable:
            return True  # the tag may be the unreadable part; the broker has selected it by the tag in its index
        return (tag or b"").decode("utf-8", "replace") in tags

    def _with_retry(
        self, headers: Sequence[tuple[str, bytes]], raw: bytes, tries: int
    ) -> tuple[tuple[str, bytes], ...]:
        """Headers with the number of deliveries, from the message's frame, and for a retry topic the origin topic, if
        this source reads it. These headers from any other place may be a producer's, and are removed."""
        added: list[tuple[str, bytes]] = []
        if tries or self._is_retry:
            added.append((RECONSUME_TIMES, str(tries).encode()))
        if self._is_retry and (origin := self._popped_from or self._origin(raw)) is not None:
            added.append((RETRY_OF, origin.encode()))
        return (*(each for each in headers if each[0] not in _ONLY_OURS), *added)

    def _origin(self, raw: bytes) -> str | None:
        """The origin topic that a message names, if this source reads it."""
        said = value_of(raw, _RETRY_TOPIC)
        return None if said is None else self._topics.born_in(said.decode("utf-8", "replace"))

    def _was_popped_by_us(self, raw: bytes) -> bool:
        """Whether a message in a POP retry topic belongs to this group. The name is ambiguous: %RETRY%billing_orders is
        the retry topic of group "billing_orders", and the POP retry topic of group "billing" for topic "orders"."""
        group = value_of(raw, _ORIGIN_GROUP)
        return group == self._group if group is not None else value_of(raw, _FIRST_POP_TIME) is not None


def _stopping_error(place: str, error: HoldfastError) -> SourceError:
    """An error that stops the app. It is not a fault of the record, so a dead letter would not help."""
    stops = SourceError(f"{place}: {error}")
    stops.__cause__ = error
    return stops


def _last(headers: Sequence[tuple[str, bytes]], wanted: str) -> bytes | None:
    return next((value for name, value in reversed(headers) if name == wanted), None)
