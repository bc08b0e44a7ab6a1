"""A wire to a Kafka broker that can answer as a broker does which its controller has fenced: it names no brokers. And
it can lose commits, as a coordinator does that hangs, and answers.

A real one answers so for some hundred milliseconds, after it was silent and before its controller has let it in again.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

from holdfast.adapters.kafka.wire import Reader, compact
from tests.harness.wire import Wire

if TYPE_CHECKING:
    from tests.harness.wire import Way

_METADATA, _LEADER_NOT_AVAILABLE = 3, 5
_OFFSET_COMMIT = 8
#: Versions whose answer is written here: librdkafka asks in one of them.
_VERSIONS = range(11, 14)


class KafkaWire(Wire):
    """A `Wire`; and while `fenced` is set, Metadata that names topics is answered here, without any broker. While
    `deaf` is set, what is to be committed does not arrive. Requests of the kinds `unanswered` arrive, and their answers
    do not."""

    def __init__(self, target: int, *, encrypted: bool = False) -> None:
        """Args: target: the broker's port; encrypted: it speaks TLS there, so no request can be read."""
        self._encrypted = encrypted
        self.fenced, self.deaf = threading.Event(), threading.Event()
        #: How often a client was told so.
        self.lies = 0
        #: Keys of kinds of requests.
        self.unanswered: set[int] = set()
        super().__init__(target)

    def _pass_on(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        if way == "out" and not self._encrypted:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    head = _exactly(source, 4)
                    [length] = struct.unpack(">i", head)
                    request = _exactly(source, length)
                    if self.fenced.is_set() and (lie := _without_brokers(request)) is not None:
                        self.lies += 1
                        source.sendall(lie)  # alone on this connection, as far as clients ask for metadata
                        continue
                    if self.deaf.is_set() and struct.unpack(">h", request[:2]) == (_OFFSET_COMMIT,):
                        continue
                    self._open[way].wait()
                    if set(struct.unpack(">h", request[:2])) & self.unanswered:
                        self._aside(head + request)
                    else:
                        sink.sendall(head + request)
        super()._pass_on(way, source, sink)

    def _aside(self, request: bytes) -> None:
        """Sent to the broker on a connection of its own, on which nothing is read."""
        aside = socket.create_connection(("127.0.0.1", self._target), 5.0)
        with self._lock:
            self._sockets.add(aside)
        aside.sendall(request)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        if not (data := source.recv(count - len(found))):
            raise EOFError
        found += data
    return bytes(found)


def _without_brokers(request: bytes) -> bytes | None:
    """The answer, with its length in front; None: it is another question."""
    key, version, correlation = struct.unpack(">hhi", request[:8])
    if key != _METADATA or version not in _VERSIONS:
        return None
    reader = Reader(request[8:])
    reader.text()  # the client's name
    reader.skip_tags()
    topics = []
    for _ in range(reader.varint() - 1):
        reader.take(16)
        topics.append(reader.compact_text() or "")
        reader.skip_tags()
    if not topics:
        return None
    body = b"".join(
        struct.pack(">h", _LEADER_NOT_AVAILABLE) + compact(topic) + bytes(16) + b"\0\1" + struct.pack(">i", -1) + b"\0"
        for topic in topics
    )
    answer = struct.pack(">i", correlation) + b"\0"  # tagged fields of the header
    answer += struct.pack(">i", 0) + b"\1"  # throttle time, no brokers
    answer += compact("fenced") + struct.pack(">i", -1) + bytes([len(topics) + 1]) + body
    answer += struct.pack(">h", 0) if version >= 13 else b""
    answer += b"\0"
    return struct.pack(">i", len(answer)) + answer
