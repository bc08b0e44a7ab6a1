"""A server in this process that says what a test wants, for what a real broker seldom does: half frames, silence, a
connection that breaks. It speaks by holdfast's own frames, which are held against Java's bytes elsewhere."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Self

from holdfast.adapters.rocketmq.remoting.frame import Command, FrameReader, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping


class Peer:
    """One client's connection, at the server's end."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(
        self,
        request: Command,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        self.write(encode(Command(code, request.opaque, 1, remark, fields or {}, body)))

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class FakeServer:
    """Calls `handle(command, peer)` for each frame, on a thread for each connection.

    Args:
        handle: what to do; None = read and say nothing.
        tls: the server's context.
        port: 0 = any.
    """

    def __init__(
        self,
        handle: Callable[[Command, Peer], None] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._handle, self._tls = handle, tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.received: list[Command] = []
        self.peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            peer.hang_up()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            peer = Peer(connection)
            self.peers.append(peer)
            frames = FrameReader()
            while piece := connection.recv(65536):
                for command in frames.feed(piece):
                    self.received.append(command)
                    if self._handle is not None:
                        self._handle(command, peer)


def route_body(queues: Mapping[str, tuple[int, int]], brokers: Mapping[str, Mapping[int, str]], perm: int = 6) -> bytes:
    """A name server's answer: broker to its numbers of queues (read, write); broker to addresses by id."""
    return json.dumps(
        {
            "queueDatas": [
                {"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": 0}
                for name, (read, write) in queues.items()
            ],
            "brokerDatas": [
                {"cluster": "c", "brokerName": name, "brokerAddrs": {str(each): at for each, at in members.items()}}
                for name, members in brokers.items()
            ],
        }
    ).encode()
