"""Processes of fence_member.py in a test's hands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.examples.bench import ROOT, begin
from tests.harness.waiting import PATIENCE_S


class Member:
    """A process of fence_member.py."""

    def __init__(self, home: Path, name: str, **given: object) -> None:
        self.out, self.log = home / f"{name}.out", home / f"{name}.log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.examples.fence_member", "--json", json.dumps(given)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                preexec_fn=begin,
            )

    def said(self, what: str) -> list[dict[str, Any]]:
        """What it has said with that word in it. It lives."""
        assert self.process.poll() is None, self.log.read_text()
        return self.told(what)

    def told(self, what: str) -> list[dict[str, Any]]:
        """The same, also of one that has ended."""
        lines = self.out.read_text().split("\n")[:-1]
        return [line for line in map(json.loads, lines) if what in line]

    @property
    def stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
