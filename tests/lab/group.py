"""The processes of a group, what is done to them, and what they use of the processor."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.harness.processes import spawn
from tests.lab.evidence import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]
#: How long a member that was asked to leave may take: a handler of nine seconds among it.
LEAVES_S = 12.0
#: A supervisor's pause before it starts again who has ended by itself.
_AGAIN_S = 1.0
#: So much is kept of what it said.
_SAID = 160
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    began: float
    ended: float | None = None
    how: Literal["left", "killed", "died", "stuck"] | None = None
    frozen: list[tuple[float, float]] = field(default_factory=list)
    #: Seconds of processor now, and when its first record came.
    cpu_s: float = 0.0
    cpu_before_s: float | None = None


class Group:
    """Members by their names. The cell's thread alone calls it, but for `look`, which may be called by another."""

    def __init__(self, command: Callable[[str], Sequence[str]], folder: Path) -> None:
        """Args: command: a member's; folder: for what they say."""
        self._command, self._folder = command, folder
        self._lives: dict[str, list[_Process]] = {}
        self._lock = threading.RLock()

    def start(self, name: str) -> None:
        """A new process under that name."""
        log = self._folder / f"{name}.log"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(self._folder)}
        with self._lock:
            process = spawn(list(self._command(name)), log, cwd=self._folder, environment=environment)
            self._lives.setdefault(name, []).append(_Process(process, time.monotonic()))

    def leave(self, name: str) -> None:
        """SIGTERM."""
        self._end(name, "left", signal.SIGTERM)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._end(name, "killed", signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        with self._lock:
            self._lives[name][-1].popen.send_signal(signal.SIGSTOP)
            self._lives[name][-1].frozen.append((time.monotonic(), time.monotonic()))

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        with self._lock:
            life = self._lives[name][-1]
            life.frozen[-1] = (life.frozen[-1][0], time.monotonic())
            life.popen.send_signal(signal.SIGCONT)

    def await_end(self, name: str) -> None:
        """Returns when who was asked to leave has ended; it is killed where it takes too long."""
        with self._lock:
            life = self._lives[name][-1]
        try:
            life.popen.wait(LEAVES_S)
        except subprocess.TimeoutExpired:
            with self._lock:
                life.how = "stuck"
            life.popen.kill()
            life.popen.wait()
        self.look(set())

    def end(self) -> None:
        """All that still run are asked to leave, at the same time."""
        names = [name for name, lives in self._lives.items() if lives[-1].popen.poll() is None]
        for name in names:
            if self._lives[name][-1].how is None:
                self.leave(name)
        for name in names:
            self.await_end(name)

    def close(self) -> None:
        """Nothing of it is left, whatever happened. Idempotent."""
        for lives in self._lives.values():
            for each in lives:
                each.popen.kill()
                each.popen.wait()

    def look(self, began: set[int]) -> None:
        """Who has ended; and how much processor each has used. Args: began: processes that have had a record."""
        with self._lock:
            for lives in list(self._lives.values()):
                life = lives[-1]
                if life.ended is not None:
                    continue
                with suppress(OSError, IndexError, ValueError):
                    fields = Path(f"/proc/{life.popen.pid}/stat").read_text().rpartition(")")[2].split()
                    life.cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
                if life.cpu_before_s is None and life.popen.pid in began:
                    life.cpu_before_s = life.cpu_s
                if life.popen.poll() is not None:
                    life.ended = time.monotonic()
                    life.how = life.how or "died"

    def revive(self) -> list[tuple[str, str]]:
        """Start again who has ended by itself, as a supervisor does. Returns names, and what each said last."""
        with self._lock:
            fallen = [
                name
                for name, lives in self._lives.items()
                if (last := lives[-1]).how == "died"
                and last.ended is not None
                and time.monotonic() > last.ended + _AGAIN_S
            ]
            said = [(name, self._last_line(name)) for name in fallen]
            for name in fallen:
                self.start(name)
        return said

    def lives(self, origin: float) -> tuple[Life, ...]:
        """What became of all, by the clock of the cell."""
        return tuple(
            Life(
                name,
                each.popen.pid,
                each.began - origin,
                (each.ended or time.monotonic()) - origin,
                each.how or "left",
                tuple((a - origin, b - origin) for a, b in each.frozen),
                0.0 if each.cpu_before_s is None else each.cpu_s - each.cpu_before_s,
            )
            for name, lives in self._lives.items()
            for each in lives
        )

    def _last_line(self, name: str) -> str:
        lines = (self._folder / f"{name}.log").read_text(errors="replace").split("\n")
        return next((each.strip()[:_SAID] for each in reversed(lines) if each.strip()), "nothing")

    def _end(self, name: str, how: Literal["left", "killed"], number: signal.Signals) -> None:
        with self._lock:
            life = self._lives[name][-1]
            life.how = life.how or how
            life.popen.send_signal(number)
