"""Messages as a broker stores and sends them, without I/O.

    size i32, magic i32, crc i32, queue id i32, flag i32, queue offset i64, physical offset i64, sysFlag i32, born i64,
    born host (4 or 16 bytes + i32), stored i64, store host, reconsume times i32, prepared transaction offset i64,
    body length i32 + body, topic length u8 (v2: i16) + topic, properties length i16 + properties

A group's whole intake comes through here, and most messages are asked for their body and a property or two: so nothing
is unpacked twice, and body and properties are read when they are asked for.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import properties as props
from holdfast.adapters.rocketmq.remoting.compression import decompress
from holdfast.adapters.rocketmq.remoting.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477

COMPRESSED: Final = 0x1
COMPRESSION_KIND: Final = 0x700
INNER_BATCH: Final = 0xC0  #: one entry of the log that holds several messages (topics of queue type BatchCQ)
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20

# By the lengths of the two hosts' addresses.
_HEADS = {(born, stored): struct.Struct(f">5i2qiq{born}siq{stored}siiqi") for born in (4, 16) for stored in (4, 16)}
_HEAD_V4 = _HEADS[4, 4]
# Of IPv4 alone, and without what `Plain` has not.
_PLAIN = struct.Struct(">3i4x4xq8xiq8x8x8xi8xi")
_NOT_PLAIN = COMPRESSED | INNER_BATCH | BORN_HOST_V6 | STORE_HOST_V6
_SYS_FLAG = struct.Struct(">i")
_OFFSET_AT, _SYS_FLAG_AT, _STORED_AT = 20, 36, 56
_I64 = struct.Struct(">q")
_I16 = struct.Struct(">h")
_INNER = struct.Struct(">5i")  # size, magic, crc, flag, length of the body


class StoredMessage:
    """One message of a queue. Compare by identity; any thread."""

    __slots__ = (
        "_body",
        "_properties",
        "born_host",
        "born_ms",
        "crc",
        "fault",
        "flag",
        "offset",
        "physical_offset",
        "prepared_offset",
        "queue_id",
        "raw_body",
        "raw_properties",
        "reconsume_times",
        "store_host",
        "stored_ms",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        raw_body: bytes,
        raw_properties: bytes = b"",
        crc: int | None = None,
        flag: int = 0,
        physical_offset: int = 0,
        sys_flag: int = 0,
        born_ms: int = 0,
        born_host: tuple[bytes, int] = (b"", 0),
        stored_ms: int = 0,
        store_host: tuple[bytes, int] = (b"", 0),
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.physical_offset = physical_offset
        self.flag = flag
        self.sys_flag = sys_flag
        self.crc = crc
        self.born_ms = born_ms
        self.born_host = born_host
        self.stored_ms = stored_ms
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.raw_body = raw_body
        self.raw_properties = raw_properties
        self._body: bytes | None = None
        #: Why it cannot be read, where that is known already.
        self.fault: Malformed | None = None
        self._properties: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """What the producer sent, decompressed.

        Raises:
            Malformed: the checksum or the compression is wrong.
            MissingExtraError: its compression needs a package that is not installed.
        """
        if self.fault is not None:
            raise self.fault
        if self._body is None:
            raw = self.raw_body
            if self.crc is not None and zlib.crc32(raw) & 0x7FFFFFFF != self.crc:
                raise Malformed(f"the body of {self!r} does not match its checksum: the broker's log is damaged")
            self._body = decompress(raw, self.sys_flag >> 8 & 7) if self.sys_flag & COMPRESSED else raw
        return self._body

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, the broker's own among them. Bytes that are no UTF-8 become U+FFFD, as in Java."""
        if self._properties is None:
            self._properties = props.read(self.raw_properties.decode("utf-8", "replace"))
        return self._properties

    @property
    def unique_key(self) -> str | None:
        """The message's identity: it survives the producer's own retries and the broker's retry topics."""
        return self.properties.get(props.UNIQUE_KEY)

    @property
    def keys(self) -> str | None:
        """The producer's keys, parted by blanks."""
        return self.properties.get(props.KEYS)

    @property
    def tags(self) -> str | None:
        """The producer's tag."""
        return self.properties.get(props.TAGS)

    @property
    def origin_topic(self) -> str:
        """The topic that it was sent to; differs from `topic` for what came back through a retry topic."""
        return self.properties.get(props.RETRY_TOPIC, self.topic)

    @property
    def message_id(self) -> str:
        """Its place in the cluster, as RocketMQ's tools take it: store host, port, physical offset; hexadecimal."""
        address, port = self.store_host
        return f"{address.hex()}{port & 0xFFFFFFFF:08x}{self.physical_offset & 0xFFFFFFFFFFFFFFFF:016x}".upper()

    def __repr__(self) -> str:
        return f"StoredMessage({self.topic!r}, queue {self.queue_id}, offset {self.offset})"


def decode_messages(payload: bytes) -> list[StoredMessage]:
    """All messages of a pull's answer. Raises Malformed where it is none, or ends within a message."""
    found: list[StoredMessage] = []
    at, end = 0, len(payload)
    try:
        while at < end:
            message, at = one(payload, at)
            if message.sys_flag & INNER_BATCH == INNER_BATCH:
                found.extend(unwrapped(message))
            else:
                found.append(message)
    except struct.error as error:
        raise Malformed("the answer ends within a message") from error
    return found


def first_stored(payload: bytes) -> tuple[int, int] | None:
    """Of the first message of a pull's answer its offset, and when it was stored, in milliseconds since 1970. None =
    there is none."""
    try:
        [offset] = _I64.unpack_from(payload, _OFFSET_AT)
        [sys_flag] = _SYS_FLAG.unpack_from(payload, _SYS_FLAG_AT)
        [stored_ms] = _I64.unpack_from(payload, _STORED_AT + (12 if sys_flag & BORN_HOST_V6 else 0))
    except struct.error:
        return None
    return offset, stored_ms


class Plain(NamedTuple):
    """Of a message what most consumers look at."""

    offset: int
    born_ms: int
    reconsume_times: int
    body: bytes
    raw_properties: bytes


def read_plain(payload: bytes) -> list[Plain] | None:
    """The same for those who need no more of messages, in half the time.

    None = they are not all plain (IPv6 hosts, compressed bodies, batches in one entry), or something is wrong with
    them: `decode_messages` knows.
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
            found.append(new(Plain, fields))  # Plain(...) goes through a function in Python
            at = last
    except (struct.error, IndexError):
        return None
    return found


def one(payload: bytes, at: int) -> tuple[StoredMessage, int]:
    """The message there, and where the next begins. Raises Malformed, struct.error."""
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


def unwrapped(batch: StoredMessage) -> Iterator[StoredMessage]:
    """The messages inside: their offsets follow the batch's own (MessageDecoder.decodeMessage)."""
    inner, at, offset = batch.body, 0, batch.offset
    while at < len(inner):
        size, _, _, flag, length = _INNER.unpack_from(inner, at)
        body = at + _INNER.size
        properties = body + length
        if length < 0 or properties + 2 > at + size or at + size > len(inner):
            raise Malformed("a message inside a batch does not fit")
        [properties_length] = _I16.unpack_from(inner, properties)
        properties += 2
        if properties_length < 0 or properties + properties_length > at + size:
            raise Malformed("the properties of a message inside a batch do not fit")
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


def encode_batch(messages: Iterable[tuple[bytes, str, int]]) -> bytes:
    """The body of a batch that is sent.

    Args:
        messages: body, properties as `properties.write` makes them, flag.
    """
    parts: list[bytes] = []
    for body, text, flag in messages:
        written = text.encode()
        size = _INNER.size + len(body) + _I16.size + len(written)
        parts += (_INNER.pack(size, 0, 0, flag, len(body)), body, _I16.pack(len(written)), written)
    return b"".join(parts)
