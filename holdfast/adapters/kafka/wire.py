"""Kafka's protocol by hand, for the few requests that librdkafka does not make: addresses, a connection with the
consumer's TLS properties, and primitive types."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING

from holdfast.adapters.kafka.properties import DEFAULT_PORT, addresses, as_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.timing import Deadline

CLIENT = b"holdfast"
_CORRELATION = 1
_MOST_BYTES = 1 << 20  # most answers have less than 1 kB; a port that is not Kafka's may send anything

# Python's ssl has no way to use these: a keystore, an engine, a key that is not in a file (we would have to write it).
_CANNOT = (
    "ssl.keystore.location",
    "ssl.key.pem",
    "ssl_key",
    "ssl.engine.location",
    "ssl.providers",
    "ssl.ca.certificate.stores",
)


class Malformed(Exception):
    """The answer is not one of a Kafka broker."""


class TlsUnsupported(Exception):
    """Python's ssl has no way to do what the configuration asks; the message names the property."""


class Reader:
    """Kafka's primitive types from a buffer; every one raises Malformed at the buffer's end."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer, self._at = buffer, 0

    def take(self, count: int) -> bytes:
        """Read that many bytes."""
        if count < 0 or self._at + count > len(self._buffer):
            raise Malformed("the answer is shorter than it says")
        self._at += count
        return self._buffer[self._at - count : self._at]

    def int8(self) -> int:
        """One byte, signed."""
        return int.from_bytes(self.take(1), "big", signed=True)

    def int16(self) -> int:
        """Two bytes, signed."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """Four bytes, signed."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def varint(self) -> int:
        """Seven bits a byte, unsigned."""
        value = 0
        for shift in range(0, 35, 7):  # five bytes at most
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a length without an end")

    def data(self, length: int) -> bytes | None:
        """Read that many bytes; a negative length = null."""
        return None if length < 0 else self.take(length)

    def text(self) -> str | None:
        """A string of the fixed kind: its length in two bytes; None = null."""
        raw = self.data(self.int16())
        return None if raw is None else raw.decode("utf-8", "replace")

    def compact_text(self) -> str | None:
        """A compact string; None = null."""
        raw = self.data(self.varint() - 1)
        return None if raw is None else raw.decode("utf-8", "replace")

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def request(key: int, version: int, body: bytes) -> bytes:
    """Encode a request, with its length in front. `body` begins after the client's name."""
    payload = struct.pack(">hhih", key, version, _CORRELATION, len(CLIENT)) + CLIENT + body
    return struct.pack(">i", len(payload)) + payload


def answer(payload: bytes) -> Reader:
    """Read an answer's header. Returns a reader for the rest. Raises Malformed."""
    reader = Reader(payload)
    if reader.int32() != _CORRELATION:
        raise Malformed("the answer belongs to another question")
    return reader


def compact(text: str) -> bytes:
    """Encode a compact string: its length plus one as a varint, and the bytes."""
    raw, length = text.encode(), b""
    left = len(raw) + 1
    while left >= 0x80:
        length, left = length + bytes([left & 0x7F | 0x80]), left >> 7
    return length + bytes([left]) + raw


def exchange(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    request: bytes,
    deadline: Deadline,
    *,
    most_bytes: int = _MOST_BYTES,
) -> bytes:
    """Send one request on a connection of its own, and return the answer. Raises OSError, Malformed."""
    with socket.create_connection((host, port), timeout=_left_s(deadline)) as plain:
        if tls is None:
            return _ask(plain, request, deadline, most_bytes)
        with tls.wrap_socket(plain, server_hostname=host) as wrapped:
            return _ask(wrapped, request, deadline, most_bytes)


def _ask(connection: socket.socket, request: bytes, deadline: Deadline, most_bytes: int) -> bytes:
    connection.settimeout(_left_s(deadline))
    connection.sendall(request)
    length = int.from_bytes(_receive(connection, 4, deadline), "big", signed=True)
    if not 0 < length <= most_bytes:
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


# ---- the connection of a consumer's configuration
def bootstrap(conf: Mapping[str, object]) -> list[tuple[str, int]]:
    """The addresses of bootstrap.servers as librdkafka reads them: [proto://]host[:port], [v6]:port."""
    found = []
    for each in addresses(conf).split(","):
        address = each.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal() or (":" in host and not host.endswith("]")):
            host, port = address, str(DEFAULT_PORT)  # no port, or an IPv6 address without brackets
        found.append((host.strip("[]"), int(port)))
    return found


def uses_tls(conf: Mapping[str, object]) -> bool:
    """Whether the connections to brokers use TLS."""
    return str(conf.get("security.protocol", "plaintext")).strip().lower() in ("ssl", "sasl_ssl")


def tls_context(conf: Mapping[str, object]) -> ssl.SSLContext:
    """Make the TLS context that librdkafka would make, in Python. Reads the configured files. Raises TlsUnsupported,
    OSError."""
    for name in _CANNOT:
        if conf.get(name):
            raise TlsUnsupported(f"{name} is known to librdkafka only")
    made = ssl.create_default_context()
    authorities, inline = conf.get("ssl.ca.location"), conf.get("ssl.ca.pem")
    if inline:
        made = ssl.create_default_context(cadata=str(inline))
    elif authorities and authorities != "probe":
        made = _trusting(str(authorities))
    if conf.get("ssl.certificate.location"):
        key, password = conf.get("ssl.key.location"), conf.get("ssl.key.password")
        made.load_cert_chain(
            str(conf["ssl.certificate.location"]),
            str(key) if key else None,
            # An empty password instead of none: without one, OpenSSL would ask at the terminal.
            lambda: str(password or ""),
        )
    if str(conf.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        made.check_hostname = False
    name = "enable.ssl.certificate.verification"
    if not as_bool(name, conf.get(name, True)):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE  # the user's setting; no secret is sent over this connection
    return made


def _trusting(location: str) -> ssl.SSLContext:
    """A context that trusts `ssl.ca.location`, a file or a folder."""
    try:
        return ssl.create_default_context(cafile=location)
    except IsADirectoryError:
        return ssl.create_default_context(capath=location)
