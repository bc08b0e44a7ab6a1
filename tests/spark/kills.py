"""kill -9 of a driver with its JVM and its workers, where it stands still."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.processes import kill_session, members, spawn, tail
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.spark.driver import Plan

ROOT = Path(__file__).parents[2]
#: Long: a start and a batch of each query take half a minute on an idle machine.
_PATIENCE_S = 900.0


def executors(session_id: int) -> list[int]:
    """The JVMs of those that the session has started, in the order of their numbers."""
    found = []
    for pid in members(session_id):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # it has ended since
        if b"CoarseGrainedExecutorBackend" in command:
            found.append(pid)
    return sorted(found)


class Drivers:
    """One after the other, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"

    def run_and_kill(
        self, plan: Plan, let_go_s: float | None = None, meanwhile: Callable[[], None] | None = None
    ) -> dict[str, str]:
        """Start one, and kill it when each of its queries stands still, or has nothing left to read.

        Args:
            plan: what it does.
            let_go_s: let them go on, for so long, and kill it then.
            meanwhile: called as they go on, before that time begins. The driver may end by what it does.

        Returns:
            By the query's name, the last phase that it came to, and the batch.
        """
        stand = [self.folder / aim.name / "stands" for aim in plan.aims]
        go = self.folder / "go"
        for old in (*stand, go):
            old.unlink(missing_ok=True)
        with self._started(plan) as driver:
            self._await(driver, lambda: all(each.exists() for each in stand))
            if let_go_s is not None:
                go.touch()
                if meanwhile is not None:
                    meanwhile()
                time.sleep(let_go_s)
        return {aim.name: self._last(aim.name) for aim in plan.aims}

    def run(self, plan: Plan) -> None:
        """Start one, and let it come to its end."""
        with self._started(plan) as driver:
            self._await(driver, lambda: driver.poll() == 0)

    @contextmanager
    def _started(self, plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
        plan.write(self.folder)
        driver = spawn([sys.executable, "-m", "tests.spark.driver", str(self.folder)], self._log, cwd=ROOT)
        try:
            yield driver
        finally:
            kill_session(driver)

    def _await(self, driver: subprocess.Popen[bytes], there: Callable[[], bool]) -> None:
        def look() -> bool:
            if over := there():
                return over
            assert driver.poll() in (None, 0), tail(self._log)
            return False

        until(look, lambda: tail(self._log), patience_s=_PATIENCE_S)

    def _last(self, name: str) -> str:
        passed = self.folder / name / "passed"
        return (passed.read_text().splitlines() or [""])[-1] if passed.exists() else ""
