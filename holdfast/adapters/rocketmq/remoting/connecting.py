"""Connecting without blocking: a thread that connects still hears that it is to end, and watches its requests."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.channel import READ, WRITE
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.remoting.channel import Waiter
    from holdfast.timing import Clock


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
    """A connected socket that does not block, after the TLS handshake.

    Args:
        address: host:port; all addresses of the host are tried.
        tls: None = plain.
        until: the time by the clock at which to give up.
        clock: of `until`.
        waiter: is told which socket to watch.
        pause: waits once, until a time; whether the watched socket is ready. What it raises ends the attempt.

    Raises:
        OSError: no address took us; the last one's reason.
    """
    host, port = split_address(address)
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            _reach(made, where, waiter, lambda: _ready(pause, until, clock))
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


def _reach(made: socket.socket, where: object, waiter: Waiter, ready: Callable[[], None]) -> None:
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
