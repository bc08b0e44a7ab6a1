"""Letter: a record that failed for good, on its way to the dead letter topic, and the headers of the letter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.retrying.failures import kind_of, traceback_of, words_of
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.records import Record

PREFIX = "holdfast-"
#: The origin topic of a record that comes through the broker's retry topic. Sources set it on such records; on any
#: other record the header is data.
RETRY_OF = PREFIX + "retry-of"

# The record's origin. The topic is the one that this process knows, never the one that the record's headers name: a
# replay sends letters there. The other three are kept if a replayed letter fails again, so that they name the first
# record.
_ORIGIN = ("origin-topic", "origin-partition", "origin-offset", "origin-timestamp")
# The last failure. Every letter writes these anew.
_LAST = ("handler", "group", "attempts", "error-type", "error-message", "traceback", "failed-at-ms")
_TRACEBACK = PREFIX + "traceback"
#: For a record that is too large: the parts that the letter lacks, and the bytes of the record's value.
LEFT_OUT, VALUE_BYTES = PREFIX + "left-out", PREFIX + "value-bytes"
#: For a record that could not be decoded: the schema that its value names, if it names one.
_SCHEMA_ID = PREFIX + "schema-id"
#: All headers that holdfast writes. On an incoming record they are data: the letter has its own in their place.
_NAMES = frozenset({RETRY_OF, _SCHEMA_ID, LEFT_OUT, VALUE_BYTES, *(PREFIX + name for name in (*_ORIGIN, *_LAST))})

#: The longest error text in a letter, in bytes: enough to recognise it, too little to push a record over the broker's
#: size limit. The log has the full text.
MAX_ERROR_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record that failed for good, its dead letter topic, and the reason. Frozen; any thread."""

    record: Record
    #: The dead letter topic.
    topic: str
    #: The handler's name.
    handler: str
    #: The error of the last attempt.
    reason: Exception
    #: How many attempts there were.
    attempts: int
    #: The consumer group.
    group: str
    #: The record's origin topic, if it came through the broker's retry topic; None: the topic it was read from.
    born_in: str | None = None
    #: The record's value is left out, because with it the letter was too large for its topic. A header says so.
    without_value: bool = False

    @property
    def value(self) -> bytes | None:
        """The letter's value: the record's, or None if it is left out."""
        return None if self.without_value else self.record.value


class Form(NamedTuple):
    """One way to write a letter."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]


def forms_of(letter: Letter) -> list[Form]:
    """The forms of a letter, the largest first: if the topic refuses one for its size, the next one is sent.

    The last form has the least that a replay needs: the record as it is, and its origin. For a letter without the
    value, the last form has only the record's topic, partition, offset and timestamp, and nothing of the record itself.
    """
    record, own, ours = letter.record, _theirs(letter.record), _ours(letter)
    short = [each for each in ours if each[0] != _TRACEBACK]
    if not letter.without_value:
        ways = ours, short, ours[: len(_ORIGIN)]
        return [Form(record.value, record.key, [*own, *way]) for way in ways]
    place = [(PREFIX + name, value) for name, value in zip(_ORIGIN, _born_here(_topic_of(letter), record), strict=True)]
    least = [
        *place,
        *((name, b"value, key, headers" if name == LEFT_OUT else value) for name, value in short[len(_ORIGIN) :]),
    ]
    return [*(Form(None, record.key, [*own, *way]) for way in (ours, short)), Form(None, None, least)]


def headers_of(letter: Letter) -> list[tuple[str, bytes | None]]:
    """The record's own headers in their order, then holdfast's. A letter's key and value are the record's, unchanged.

    holdfast's are `holdfast-origin-{topic,partition,offset,timestamp}` and `holdfast-{handler,group,attempts,
    error-type,error-message,traceback,failed-at-ms}`, UTF-8, numbers in decimal; and `holdfast-schema-id` if the value
    could not be decoded and names its schema. A record that was a letter before (replayed into its topic, and failed
    again) keeps its origin; all other headers of holdfast are replaced, so they do not grow with every round. A letter
    without its value also has `holdfast-left-out`, and `holdfast-value-bytes`, the size of the value.
    """
    return [*_theirs(letter.record), *_ours(letter)]


def _theirs(record: Record) -> list[tuple[str, bytes | None]]:
    return theirs(record.headers)


def theirs(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without those that letters add."""
    return [(name, value) for name, value in headers if name not in _NAMES]


def _ours(letter: Letter) -> list[tuple[str, bytes | None]]:
    """The headers that holdfast adds, those of the origin first."""
    topic, record = _topic_of(letter), letter.record
    own = _origin_in(topic, record) or _born_here(topic, record)
    texts = {
        "handler": letter.handler,
        "group": letter.group,
        "attempts": str(letter.attempts),
        "error-type": kind_of(letter.reason),
        "error-message": _message_of(letter.reason),
        "traceback": traceback_of(letter.reason),
        "failed-at-ms": str(wall_ms()),
    }
    more: dict[str, object] = {_SCHEMA_ID: getattr(letter.reason, "schema_id", None)}
    if letter.without_value:
        more |= {LEFT_OUT: "value", VALUE_BYTES: len(record.value or b"")}
    return [
        *((PREFIX + name, value) for name, value in zip(_ORIGIN, own, strict=True)),
        *((PREFIX + name, texts[name].encode("utf-8", "replace")) for name in _LAST),
        *((name, str(value).encode("utf-8", "replace")) for name, value in more.items() if value is not None),
    ]


def _topic_of(letter: Letter) -> str:
    return letter.record.partition.topic if letter.born_in is None else letter.born_in


def retried_from(record: Record) -> str:
    """The origin topic of a record that came through the broker's retry topic. Not for any other record: there the
    header may come from any producer."""
    found = record.header(RETRY_OF) if record.headers else None
    return record.partition.topic if found is None else found.decode("utf-8", "replace")


def _origin_in(topic: str, record: Record) -> Sequence[bytes] | None:
    """The origin in the record's headers, if all four are there and name this topic. Any other is incomplete, or comes
    from another application."""
    found = [record.header(PREFIX + name) for name in _ORIGIN]
    whole = [value for value in found if value is not None]
    return whole if len(whole) == len(_ORIGIN) and whole[0] == topic.encode() else None


def _born_here(topic: str, record: Record) -> Sequence[bytes]:
    place = record.partition
    # The number alone is ambiguous: RocketMQ has the same queue numbers at several brokers, and a record from a retry
    # topic has a position in another topic than its origin's.
    number = f"{place.broker}-{place.number}" if place.broker else str(place.number)
    number = number if topic == place.topic else f"{place.topic}-{number}"
    return [text.encode() for text in (topic, number, str(record.offset), str(record.timestamp_ms))]


def _message_of(error: Exception) -> str:
    """The error's text within the limit."""
    encoded = words_of(error).encode("utf-8", "replace")
    if len(encoded) <= MAX_ERROR_BYTES:
        return encoded.decode()
    # "ignore" leaves out a character that the limit has cut in two.
    return encoded[: MAX_ERROR_BYTES - 3].decode("utf-8", "ignore") + "…"
