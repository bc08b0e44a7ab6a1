"""A Redis of a scenario's own, to be stalled, killed and restarted. It keeps what it acknowledged (appendonly)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Self

import redis

from tests.servers.processes import ServerFailed, end, free_ports, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_START_S = 15.0


class OwnRedis:
    """One redis-server on a port that stays the same over restarts."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log = home / "redis.log"
        [self._port] = free_ports(1)
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            end(self._process, patience_s=5.0)

    def start(self) -> None:
        """Start, with the data of the last life; returns when it answers."""
        # What is written before a reply survives kill -9 (not the machine's end): the write is with the kernel by then.
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(self._home),
            "save": "",
            "appendonly": "yes",
        }
        command = ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]
        self._process = spawn(command, self._log)
        end_at = time.monotonic() + _START_S
        with redis.Redis.from_url(self.url, socket_timeout=1.0) as client:
            while time.monotonic() < end_at:
                try:
                    if client.ping():
                        return
                except redis.ConnectionError:  # not yet there; also while it loads its data
                    if self._process.poll() is not None:
                        break
                    time.sleep(0.02)
        msg = f"redis-server did not start:\n{tail(self._log)}"
        raise ServerFailed(msg)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stall(self) -> None:
        """SIGSTOP: connections stay and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
