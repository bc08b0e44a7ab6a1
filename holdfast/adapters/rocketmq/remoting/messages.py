"""StoredMessage: a message as a broker has stored it: its properties, and its body, which may be compressed. No I/O.

Body and properties are decoded when they are accessed: most consumers need the body and a property or two.
"""

from __future__ import annotations

import importlib
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.rocketmq.remoting.answers import Malformed
from holdfast.errors import MissingExtraError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNIQUE_KEY: Final = "UNIQ_KEY"
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
#: The record's header with the number of deliveries. The message has that number in its frame, not in a property.
RECONSUME_TIMES: Final = "RECONSUME_TIMES"

MOST_PROPERTIES_BYTES: Final = 32767  # the length is an i16

_SEPARATORS = re.compile("[\x01\x02]")


def read_properties(text: str) -> dict[str, str]:
    """Decode properties into name -> value. Those without a name or a value are left out, as Java's reader does. The
    last of a name counts, but the first UNIQ_KEY: that of a batch may follow it (4.9)."""
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value and not (name == UNIQUE_KEY and name in found):
            found[name] = value
    return found


def write_properties(properties: Mapping[str, str]) -> str:
    """Encode properties. Raises SettingError: a name or value has a separator in it, or all together are too long."""
    for name, value in properties.items():
        if not name or _SEPARATORS.search(name) or _SEPARATORS.search(value):
            raise SettingError("properties", {name: value}, "a name is not empty, and neither has the bytes 1 and 2")
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if len(text.encode()) > MOST_PROPERTIES_BYTES:
        raise SettingError(
            "properties", f"<{len(text)} characters>", f"{MOST_PROPERTIES_BYTES} bytes at most: put it into the body"
        )
    return text


COMPRESSED: Final = 0x1


class StoredMessage:
    """One message of a queue. Compared by identity; any thread."""

    __slots__ = (
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
        #: Why the body cannot be read; None: not known to be unreadable.
        self.fault: Malformed | None = None
        self._properties: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The body that the producer sent. Decompressed at each call: cached bodies of one pull could fill the memory.

        Raises:
            Malformed: the checksum or the compression is wrong.
            MissingExtraError: its compression needs a package that is not installed.
        """
        if self.fault is not None:
            raise self.fault
        raw = self.raw_body
        if self.crc is not None and zlib.crc32(raw) & 0x7FFFFFFF != self.crc:
            raise Malformed(f"the body of {self!r} does not match its checksum: the broker's log is damaged")
        return decompress(raw, self.sys_flag >> 8 & 7) if self.sys_flag & COMPRESSED else raw

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, also the broker's. Bytes that are not UTF-8 become U+FFFD, as in Java."""
        if self._properties is None:
            self._properties = read_properties(self.raw_properties.decode("utf-8", "replace"))
        return self._properties

    @property
    def unique_key(self) -> str | None:
        """The message's UNIQ_KEY: the same in the producer's retries and in the broker's retry topics."""
        return self.properties.get(UNIQUE_KEY)

    @property
    def keys(self) -> str | None:
        """The producer's keys, separated by blanks."""
        return self.properties.get(KEYS)

    @property
    def tags(self) -> str | None:
        """The producer's tag."""
        return self.properties.get(TAGS)

    @property
    def origin_topic(self) -> str:
        """The topic that the message was sent to. Differs from `topic` in a retry topic."""
        return self.properties.get(RETRY_TOPIC, self.topic)

    @property
    def message_id(self) -> str:
        """The message's position in the cluster, as RocketMQ's tools accept it: store host, port, physical offset;
        hexadecimal."""
        address, port = self.store_host
        return f"{address.hex()}{port & 0xFFFFFFFF:08x}{self.physical_offset & 0xFFFFFFFFFFFFFFFF:016x}".upper()

    def __repr__(self) -> str:
        return f"StoredMessage({self.topic!r}, queue {self.queue_id}, offset {self.offset})"


#: The largest body after decompression. Brokers accept 4 MiB by default; an operator may have raised that.
MOST_BODY_BYTES: Final = 64 * 1024 * 1024
#: A poll ends when its unpacked bodies reach this many bytes, since 250 kB on the wire may be gigabytes. The engine
#: polls again as soon as it has room.
POLL_BYTES: Final = 4 * 1024 * 1024
_EXTRA: Final = "rocketmq-codecs"
_PIECE_BYTES: Final = 512


def decompress(body: bytes, kind: int) -> bytes:
    """Decompress a body.

    Args:
        body: the compressed bytes.
        kind: bits 8 to 10 of the message's sysFlag: 1 lz4, 2 zstd, 3 zlib; 0: zlib by a client before 5.0.

    Raises:
        Malformed: not compressed in this way, or larger than MOST_BODY_BYTES.
        MissingExtraError: the package for this kind is not installed.
    """
    reader = _READERS.get(kind)
    if reader is None:
        raise Malformed(f"a body compressed in a way that is not known: {kind}")
    plain = reader(body)
    if plain is None:
        raise Malformed("the compressed body is damaged or cut")
    if len(plain) > MOST_BODY_BYTES:
        raise Malformed(f"the body would grow beyond {MOST_BODY_BYTES} bytes")
    return plain


def _zlib(body: bytes) -> bytes | None:
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(body, MOST_BODY_BYTES + 1)
    except zlib.error:
        return None
    return plain if reader.eof or len(plain) > MOST_BODY_BYTES else None


def _lz4(body: bytes) -> bytes | None:
    reader = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        plain: bytes = reader.decompress(body, max_length=MOST_BODY_BYTES + 1)
    except RuntimeError:  # the package raises no class of its own
        return None
    return plain if reader.eof or len(plain) > MOST_BODY_BYTES else None


def _zstd(body: bytes) -> bytes | None:
    package = _package("zstandard", "zstandard")
    reader = package.ZstdDecompressor(max_window_size=MOST_BODY_BYTES).decompressobj()
    plain = bytearray()
    try:
        # The package has no limit for its output, so it gets small pieces: 4 bytes may expand to a block of 128 KiB.
        for at in range(0, len(body), _PIECE_BYTES):
            plain += reader.decompress(body[at : at + _PIECE_BYTES])
            if reader.eof or len(plain) > MOST_BODY_BYTES:
                return bytes(plain)
    except package.ZstdError:
        return None
    return None


def _package(module: str, package: str) -> Any:  # noqa: ANN401 - neither has types
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(package, _EXTRA) from None


_READERS: dict[int, Callable[[bytes], bytes | None]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
