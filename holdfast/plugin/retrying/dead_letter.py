"""A record that failed for good, on its way to the dead letter topic; and what its headers say. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.retrying.failures import kind_of, traceback_of, words_of
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.records import Record

PREFIX = "holdfast-"
#: Put on by sources: the topic where a record was born that comes by the broker's retry topic. Elsewhere it is data.
RETRY_OF = PREFIX + "retry-of"

# Where a record was born. The topic is what we know, never what the record says: a replay sends letters there. The rest
# of a letter that was replayed into that topic and fails again is kept: it tells people which record was the first.
_ORIGIN = ("origin-topic", "origin-partition", "origin-offset", "origin-timestamp")
# What befell it last. These are written anew by every letter.
_LAST = ("handler", "group", "attempts", "error-type", "error-message", "traceback", "failed-at-ms")
_TRACEBACK = PREFIX + "traceback"
#: Which parts of the record the letter lacks, and how many bytes its value has: it was too large.
LEFT_OUT, VALUE_BYTES = PREFIX + "left-out", PREFIX + "value-bytes"
#: Of what could not be decoded, where its value names a schema.
_SCHEMA_ID = PREFIX + "schema-id"
#: All of ours. A record that has one of them is data: a letter has its own instead.
_NAMES = frozenset({RETRY_OF, _SCHEMA_ID, LEFT_OUT, VALUE_BYTES, *(PREFIX + name for name in (*_ORIGIN, *_LAST))})

#: The longest error text in a letter, in bytes: enough to recognise it, too little to push a record over the broker's
#: size limit. The whole of it is in the log.
MAX_ERROR_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record, where it goes and why."""

    record: Record
    #: The dead letter topic.
    topic: str
    #: The handler's name.
    handler: str
    #: What the last attempt raised.
    reason: Exception
    #: How many attempts there were.
    attempts: int
    #: The consumer group.
    group: str
    #: The topic where the record was born, if it came by the broker's retry topic; None = its own.
    born_in: str | None = None
    #: The letter has not got the record's value, and says so: with it, it was too large for its topic.
    without_value: bool = False

    @property
    def value(self) -> bytes | None:
        """The letter's value: the record's, or none."""
        return None if self.without_value else self.record.value


class Form(NamedTuple):
    """One way to write a letter."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]


def forms_of(letter: Letter) -> list[Form]:
    """The ways to write a letter, the largest first: where the topic refuses one for its size, the next one goes.

    At the end is what a replay needs: the record as it is, and its origin. Of a letter without the value it is the
    record's place, in a letter that has nothing of the record.
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
    """The record's own headers in their order, then ours; key and value of a letter are the record's, unchanged.

    Ours are `holdfast-origin-{topic,partition,offset,timestamp}` and `holdfast-{handler,group,attempts,error-type,
    error-message,traceback,failed-at-ms}`, UTF-8, numbers in decimal; and `holdfast-schema-id`, where the value could
    not be decoded and names its schema. A record that was a letter before (replayed into its topic, and failed again)
    keeps its origin, and of the others has only the latest: headers do not grow with every round. Of a letter without
    its value, `holdfast-left-out` says so, and `holdfast-value-bytes` how large it is.
    """
    return [*_theirs(letter.record), *_ours(letter)]


def _theirs(record: Record) -> list[tuple[str, bytes | None]]:
    return theirs(record.headers)


def theirs(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers of the record itself, without those that letters put on."""
    return [(name, value) for name, value in headers if name not in _NAMES]


def _ours(letter: Letter) -> list[tuple[str, bytes | None]]:
    """The origin first."""
    topic, record = _topic_of(letter), letter.record
    own = _origin_in(topic, record) or _born_here(topic, record)
    said = {
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
        *((PREFIX + name, said[name].encode("utf-8", "replace")) for name in _LAST),
        *((name, str(value).encode("utf-8", "replace")) for name, value in more.items() if value is not None),
    ]


def _topic_of(letter: Letter) -> str:
    return letter.record.partition.topic if letter.born_in is None else letter.born_in


def retried_from(record: Record) -> str:
    """The topic where a record was born that came by the broker's retry topic. Not to be asked of any other record:
    there anybody may have put the header on."""
    found = record.header(RETRY_OF) if record.headers else None
    return record.partition.topic if found is None else found.decode("utf-8", "replace")


def _origin_in(topic: str, record: Record) -> Sequence[bytes] | None:
    """The first origin, where the record carries one in full, and it is in that topic; any other is somebody else's, or
    broken."""
    found = [record.header(PREFIX + name) for name in _ORIGIN]
    whole = [value for value in found if value is not None]
    return whole if len(whole) == len(_ORIGIN) and whole[0] == topic.encode() else None


def _born_here(topic: str, record: Record) -> Sequence[bytes]:
    place = record.partition
    # The number alone would not tell RocketMQ's brokers apart; nor, of a record that came by a retry topic, the topics.
    number = f"{place.broker}-{place.number}" if place.broker else str(place.number)
    number = number if topic == place.topic else f"{place.topic}-{number}"
    return [text.encode() for text in (topic, number, str(record.offset), str(record.timestamp_ms))]


def _message_of(error: Exception) -> str:
    """The error's text within the limit."""
    encoded = words_of(error).encode("utf-8", "replace")
    if len(encoded) <= MAX_ERROR_BYTES:
        return encoded.decode()
    # A character that was cut in two is left out.
    return encoded[: MAX_ERROR_BYTES - 3].decode("utf-8", "ignore") + "…"
