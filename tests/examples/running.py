"""An example in a process of its own, whose lines are read as they come."""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from tests.examples.bench import ROOT, begin
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


class Running:
    """A process; its lines are read as they come."""

    def __init__(self, command: list[str], env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=begin,
        )
        self._changed = threading.Condition()
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self._process.stdout, self.lines), (self._process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def billed(self) -> list[str]:
        """The ids of orders."""
        return [line.split()[1] for line in list(self.lines) if line.startswith("billed ")]

    def until(self, condition: Callable[[], bool]) -> None:
        """Look again with each line."""
        until(condition, lambda: (self.lines[-5:], self.errors[-5:]), changed=self._changed)

    def end(self, number: int = signal.SIGTERM) -> int:
        """A signal; returns the exit status when all its lines are read."""
        self._process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit status, when it has ended by itself."""
        status = self._process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return status

    def close(self) -> None:
        self._process.kill()
        self.ended()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
