"""Frames of the remoting protocol, without I/O.

    i32 length of what follows | i32 serialize type << 24 | header length | header | body        (big-endian)

The header is JSON (type 0) or binary (type 1, RocketMQSerializable). This client sends JSON. A server answers in the
type of the request, but its own requests (such as code 40) have the type of its setting, so both are decoded.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting.answers import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The longest frame for servers and clients (com.rocketmq.remoting.frameMaxLength).
MOST_BYTES: Final = 16 * 1024 * 1024
#: The version that 5.x clients send. From 401 on, servers write standard JSON.
VERSION: Final = 453

_RESPONSE, _ONEWAY = 1, 2
_JSON, _BINARY = 0, 1
_LENGTHS = struct.Struct(">ii")
_BINARY_HEAD = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, length of the remark
_HEADER_BITS = 0xFFFFFF


class Command(NamedTuple):
    """One frame: a request or an answer."""

    code: int
    opaque: int  #: the request's number; its answer has the same
    flag: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = {}  # never written to
    body: bytes = b""

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether it is a request without an answer."""
        return bool(self.flag & _ONEWAY)

    def answered(self, code: int, remark: str | None = None, body: bytes = b"") -> Command:
        """The answer to this request."""
        return Command(code, self.opaque, _RESPONSE, remark, {}, body)


def encode(command: Command) -> bytes:
    """Encode a frame. Raises Malformed: it is too long for any server."""
    header: dict[str, Any] = {
        "code": command.code,
        "language": "PYTHON",
        "version": VERSION,
        "opaque": command.opaque,
        "flag": command.flag,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    if command.fields:
        header["extFields"] = command.fields
    text = json.dumps(header, separators=(",", ":")).encode()
    length = 4 + len(text) + len(command.body)
    if length > MOST_BYTES or len(text) > _HEADER_BITS:
        raise Malformed(f"a frame of {length} bytes: servers take {MOST_BYTES} at most; send less at a time")
    return b"".join((_LENGTHS.pack(length, len(text)), text, command.body))


def decode(frame: bytes) -> Command:
    """Decode a frame, without its length. Raises Malformed."""
    if len(frame) < 4:
        raise Malformed(f"a frame of {len(frame)} bytes")
    marked = int.from_bytes(frame[:4], "big")
    kind, end = marked >> 24, 4 + (marked & _HEADER_BITS)
    if end > len(frame):
        raise Malformed("the header is longer than its frame")
    if kind == _JSON:
        return _from_json(frame[4:end], frame[end:])
    if kind == _BINARY:
        return _from_binary(frame[4:end], frame[end:])
    raise Malformed(f"headers of serialize type {kind} are not known")


class FrameReader:
    """Decodes frames from a stream that arrives in pieces of any size. One thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, piece: bytes | memoryview) -> Iterator[Command]:
        """Yield the frames that this piece completes; read the iterator to its end. Raises Malformed after the frames
        before the fault: the rest of the stream cannot be trusted."""
        buffer = self._buffer
        buffer += piece
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "big", signed=True)
            if not 4 <= length <= self._most_bytes:
                raise Malformed(f"a frame of {length} bytes: 4 to {self._most_bytes} are possible; is this RocketMQ?")
            if len(buffer) < 4 + length:
                return
            frame = bytes(memoryview(buffer)[4 : 4 + length])
            del buffer[: 4 + length]
            yield decode(frame)


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        read = json.loads(header.decode())
    except (ValueError, RecursionError) as error:
        raise Malformed("the header is no JSON") from error
    if not isinstance(read, dict):
        raise Malformed("the header is no JSON object")
    remark, fields = read.get("remark"), read.get("extFields") or {}
    if not isinstance(fields, dict) or not (remark is None or isinstance(remark, str)):
        raise Malformed("the header's remark or fields are of another kind")
    return Command(
        _number(read, "code"), _number(read, "opaque"), _number(read, "flag"), remark, _strings(fields), body
    )


def _strings(fields: dict[str, object]) -> Mapping[str, str]:
    """Fields as text. Java writes only strings; other values are written as JSON, and null is left out."""
    for value in fields.values():
        if type(value) is not str:
            break
    else:
        return fields  # type: ignore[return-value]  # just looked at
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in fields.items()
        if value is not None
    }


def _number(header: dict[str, object], name: str) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise Malformed(f"the header's {name} is no number of 32 bits")
    return value


def _from_binary(header: bytes, body: bytes) -> Command:
    try:
        code, _language, _version, opaque, flag, length = _BINARY_HEAD.unpack_from(header)
        remark, at = _text(header, _BINARY_HEAD.size, length)
        [length] = struct.unpack_from(">i", header, at)
        at += 4
        end = at + length
        if length < 0 or end > len(header):
            raise Malformed("the fields are longer than their header")
        fields: dict[str, str] = {}
        while at < end:
            [length] = struct.unpack_from(">h", header, at)
            key, at = _text(header, at + 2, length)
            [length] = struct.unpack_from(">i", header, at)
            value, at = _text(header, at + 4, length)
            fields[key] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed("the binary header is cut or no text") from error
    return Command(code, opaque, flag, remark or None, fields, body)


def _text(header: bytes, at: int, length: int) -> tuple[str, int]:
    if length < 0 or at + length > len(header):
        raise Malformed("a text is longer than its header")
    return header[at : at + length].decode(), at + length
