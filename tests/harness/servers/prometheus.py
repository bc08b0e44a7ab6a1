"""A real Prometheus for the tests: the distribution's, loopback only, nothing kept; promtool comes with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.harness.processes import ServerFailed, spawn
from tests.harness.servers.one_process import OneProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_START_S = 60.0


def _binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerFailed(f"no {name} on PATH: apt install prometheus, or brew install prometheus")
    return found


def promtool(*arguments: object) -> str:
    """Run it; what it says. Raises AssertionError: it finds fault."""
    ran = subprocess.run(
        [_binary("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


class PrometheusServer(OneProcess):
    """One server that looks at one target, five times a second.

    Args:
        target: host and port.
        rules: files.

    Raises:
        ServerFailed: there is no Prometheus, or it does not start.
    """

    called, patience_s = "Prometheus", 10.0

    def __init__(self, target: str, rules: Sequence[Path] = ()) -> None:
        self._program = _binary("prometheus")
        super().__init__("prometheus")
        conf = {  # JSON is YAML
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(each.resolve()) for each in rules],
            "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": [target]}]}],
        }
        (self._home / "prometheus.yml").write_text(json.dumps(conf), encoding="utf-8")
        self._start()

    def ask(self, path: str, **arguments: str) -> Any:
        """Its HTTP interface. Raises AssertionError: it refuses, with the reason."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=_START_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error
        assert found["status"] == "success", found
        return found["data"]

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The series of now."""
        return list(self.ask("query", query=promql)["result"])

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self.port = port
        home = self._home
        options = {
            "config.file": home / "prometheus.yml",
            "storage.tsdb.path": home / "data",
            "web.listen-address": f"127.0.0.1:{port}",
        }
        return spawn([self._program, *(f"--{name}={value}" for name, value in options.items())], self._log, cwd=home)

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until this very server answers: another may have taken the port, and then it ends."""
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                    return process.poll() is None
            except OSError:
                time.sleep(0.05)
        return False
