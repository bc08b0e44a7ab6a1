"""A real PostgreSQL for the tests: the distribution's, loopback only, nothing kept.

It refuses to run as root: then it runs as a user of the system that has nothing.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.processes import ServerFailed, spawn
from tests.harness.servers.one_process import OneProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_S = 120.0
_USER, PASSWORD = "holdfast", "swordfish-4711"
#: A crash of the machine is not what is tested.
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "100",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


def binaries() -> Path:
    """Where Debian puts them, the newest first; else where PATH has them."""
    of_debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(of_debian, key=lambda each: float(each.parents[1].name), reverse=True)
    on_path = shutil.which("initdb")
    if newest:
        return newest[0].parent
    if on_path:
        return Path(on_path).resolve().parent
    raise ServerFailed("no PostgreSQL: apt install postgresql, or brew install postgresql")


def _user() -> str | None:
    """Whom it runs as: None = us."""
    if os.getuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def ask(url: str, statement: str) -> list[Any]:
    """One statement, by itself; its rows."""
    import psycopg  # noqa: PLC0415 - of an extra, for who asks for this server

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return list(cursor.fetchall()) if cursor.description else []


class PostgresServer(OneProcess):
    """One server. Its data survives `restart`, and is gone after `stop`.

    Raises:
        ServerFailed: there is no PostgreSQL, or it does not start.
    """

    called = "PostgreSQL"

    def __init__(self) -> None:
        self._bin = binaries()
        super().__init__("postgres")
        self._data = self._home / "data"
        self._user = _user()
        self._made = 0
        if self._user is not None:
            shutil.chown(self._home, self._user)
        self._initialise()
        self._start()

    def database(self) -> str:
        """A new one, empty. Returns its URL."""
        self._made += 1
        name = f"test_{self._made}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str = "postgres", *, password: str = PASSWORD) -> str:
        return f"postgresql://{_USER}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """From the side, by itself."""
        return ask(self.url(database), statement)

    def stop(self) -> None:
        """End it and remove its data. Idempotent."""
        self._signal(signal.SIGQUIT)  # SIGTERM waits for all connections
        super().stop()

    def _initialise(self) -> None:
        secret = self._home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command: list[str | Path] = [
            self._bin / "initdb",
            "-D",
            self._data,
            "-U",
            _USER,
            "-A",
            "scram-sha-256",
            "--pwfile",
            secret,
        ]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self._home,
            extra_groups=self._groups,
        )
        if made.returncode:
            self.stop()
            raise ServerFailed(f"initdb failed:\n{made.stdout}{made.stderr}")

    @property
    def _groups(self) -> list[int] | None:
        return None if self._user is None else []

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(port), *options]
        return spawn(command, self._log, cwd=self._home, user=self._user)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until this very server answers: another may have taken the port."""
        import psycopg  # noqa: PLC0415 - as above

        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and process.poll() is None:
            try:
                [(data,)] = self.execute("SHOW data_directory")
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return bool(Path(data) == self._data)
        return False


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests that do not stop it; each takes a database of its own."""
    with PostgresServer() as server:
        yield server
