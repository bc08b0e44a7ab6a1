"""A wire between a client and a server that tests can cut: a proxy of TCP on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seen from the client: what it says, what it is answered.
Way = Literal["out", "back"]
WAYS: tuple[Way, ...] = ("out", "back")
_CHUNK = 1 << 16


class Wire:
    """Passes on what comes at its port. Cut, it holds what comes, as a network does that drops packets: nobody's
    connection ends, nothing arrives. Mended, all arrives, or connections end, as behind a NAT that has forgotten them.
    """

    def __init__(self, target: int) -> None:
        """Args: target: the server's port."""
        self._target = target
        self._open: dict[Way, threading.Event] = {way: threading.Event() for way in WAYS}
        for each in self._open.values():
            each.set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name=f"wire-{self.port}", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, ways: Iterable[Way] = WAYS) -> None:
        """From now on nothing passes these ways."""
        for way in ways:
            self._open[way].clear()

    def mend(self, *, reset: bool = False) -> None:
        """What was held arrives; `reset`: nothing of it does, and connections end."""
        if reset:
            self._end_all()
        for each in self._open.values():
            each.set()

    def close(self) -> None:
        """Idempotent."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.mend(reset=True)

    def _end_all(self) -> None:
        with self._lock:
            ending, self._sockets = self._sockets, set()
        for each in ending:
            hang_up(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5.0)
                server.settimeout(None)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # nobody is there: nor is this
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            for way, source, sink in (("out", client, server), ("back", server, client)):
                name = f"wire-{self.port}-{way}"
                threading.Thread(target=self._pass_on, args=(way, source, sink), name=name, daemon=True).start()

    def _pass_on(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._open[way].wait()
                sink.sendall(data)
        self._open[way].wait()  # that a connection ends is not heard either
        for each in (source, sink):
            hang_up(each)
        with self._lock:
            self._sockets -= {source, sink}


def hang_up(connection: socket.socket) -> None:
    """Both threads that use it come to their ends."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
