"""A group of member processes of one kind, and what can be done to them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the consumers that are compared."""

    name: str
    title: str
    what: str
    module: str


KINDS = (
    Kind(
        name="default",
        title="automatic commits",
        what="confluent-kafka as most start: poll, handle; the client commits every 5 s",
        module="examples.lab.plain_default",
    ),
    Kind(
        name="careful",
        title="manual commits",
        what="confluent-kafka with care: commits what is handled, each second and at every revoke",
        module="examples.lab.plain_careful",
    ),
    Kind(
        name="holdfast",
        title="holdfast",
        what="the same client inside holdfast, with Redis: four workers in each process",
        module="examples.lab.with_holdfast",
    ),
)


@dataclass(slots=True)
class Life:
    """When a member ran, for the picture. Times of the monotonic clock."""

    began: float
    ended: float | None = None
    how: str = ""
    stopped: list[tuple[float, float | None]] = field(default_factory=list)


class Group:
    """The members of one kind. Every process is started with a leash (see member.py) and ended by `close()`."""

    def __init__(self, kind: Kind, command_line: list[str], logs: Path) -> None:
        self.kind = kind
        #: For each member its processes, one after the other.
        self.lives: dict[str, list[Life]] = {}
        self._command_line = command_line
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def log_of(self, member: str) -> Path:
        """Where that member's output goes."""
        return self._logs / f"{self.kind.name}-{member}.log"

    def start(self, member: str) -> None:
        """A new process for this member: its first, or after the last one has ended."""
        if (last := self._processes.get(member)) is not None:
            _reap(last)
        with self.log_of(member).open("ab") as log:
            self._processes[member] = subprocess.Popen(
                [sys.executable, "-m", self.kind.module, "--name", member, *self._command_line],
                cwd=_CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.lives.setdefault(member, []).append(Life(time.monotonic()))

    def terminate(self, member: str) -> None:
        """Ask it to leave, as a rolling restart does."""
        self.lives[member][-1].how = "left"
        self._processes[member].send_signal(signal.SIGTERM)

    def kill(self, member: str) -> None:
        """End it in the middle of whatever it does, as the kernel does when memory runs out."""
        self.lives[member][-1].how = "killed"
        self._processes[member].kill()

    def stop(self, member: str) -> None:
        """Freeze it, as a suspended machine or a very long garbage collection does."""
        self._processes[member].send_signal(signal.SIGSTOP)
        self.lives[member][-1].stopped.append((time.monotonic(), None))

    def go_on(self, member: str) -> None:
        """Let it go on; it does not know that time has passed."""
        self._processes[member].send_signal(signal.SIGCONT)
        began, _ = self.lives[member][-1].stopped.pop()
        self.lives[member][-1].stopped.append((began, time.monotonic()))

    def look(self) -> list[str]:
        """Note who has ended. Returns the members that ended although nobody asked them to."""
        surprises = []
        for member, process in self._processes.items():
            life = self.lives[member][-1]
            if life.ended is None and process.poll() is not None:
                life.ended = time.monotonic()
                if not life.how:
                    life.how = "failed"
                    surprises.append(member)
        return surprises

    def running(self) -> list[str]:
        """The members whose process has not ended."""
        self.look()
        return [member for member, lives in self.lives.items() if lives[-1].ended is None]

    def close(self) -> None:
        """End what still runs, at once."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()  # also ends a process that is stopped
            _reap(process)
        self.look()


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
