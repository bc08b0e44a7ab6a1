"""The wire that tests cut: what it holds, and what becomes of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests.harness.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says what it hears, to each of its clients."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(100):
                    connection.sendall(data)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(echo: int) -> Iterator[Wire]:
    with Wire(echo) as made:
        yield made


@pytest.fixture
def client(wire: Wire) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", wire.port), 10.0) as made:
        made.sendall(b"before")
        assert made.recv(100) == b"before"
        yield made


@pytest.mark.parametrize("way", ["out", "back"])
def test_what_is_cut_one_way_is_held_and_arrives_when_it_is_mended(wire: Wire, client: socket.socket, way: str) -> None:
    wire.cut(["out"] if way == "out" else ["back"])
    client.sendall(b"held")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(100)
    wire.mend()
    client.settimeout(10.0)
    assert client.recv(100) == b"held"


def test_a_wire_that_is_reset_ends_connections_and_takes_new_ones(wire: Wire, client: socket.socket) -> None:
    wire.cut()
    client.sendall(b"never heard")
    wire.mend(reset=True)
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(100) == b""
    with socket.create_connection(("127.0.0.1", wire.port), 10.0) as another:
        another.sendall(b"again")
        assert another.recv(100) == b"again"


def test_who_comes_while_nobody_listens_is_not_the_last_that_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Wire(port) as wire:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", wire.port), 10.0) as client:
                assert client.recv(100) == b""
