"""One question to a broker: which requests does it know, and which cluster features are on (ApiVersions, key 18).

librdkafka asks it on every connection and tells nobody the answer. It is the first request of the protocol, answered
before authentication and without any access right; it names no group. Layout: Kafka's ApiVersionsRequest.json and
ApiVersionsResponse.json; versions 0 and 3. Encoding and decoding are pure, `fetch` does the I/O.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.timing import Deadline

CONSUMER_GROUP_HEARTBEAT = 68

_API_VERSIONS = 18
_CORRELATION = 1
_CLIENT = b"holdfast"
_UNSUPPORTED_VERSION = 35
_FINALIZED_FEATURES = 2  # the tag of that field
_MOST_BYTES = 1 << 20  # a broker's answer has under 1 kB; a port of something else may say anything


class Malformed(Exception):
    """The answer is not one of a Kafka broker."""


class ApiVersions(NamedTuple):
    """A broker's answer."""

    #: API key -> (lowest, highest) version.
    ranges: Mapping[int, tuple[int, int]]
    #: Feature -> level in force for the whole cluster; None = the broker does not tell (below 2.7, mock cluster).
    features: Mapping[str, int] | None


def fetch(host: str, port: int, tls: ssl.SSLContext | None, deadline: Deadline) -> ApiVersions:
    """Ask one broker. Blocks until the deadline at most. Raises OSError (no answer), Malformed (a strange one)."""
    answer = decode(_exchange(host, port, tls, encode(3), deadline), 3)
    if answer is None:  # "use version 0": brokers below 2.4, and the mock cluster
        answer = decode(_exchange(host, port, tls, encode(0), deadline), 0)
    if answer is None:
        raise Malformed("the broker refuses version 0 of ApiVersions, which all brokers have")
    return answer


def encode(version: int) -> bytes:
    """A request with its length in front."""
    # api key, version, correlation id, client id
    body = struct.pack(">hhih", _API_VERSIONS, version, _CORRELATION, len(_CLIENT)) + _CLIENT
    if version >= 3:
        # tagged fields of the header; software name and version as compact strings (length + 1); tagged fields
        body += b"\0" + bytes([len(_CLIENT) + 1]) + _CLIENT + b"\x02" + b"0" + b"\0"
    return struct.pack(">i", len(body)) + body


def decode(payload: bytes, version: int) -> ApiVersions | None:
    """An answer without its length; None = the broker wants version 0. Raises Malformed."""
    reader = _Reader(payload)
    if reader.int32() != _CORRELATION:
        raise Malformed("the answer belongs to another question")
    error = reader.int16()
    if error == _UNSUPPORTED_VERSION and version > 0:
        return None
    if error != 0:
        raise Malformed(f"the broker answers ApiVersions with error {error}")
    flexible = version >= 3
    ranges = {}
    for _ in range(reader.varint() - 1 if flexible else reader.int32()):
        key, lowest, highest = reader.int16(), reader.int16(), reader.int16()
        ranges[key] = (lowest, highest)
        if flexible:
            reader.skip_tags()
    if not flexible:
        return ApiVersions(ranges, None)
    reader.int32()  # throttle time
    tags = {reader.varint(): reader.take(reader.varint()) for _ in range(reader.varint())}
    return ApiVersions(ranges, _features(tags[_FINALIZED_FEATURES]) if _FINALIZED_FEATURES in tags else None)


def _features(field: bytes) -> dict[str, int]:
    reader, levels = _Reader(field), {}
    for _ in range(reader.varint() - 1):
        name = reader.take(reader.varint() - 1).decode("utf-8", "replace")
        levels[name] = reader.int16()
        reader.int16()  # the lowest level
        reader.skip_tags()
    return levels


class _Reader:
    """Kafka's primitive types from a buffer; every one raises Malformed at the buffer's end."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer, self._at = buffer, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._buffer):
            raise Malformed("the answer is shorter than it says")
        self._at += count
        return self._buffer[self._at - count : self._at]

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):  # five bytes at most
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a length without an end")

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _exchange(host: str, port: int, tls: ssl.SSLContext | None, request: bytes, deadline: Deadline) -> bytes:
    with socket.create_connection((host, port), timeout=_left_s(deadline)) as plain:
        if tls is None:
            return _ask(plain, request, deadline)
        with tls.wrap_socket(plain, server_hostname=host) as wrapped:
            return _ask(wrapped, request, deadline)


def _ask(connection: socket.socket, request: bytes, deadline: Deadline) -> bytes:
    connection.settimeout(_left_s(deadline))
    connection.sendall(request)
    length = int.from_bytes(_receive(connection, 4, deadline), "big", signed=True)
    if not 0 < length <= _MOST_BYTES:
        raise Malformed(f"an answer of {length} bytes")
    return _receive(connection, length, deadline)


def _receive(connection: socket.socket, count: int, deadline: Deadline) -> bytes:
    received = bytearray()
    while len(received) < count:
        connection.settimeout(_left_s(deadline))
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)


def _left_s(deadline: Deadline) -> float:
    left_s = deadline.left_s()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s
