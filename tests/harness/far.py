"""A server that is far away: a TCP proxy on loopback that keeps what it is given for half a round trip each way.

    python -m tests.harness.far PORT TARGET_PORT ROUND_TRIP_S

In a process of its own: in one with an app it would wait for the interpreter, and measure that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.harness.processes import ServerFailed, end, spawn, started, tail
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess

_CHUNK = 1 << 16


class Far:
    """A context manager. `port` leads to the server on `target_port`, so far away."""

    def __init__(self, target_port: int, round_trip_s: float) -> None:
        self._target_port, self._round_trip_s = target_port, round_trip_s
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        with tempfile.TemporaryDirectory(prefix="holdfast-far-") as folder:
            log = Path(folder) / "log"

            def start(port: int) -> subprocess.Popen[bytes]:
                self.port = port
                arguments = map(str, (port, self._target_port, self._round_trip_s))
                return spawn([sys.executable, "-m", "tests.harness.far", *arguments], log)

            self._process = started(0, start, self._answers)
            if self._process is None:
                raise ServerFailed(f"the proxy did not start:\n{tail(log)}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            end(self._process, patience_s=1.0)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        def there() -> bool:
            if process.poll() is None:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            return True

        until(there, "the proxy does not listen", despite=(OSError,))
        return process.poll() is None


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Hand on what comes, in order, each chunk so much later."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not chunk:
                writer.close()
                return
            writer.write(chunk)
            await writer.drain()

    delivering = asyncio.ensure_future(deliver())
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            waiting.put_nowait((loop.time() + delay_s, chunk))
    waiting.put_nowait((loop.time() + delay_s, b""))
    with contextlib.suppress(OSError):
        await delivering


async def _serve(port: int, target_port: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target_port)
        for each in (writer, back):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(_carry(reader, back, delay_s), _carry(there, writer, delay_s))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 2))
