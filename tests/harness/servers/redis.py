"""A real Redis for the tests: `redis-server` from PATH, loopback only, nothing kept."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
import redis

from tests.harness.processes import ServerFailed, end, spawn, started, tail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

_START_S = 60.0


class RedisServer:
    """One redis-server process. Its data survives `restart`, and is gone after `stop`.

    Args:
        password: for `requirepass`.
        maxmemory: e.g. "4mb".
        policy: the maxmemory-policy.
        replica_of: follow that server.
        aof: write an append-only file, so that `kill` and `restart` keep the data.
        unix_socket: also listen at `unix_url`.

    Raises:
        ServerFailed: there is no redis-server, or it does not start.
    """

    def __init__(
        self,
        *,
        password: str = "",
        maxmemory: str = "",
        policy: str = "",
        replica_of: RedisServer | None = None,
        aof: bool = False,
        unix_socket: bool = False,
    ) -> None:
        self.port = 0
        self._binary = shutil.which("redis-server")
        if self._binary is None:
            raise ServerFailed("no redis-server on PATH: apt install redis-server, or brew install redis")
        self._password = password
        # "always": with "everysec" a busy Redis answers before it has written, and forgets that when it is killed.
        self._options = ["--save", "", "--appendonly", "yes" if aof else "no", "--appendfsync", "always"]
        # A replica gets its first copy at once, instead of after the five seconds that others may join in.
        self._options += ["--repl-diskless-sync-delay", "0"]
        for option, value in (("requirepass", password), ("maxmemory", maxmemory), ("maxmemory-policy", policy)):
            if value:
                self._options += [f"--{option}", value]
        if replica_of is not None:
            self._options += ["--replicaof", "127.0.0.1", str(replica_of.port)]
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        self._log = self._home / "redis.log"
        if unix_socket:
            self._options += ["--unixsocket", str(self._home / "redis.sock")]
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    @property
    def url(self) -> str:
        """With the password, where there is one."""
        return f"redis://{f':{self._password}@' if self._password else ''}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """Of the socket in the file system, where there is one."""
        return f"unix://{self._home / 'redis.sock'}?db=0"

    def client(self) -> redis.Redis:
        """For looking in from the side. Close it."""
        return redis.Redis.from_url(self.url, socket_timeout=5.0)

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers do not come."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; connections break."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Start again on the same port, after `kill`."""
        self._start()

    def stop(self) -> None:
        """End it and remove its data."""
        if self._process is not None:
            end(self._process, patience_s=5.0)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _start(self) -> None:
        self._process = started(self.port, self._spawn, self._answers)
        if self._process is None:
            log = tail(self._log)
            self.stop()
            raise ServerFailed(f"redis-server did not start:\n{log}")

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        command = [str(self._binary), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(self._home)]
        return spawn([*command, *self._options], self._log)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the first PONG of this very process: another may have taken the port."""
        ends = time.monotonic() + _START_S
        with self.client() as client:
            while time.monotonic() < ends and process.poll() is None:
                try:
                    if client.info("server")["process_id"] == process.pid:
                        return True
                except (redis.ConnectionError, redis.TimeoutError):
                    time.sleep(0.01)
        return False


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for all tests that neither stop nor fill it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """That server, empty."""
    with redis_server.client() as client:
        client.flushdb()
    return redis_server.url
