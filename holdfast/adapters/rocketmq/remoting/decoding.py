"""Decodes messages from the bytes that a broker stores and sends, and encodes batches. Without I/O.

    size i32, magic i32, crc i32, queue id i32, flag i32, queue offset i64, physical offset i64, sysFlag i32, born i64,
    born host (4 or 16 bytes + i32), stored i64, store host, reconsume times i32, prepared transaction offset i64,
    body length i32 + body, topic length u8 (v2: i16) + topic, properties length i16 + properties

A group's whole intake passes here, so nothing is decoded twice.

Producers choose the flags of a message: one may say that it is compressed, or has several messages in it, and be wrong.
`entries` therefore reads a pull's messages one by one: an unreadable message hides none of its neighbours, and does not
take their offsets. Nothing is unpacked before it is needed: few bytes on the wire may be many megabytes, or messages.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting.answers import Malformed
from holdfast.adapters.rocketmq.remoting.messages import COMPRESSED, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477

COMPRESSION_KIND: Final = 0x700
INNER_BATCH: Final = 0xC0  #: one entry of the log that holds several messages (topics of queue type BatchCQ)
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20

# (bytes of the born host's address, bytes of the store host's address) -> the fixed part of a message.
_HEADS = {(born, stored): struct.Struct(f">5i2qiq{born}siq{stored}siiqi") for born in (4, 16) for stored in (4, 16)}
_HEAD_V4 = _HEADS[4, 4]
# The fixed part with IPv4 addresses; fields that `Plain` does not have are skipped.
_PLAIN = struct.Struct(">3i4x4xq8xiq8x8x8xi8xi")
_NOT_PLAIN = COMPRESSED | INNER_BATCH | BORN_HOST_V6 | STORE_HOST_V6
_SYS_FLAG = struct.Struct(">i")
_OFFSET_AT, _SYS_FLAG_AT, _STORED_AT = 20, 36, 56
_I64 = struct.Struct(">q")
_I16 = struct.Struct(">h")
_INNER = struct.Struct(">5i")  # size, magic, crc, flag, length of the body


def decode_messages(payload: bytes) -> list[StoredMessage]:
    """All messages of a pull's answer. Raises Malformed: not messages, or cut within one."""
    found: list[StoredMessage] = []
    at, end = 0, len(payload)
    try:
        while at < end:
            message, at = one(payload, at)
            if message.sys_flag & INNER_BATCH == INNER_BATCH:
                found.extend(unwrapped(message, message.body))
            else:
                found.append(message)
    except struct.error as error:
        raise Malformed("the answer ends within a message") from error
    return found


def first_stored(payload: bytes) -> tuple[int, int] | None:
    """(offset, store time in milliseconds since 1970) of the first message of a pull's answer; None: there is none."""
    try:
        [offset] = _I64.unpack_from(payload, _OFFSET_AT)
        [sys_flag] = _SYS_FLAG.unpack_from(payload, _SYS_FLAG_AT)
        [stored_ms] = _I64.unpack_from(payload, _STORED_AT + (12 if sys_flag & BORN_HOST_V6 else 0))
    except struct.error:
        return None
    return offset, stored_ms


def last_stored(payload: bytes) -> tuple[int, int] | None:
    """(offset, store time in milliseconds since 1970) of the last message of a pull's answer; None: there is none."""
    at, last, end = 0, 0, len(payload)
    while at + 4 <= end:
        [size] = _SIZE.unpack_from(payload, at)
        if size <= 0:
            break
        last, at = at, at + size
    return first_stored(payload[last:])


class Plain(NamedTuple):
    """The fields of a message that most consumers need."""

    offset: int
    born_ms: int
    reconsume_times: int
    body: bytes
    raw_properties: bytes


def read_plain(payload: bytes) -> list[Plain] | None:
    """Decode messages that are all plain, in half the time of `decode_messages`.

    None: some are not plain (IPv6 hosts, compressed bodies, batches in one entry) or malformed. Use `entries` then.
    """
    found: list[Plain] = []
    at, end = 0, len(payload)
    unpack, crc32, new = _PLAIN.unpack_from, zlib.crc32, tuple.__new__
    try:
        while at < end:
            size, magic, crc, offset, sys_flag, born_ms, reconsume_times, length = unpack(payload, at)
            body, last = at + _PLAIN.size, at + size
            topic = body + length
            if magic != MAGIC_V1 or sys_flag & _NOT_PLAIN or length < 0 or topic + 3 > last or last > end:
                return None
            properties = topic + 1 + payload[topic] + 2
            last_property = properties + (payload[properties - 2] << 8 | payload[properties - 1])
            text = payload[body:topic]
            if last_property > last or crc32(text) & 0x7FFFFFFF != crc:
                return None
            fields = (offset, born_ms, reconsume_times, text, payload[properties:last_property])
            found.append(new(Plain, fields))  # Plain(...) would call a Python function
            at = last
    except (struct.error, IndexError):
        return None
    return found


def one(payload: bytes, at: int) -> tuple[StoredMessage, int]:
    """Decode the message at a position. Returns it, and the position of the next. Raises Malformed, struct.error."""
    [sys_flag] = _SYS_FLAG.unpack_from(payload, at + _SYS_FLAG_AT)
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        head = _HEADS[16 if sys_flag & BORN_HOST_V6 else 4, 16 if sys_flag & STORE_HOST_V6 else 4]
    else:
        head = _HEAD_V4
    (
        size, magic, crc, queue_id, flag, offset, physical_offset, _, born_ms, born_ip, born_port,
        stored_ms, store_ip, store_port, reconsume_times, prepared_offset, length,
    ) = head.unpack_from(payload, at)  # fmt: skip
    last = at + size
    body = at + head.size
    topic = body + length
    if last > len(payload) or length < 0 or topic + 3 > last:
        raise Malformed("a message's lengths do not fit")
    if magic == MAGIC_V1:
        topic_length = payload[topic]
        topic += 1
    elif magic == MAGIC_V2:
        [topic_length] = _I16.unpack_from(payload, topic)
        topic += 2
    else:
        raise Malformed(f"a message of a kind that is not known: magic {magic}")
    properties = topic + topic_length
    if topic_length < 0 or properties + 2 > last:
        raise Malformed("a message's topic does not fit")
    [properties_length] = _I16.unpack_from(payload, properties)
    properties += 2
    if properties_length < 0 or properties + properties_length > last:
        raise Malformed("a message's properties do not fit")
    message = StoredMessage(
        payload[topic : topic + topic_length].decode("utf-8", "replace"),
        queue_id,
        offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        crc=crc,
        born_ms=born_ms,
        born_host=(born_ip, born_port),
        stored_ms=stored_ms,
        store_host=(store_ip, store_port),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        raw_body=payload[body : body + length],
        raw_properties=payload[properties : properties + properties_length],
    )
    return message, last


def unwrapped(batch: StoredMessage, inner: bytes) -> Iterator[StoredMessage]:
    """Decode the messages inside a batch, one by one. Their offsets count from the batch's own
    (MessageDecoder.decodeMessage)."""
    at, offset = 0, batch.offset
    while at < len(inner):
        flag, body, properties, properties_length, size = _inner_parts(inner, at)
        yield StoredMessage(
            batch.topic,
            batch.queue_id,
            offset,
            physical_offset=batch.physical_offset,
            flag=flag,
            born_ms=batch.born_ms,
            born_host=batch.born_host,
            stored_ms=batch.stored_ms,
            store_host=batch.store_host,
            raw_body=inner[body : properties - 2],
            raw_properties=inner[properties : properties + properties_length],
        )
        at, offset = at + size, offset + 1


def _inner_parts(inner: bytes, at: int) -> tuple[int, int, int, int, int]:
    """For a message inside a batch: (flag, position of the body, position of the properties, length of the properties,
    length of the message). Raises Malformed, struct.error."""
    size, _, _, flag, length = _INNER.unpack_from(inner, at)
    body = at + _INNER.size
    properties = body + length
    if length < 0 or properties + 2 > at + size or at + size > len(inner):
        raise Malformed("a message inside a batch does not fit")
    [properties_length] = _I16.unpack_from(inner, properties)
    properties += 2
    if properties_length < 0 or properties + properties_length > at + size:
        raise Malformed("the properties of a message inside a batch do not fit")
    return flag, body, properties, properties_length, size


def encode_batch(messages: Iterable[tuple[bytes, str, int]]) -> bytes:
    """Encode the body of a batch.

    Args:
        messages: (body, properties from `write_properties`, flag).
    """
    parts: list[bytes] = []
    for body, text, flag in messages:
        written = text.encode()
        size = _INNER.size + len(body) + _I16.size + len(written)
        parts += (_INNER.pack(size, 0, 0, flag, len(body)), body, _I16.pack(len(written)), written)
    return b"".join(parts)


_SIZE: Final = struct.Struct(">i")
#: The queue id and the offset of a message, which is at byte 20.
_PLACE: Final = struct.Struct(">12xi4xq")


class Entry(NamedTuple):
    """One entry of a log in a pull's answer."""

    #: One message, or those of a batch, decoded lazily.
    messages: Iterable[StoredMessage]
    #: The position of the next entry in the answer.
    after: int


def decode_each(payload: bytes, end: int) -> Iterator[StoredMessage]:
    """Decode all messages of a pull's answer, lazily. For an unreadable message, `body` raises Malformed, and
    `raw_body` has its bytes.

    Args:
        payload: the answer's body.
        end: the offset behind the last message.

    Raises:
        Malformed: the lengths of the rest cannot be read. The messages before were delivered.
        MissingExtraError: the compression of a batch needs a package that is not installed.
    """
    for entry in entries(payload, end):
        yield from entry.messages


def entries(payload: bytes, end: int, at: int = 0) -> Iterator[Entry]:
    """Decode as `decode_each` does, entry by entry, so that the caller can stop and go on later.

    Args:
        payload: the answer's body.
        end: the offset behind the last message.
        at: the position of the first entry: `after` of the one before.

    Raises:
        Malformed, MissingExtraError: as `decode_each`.
    """
    while at < len(payload):
        begin = at
        try:
            message, at = one(payload, at)
        except (Malformed, struct.error) as error:
            message, at = _broken(payload, begin, error)
        if message.sys_flag & INNER_BATCH == INNER_BATCH:
            yield Entry(_inner(message, _offset(payload, at, end)), at)
        else:
            yield Entry((message,), at)


def _broken(payload: bytes, at: int, error: Exception) -> tuple[StoredMessage, int]:
    """Make a message from one whose parts do not fit. Returns it, and the position of the next. Raises Malformed: its
    length does not fit either."""
    if at + _PLACE.size > len(payload):
        raise Malformed("the answer ends within a message") from error
    [size] = _SIZE.unpack_from(payload, at)
    if not _PLACE.size <= size <= len(payload) - at:
        raise Malformed("the length of a message does not fit, so that what follows cannot be found") from error
    queue_id, offset = _PLACE.unpack_from(payload, at)
    message = StoredMessage("", queue_id, offset, raw_body=payload[at : at + size])
    message.fault = error if isinstance(error, Malformed) else Malformed("a message's parts do not fit")
    return message, at + size


def _offset(payload: bytes, at: int, end: int) -> int:
    """The offset of the message at a position; `end` if there is none."""
    if at + _PLACE.size > len(payload):
        return end
    _, offset = _PLACE.unpack_from(payload, at)
    return int(offset)


def _inner(batch: StoredMessage, following: int) -> Iterable[StoredMessage]:
    """The messages of a batch, which has an offset for each. A batch that claims more messages than offsets would take
    those of its neighbours. Therefore they are counted first, up to the number of offsets; such a batch is one
    unreadable message."""
    room = following - batch.offset
    try:
        inner = batch.body
        if 1 <= _count(inner, room) <= room:
            return unwrapped(batch, inner)
        batch.fault = Malformed(f"it says that it is several messages, and has the place of {room} for them")
    except (Malformed, struct.error) as error:
        batch.fault = error if isinstance(error, Malformed) else Malformed("it says that it is several messages")
    return (batch,)


def _count(inner: bytes, most: int) -> int:
    """The number of messages inside a batch; counting stops at `most` + 1. Raises Malformed, struct.error."""
    at = count = 0
    while at < len(inner) and count <= most:
        *_, size = _inner_parts(inner, at)
        at, count = at + size, count + 1
    return count
