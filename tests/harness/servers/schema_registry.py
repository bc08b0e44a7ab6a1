"""A real schema registry for the tests: Apicurio's, with Confluent's protocol, loopback only, schemas in memory."""

from __future__ import annotations

import os
import shutil
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.processes import ServerFailed, spawn
from tests.harness.servers.one_process import OneProcess

if TYPE_CHECKING:
    import subprocess

_LIB = Path(__file__).parents[3] / ".servers" / "registry" / "lib"
_START_S = 120.0
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class SchemaRegistry(OneProcess):
    """One server. Raises ServerFailed: it is not installed, or does not start."""

    called, patience_s = "the schema registry", 10.0

    def __init__(self) -> None:
        lib = Path(os.environ.get("HOLDFAST_REGISTRY_LIB", _LIB))
        java, jars = shutil.which("java"), sorted(lib.glob("apicurio-registry-app-*-runner.jar"))
        if java is None or not jars:
            raise ServerFailed(f"no java on PATH, or no registry in {lib}: make setup-all")
        self._command = [java, *_JAVA, "-Dquarkus.http.host=127.0.0.1"]
        self._jar = jars[-1]
        self.url = ""
        super().__init__("registry")
        self._start()

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        return spawn([*self._command, f"-Dquarkus.http.port={port}", "-jar", str(self._jar)], self._log, cwd=self._home)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):  # noqa: S310 - our own
                    return process.poll() is None
            except OSError:
                time.sleep(0.1)
        return False
