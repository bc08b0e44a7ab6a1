"""A socket that never blocks, plain or TLS, and what its thread waits with."""

from __future__ import annotations

import selectors
import socket
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.timing import Clock

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
_RECEIVE_BYTES: Final = 256 * 1024
_LONGEST_S: Final = 3600.0  # a selector takes no infinity
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Channel:
    """A connected socket. OpenSSL allows one thread at a time, so callers hold one lock around `send` and `receive`."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)

    def send(self, data: bytearray) -> int:
        """How many bytes of it went; 0 = none now. Raises OSError."""
        try:
            return self.socket.send(data)
        except _NOT_NOW:
            return 0

    def receive(self) -> memoryview | None:
        """What has arrived, valid until the next call; None = nothing now. Raises OSError, also at the stream's end."""
        try:
            count = self.socket.recv_into(self._buffer)
        except _NOT_NOW:
            return None
        if not count:
            raise ConnectionResetError("the server closed the connection")
        return self._view[:count]

    @property
    def has_more(self) -> bool:
        """Whether TLS holds bytes already that no selector tells of."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def close(self) -> None:
        """Close it; whatever is in it is lost."""
        self.socket.close()


class Waiter:
    """Waits for a socket, a moment, or for `wake` by another thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self._selector.register(self._ear, READ)
        self._watched: tuple[socket.socket, int] | None = None

    def wake(self) -> None:
        """End the wait, or the next one. Any thread."""
        try:
            self._mouth.send(b"!")
        except OSError:  # full, so it is awake already; or closed
            return

    def watch(self, sock: socket.socket | None, events: int = READ) -> None:
        """Wait for these events of that socket from now on; None = for none."""
        wanted = None if sock is None else (sock, events)
        if wanted == self._watched:
            return
        if self._watched is not None:
            self._selector.unregister(self._watched[0])
        if sock is not None:
            self._selector.register(sock, events)
        self._watched = wanted

    def wait(self, until: float) -> bool:
        """Whether the socket is ready. False = woken, or `until` (by the clock) is here."""
        ready = False
        left_s = min(_LONGEST_S, max(0.0, until - self._clock.now()))
        for key, _ in self._selector.select(left_s):
            if key.fileobj is self._ear:
                self._hush()
            else:
                ready = True
        return ready

    def _hush(self) -> None:
        try:
            self._ear.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give everything back."""
        self._selector.close()
        self._ear.close()
        self._mouth.close()
