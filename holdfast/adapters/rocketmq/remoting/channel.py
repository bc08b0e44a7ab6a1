"""Non-blocking sockets, plain or TLS: connecting, sending and receiving, and a waiter that other threads can wake.

While a thread connects, it can still be told to end, and watches the timeouts of its requests.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
from typing import TYPE_CHECKING, Final

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.timing import Clock

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
_RECEIVE_BYTES: Final = 256 * 1024
_LONGEST_S: Final = 3600.0  # a selector accepts no infinite timeout
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Channel:
    """A connected socket. OpenSSL allows one thread at a time, so callers hold one lock around `send` and `receive`."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)

    def send(self, data: bytearray) -> int:
        """Send; return the number of bytes sent, 0 if none can be now. Raises OSError."""
        try:
            return self.socket.send(data)
        except _NOT_NOW:
            return 0

    def receive(self) -> memoryview | None:
        """Return the bytes that have arrived, valid until the next call; None: none now. Raises OSError, also at the
        end of the stream."""
        try:
            count = self.socket.recv_into(self._buffer)
        except _NOT_NOW:
            return None
        if not count:
            raise ConnectionResetError("the server closed the connection")
        return self._view[:count]

    @property
    def has_more(self) -> bool:
        """Whether TLS has buffered bytes, which a selector does not report."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def close(self) -> None:
        """Close the socket; unread bytes are lost."""
        self.socket.close()


class Waiter:
    """Waits for a socket, for a time, or for `wake` by another thread."""

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
        except OSError:  # its buffer is full, so it is awake already; or it is closed
            return

    def watch(self, sock: socket.socket | None, events: int = READ) -> None:
        """Wait for these events of this socket from now on; None: for no socket."""
        wanted = None if sock is None else (sock, events)
        if wanted == self._watched:
            return
        if self._watched is not None:
            self._selector.unregister(self._watched[0])
        if sock is not None:
            self._selector.register(sock, events)
        self._watched = wanted

    def wait(self, until: float) -> bool:
        """Wait. Returns True if the socket is ready, False if woken, or at `until` (by the clock)."""
        ready = False
        left_s = min(_LONGEST_S, max(0.0, until - self._clock.now()))
        for key, _ in self._selector.select(left_s):
            if key.fileobj is self._ear:
                self._clear_wakeups()
            else:
                ready = True
        return ready

    def _clear_wakeups(self) -> None:
        try:
            self._ear.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the selector and the sockets of `wake`."""
        self._selector.close()
        self._ear.close()
        self._mouth.close()


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[host]:port". Raises SettingError."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise SettingError("address", address, "host:port is wanted, several parted by ';'")
    return host.strip("[]"), int(port)


def connect(
    address: str,
    tls: ssl.SSLContext | None,
    *,
    until: float,
    clock: Clock,
    waiter: Waiter,
    pause: Callable[[float], bool],
) -> socket.socket:
    """Connect a non-blocking socket, with the TLS handshake.

    Args:
        address: host:port; all addresses of the host are tried.
        tls: None: plain.
        until: the time by the clock at which to give up.
        clock: of `until`.
        waiter: told which socket to watch.
        pause: waits once, until a time, and returns whether the watched socket is ready. An error ends the attempt.

    Raises:
        OSError: no address accepts the connection; the reason of the last one.
    """
    host, port = split_address(address)
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            _start_connecting(made, where, waiter, lambda: _ready(pause, until, clock))
            if tls is None:
                return made
            return _secure(made, tls, host, waiter, lambda: _ready(pause, until, clock))
        except OSError as error:
            last = error
            waiter.watch(None)
            made.close()
        except BaseException:
            waiter.watch(None)
            made.close()
            raise
    raise last


def _ready(pause: Callable[[float], bool], until: float, clock: Clock) -> None:
    while not pause(until):
        if clock.now() >= until:
            raise TimeoutError("connecting took too long")


def _start_connecting(made: socket.socket, where: object, waiter: Waiter, ready: Callable[[], None]) -> None:
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    code = made.connect_ex(where)  # type: ignore[arg-type]  # as getaddrinfo gave it
    if code == errno.EINPROGRESS:
        waiter.watch(made, WRITE)
        ready()
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _secure(
    made: socket.socket, tls: ssl.SSLContext, host: str, waiter: Waiter, ready: Callable[[], None]
) -> ssl.SSLSocket:
    waiter.watch(None)  # the wrapped socket is another object with the same descriptor
    wrapped = tls.wrap_socket(made, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                waiter.watch(wrapped, READ)
            except ssl.SSLWantWriteError:
                waiter.watch(wrapped, WRITE)
            else:
                return wrapped
            ready()
    except BaseException:
        waiter.watch(None)
        wrapped.close()
        raise
