"""`holdfast run` as a process of its own, with real signals, and the shop that it runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.harness.memory_shop import DIES, GATE, LEDGER, ledger
from tests.harness.processes import spawn
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
SHOP = "tests.harness.memory_shop:app"


class Run:
    """A context: what still runs at its end is killed.

    Args:
        folder: of this test's files.
        arguments: behind `holdfast run`.
        environment: besides the test's own.
        gated: the shop's handlers wait until `open_gate`.
        dies: the ordinals of processes that end at once.
        cwd: where it runs.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        gated: bool = False,
        dies: str = "",
        cwd: Path = ROOT,
    ) -> None:
        self.ledger_path, self.log_path, self._gate = folder / "ledger", folder / "log", folder / "gate"
        own = {LEDGER: str(self.ledger_path), DIES: dies, "PYTHONPATH": str(ROOT)}
        if gated:
            own[GATE] = str(self._gate)
        self.process = spawn(
            [sys.executable, "-m", "holdfast", "run", *map(str, arguments)],
            self.log_path,
            cwd=cwd,
            environment=os.environ | own | dict(environment or {}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in {self.process.pid, *(int(each["pid"]) for each in ledger(self.ledger_path))}:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> str:
        """What it has said."""
        return self.log_path.read_text(encoding="utf-8")

    def seen(self, what: str, process: int | None = None) -> list[int]:
        """The process ids that have noted it, in order."""
        return [
            int(each["pid"])
            for each in ledger(self.ledger_path)
            if each["what"] == what and (process is None or each["process"] == str(process))
        ]

    def until_seen(self, what: str, times: int = 1, process: int | None = None) -> list[int]:
        """Wait until it was noted so often. Returns: who has noted it."""

        def look() -> list[int] | None:
            found = self.seen(what, process)
            return found if len(found) >= times else None

        return until(look, lambda: f"{what}: {ledger(self.ledger_path)}\n{self.log}")

    def until_said(self, text: str) -> None:
        """Wait for a text in its log."""
        until(lambda: text in self.log, lambda: f"{text!r} is not in:\n{self.log}")

    def open_gate(self) -> None:
        """Let all handlers go on that wait there, now and later."""
        self._gate.touch()

    def signal(self, number: signal.Signals) -> None:
        """Send it to `holdfast run` alone."""
        self.process.send_signal(number)

    def ends(self, code: int) -> str:
        """Wait for its end. Returns what it has said."""
        assert self.process.wait(PATIENCE_S) == code, self.log
        return self.log


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
