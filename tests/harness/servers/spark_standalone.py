"""A standalone cluster of Spark's for the tests: a master and two workers, processes of their own, from pyspark's jars.

Each worker has an address of the loopback network to itself, so Spark takes them for two machines.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyspark

from tests.harness.processes import ServerFailed, free_ports, kill_session, spawn
from tests.harness.servers.one_process import OneProcess
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess

_SPARK = Path(pyspark.__file__).parent
_START_S = 60.0
_SMALL = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: What an executor gets: room for two of them on a worker.
CORES, MEMORY_MB = 2, 1024


class _Daemon(OneProcess):
    """One of Spark's own."""

    main = ""

    def _options(self) -> tuple[str, ...]:
        """Of its JVM."""
        return ()

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        java = shutil.which("java")
        if java is None:
            raise ServerFailed("no java on PATH: run `make setup`")
        jars = f"{_SPARK}/jars/*"
        environment = {**os.environ, "SPARK_HOME": str(_SPARK), "SPARK_LOCAL_DIRS": str(self._home)}
        environment["SPARK_SCALA_VERSION"] = "2.13"  # as load-spark-env.sh sets it: pyspark has no file that says so
        command = [java, *_SMALL, *self._options(), "-cp", jars, f"org.apache.spark.deploy.{self.main}", *arguments]
        return spawn(command, self._log, cwd=self._home, environment=environment)

    def _says(self, process: subprocess.Popen[bytes], what: str) -> bool:
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and process.poll() is None:
            if what in self._log.read_text(errors="replace"):
                return True
            time.sleep(0.05)
        return False


class Master(_Daemon):
    """Says who works where, and keeps that in a folder for the next start (`spark.deploy.recoveryMode`)."""

    called, patience_s, main = "Spark's master", 10.0, "master.Master"

    def __init__(self) -> None:
        super().__init__("spark-master")
        self._page = 0
        self._start()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        """What its page tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=_START_S) as answer:
            return dict(json.load(answer))

    def forget(self) -> None:
        """What it keeps is gone, as that of a master without a recovery mode. Call it between `kill` and `restart`."""
        shutil.rmtree(self._kept)

    @property
    def _kept(self) -> Path:
        return self._home / "kept"

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        self._log.unlink(missing_ok=True)
        [self._page] = free_ports(1)
        return self._java("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._page))

    def _options(self) -> tuple[str, ...]:
        return ("-Dspark.deploy.recoveryMode=FILESYSTEM", f"-Dspark.deploy.recoveryDirectory={self._kept}")

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        return self._says(process, "I have been elected leader!") and process.poll() is None


class Worker(_Daemon):
    """Starts executors. Args: host: its address; master: the URL."""

    called, patience_s, main = "a worker of Spark's", 10.0, "worker.Worker"

    def __init__(self, host: str, master: str) -> None:
        super().__init__("spark-worker")
        self.host, self._master = host, master
        self._start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def switch_off(self) -> None:
        """It, its executors and their Python workers, by SIGKILL."""
        if self._process is not None:
            kill_session(self._process)

    def stop(self) -> None:
        self.switch_off()
        super().stop()

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self._log.unlink(missing_ok=True)
        return self._java(
            *("--host", self.host, "--port", str(port), "--webui-port", "0", "--work-dir", str(self._home / "work")),
            *("--cores", str(CORES), "--memory", f"{MEMORY_MB}m", self._master),
        )

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        return self._says(process, "Successfully registered with master") and process.poll() is None


class SparkStandalone:
    """A master and two workers. `with` starts and stops it."""

    def __init__(self) -> None:
        self.master: Master
        self.workers: list[Worker] = []

    @property
    def url(self) -> str:
        """For `spark.master`."""
        return self.master.url

    def replace(self, worker: Worker) -> None:
        """Start another one in place of a worker that was switched off."""
        place = self.workers.index(worker)
        worker.stop()
        self.workers[place] = Worker(worker.host, self.url)

    def cores_used(self) -> int:
        """By executors, as the master has it."""
        return int(self.master.state()["coresused"])

    def await_idle(self) -> None:
        """Until both workers are there and nothing runs: executors of a driver that was killed have ended."""

        def idle() -> bool:
            living = [each for each in self.master.state()["workers"] if each["state"] == "ALIVE"]
            return len(living) == len(self.workers) and not any(each["coresused"] for each in living)

        until(idle, lambda: json.dumps(self.master.state()))

    def __enter__(self) -> Self:
        self.master = Master()
        try:
            self.workers = [Worker(host, self.url) for host in ("127.0.0.2", "127.0.0.3")]
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for each in (*self.workers, self.master):
            each.stop()
