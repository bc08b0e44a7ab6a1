"""A real Redis for the tests: `redis-server` from PATH, loopback only, nothing kept."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
import redis

from tests.harness.processes import ServerFailed, spawn
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.one_process import OneProcess

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_START_S = 60.0


class RedisServer(OneProcess):
    """One redis-server process. Its data survives `restart`, and is gone after `stop`.

    Args:
        password: for `requirepass`.
        maxmemory: e.g. "4mb".
        policy: the maxmemory-policy.
        replica_of: follow that server.
        aof: write an append-only file, so that `kill` and `restart` keep the data.
        unix_socket: also listen at `unix_url`.
        more: other options of redis-server.
        tls: a folder, for an authority of its own and the server's certificate: then it speaks TLS alone.

    Raises:
        ServerFailed: there is no redis-server, or it does not start.
    """

    called = "redis-server"

    def __init__(
        self,
        *,
        password: str = "",
        maxmemory: str = "",
        policy: str = "",
        replica_of: RedisServer | None = None,
        aof: bool = False,
        unix_socket: bool = False,
        more: Sequence[str] = (),
        tls: Path | None = None,
        port: int = 0,
    ) -> None:
        """Args: port: 0 = a free one."""
        self._certificates = None if tls is None else Certificates(tls)
        self._binary = shutil.which("redis-server")
        if self._binary is None:
            raise ServerFailed("no redis-server on PATH: apt install redis-server, or brew install redis")
        self.password = password
        # "always": with "everysec" a busy Redis answers before it has written, and forgets that when it is killed.
        self._options = ["--save", "", "--appendonly", "yes" if aof else "no", "--appendfsync", "always"]
        # A replica gets its first copy at once, instead of after the five seconds that others may join in.
        self._options += ["--repl-diskless-sync-delay", "0"]
        for option, value in (("requirepass", password), ("maxmemory", maxmemory), ("maxmemory-policy", policy)):
            if value:
                self._options += [f"--{option}", value]
        if replica_of is not None:
            self._options += ["--replicaof", "127.0.0.1", str(replica_of.port)]
            if replica_of.password:
                self._options += ["--masterauth", replica_of.password]
        self._options += more
        super().__init__("redis")
        self.port = port
        if unix_socket:
            self._options += ["--unixsocket", str(self._home / "redis.sock")]
        self._start()

    @property
    def url(self) -> str:
        """With the password, where there is one, and whom to trust."""
        return self.url_of("", self.password)

    def url_of(self, user: str, password: str) -> str:
        """The same for another user."""
        login = f"{user}:{password}@" if password else ""
        if self._certificates is None:
            return f"redis://{login}127.0.0.1:{self.port}/0"
        return f"rediss://{login}127.0.0.1:{self.port}/0?ssl_ca_certs={self._certificates.ca_file}"

    @property
    def unix_url(self) -> str:
        """Of the socket in the file system, where there is one."""
        return f"unix://{self._home / 'redis.sock'}?db=0"

    @property
    def settles_when_full(self) -> bool:
        """Whether it knows script flags: Redis 6.2 refuses every write when memory is full."""
        with self.client() as client:
            return int(str(client.info("server")["redis_version"]).split(".")[0]) >= 7

    def client(self) -> redis.Redis:
        """For looking in from the side. Close it."""
        return redis.Redis.from_url(self.url, socket_timeout=5.0)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        command = [str(self._binary), "--bind", "127.0.0.1", "--dir", str(self._home)]
        listens = ["--port", str(port)] if self._certificates is None else self._certificates.redis(port)
        return spawn([*command, *listens, *self._options], self._log)

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
