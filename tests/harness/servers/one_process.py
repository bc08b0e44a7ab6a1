"""A server that is one process: its life is the same for all that the tests start."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from tests.harness.processes import ServerFailed, end, started, tail

if TYPE_CHECKING:
    import subprocess


class OneProcess:
    """The process, with a folder of its own: nothing of it outlives `stop`, which the end of a `with` calls.

    Args:
        name: of the folder and the log.
    """

    #: In the error of one that does not start.
    called: ClassVar[str]
    patience_s: ClassVar[float] = 5.0

    def __init__(self, name: str) -> None:
        self.port = 0
        self._home = Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-"))
        self._log = self._home / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers do not come."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; connections break."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Start again on the same port, after `kill`."""
        self._start()

    def stop(self) -> None:
        """End it and remove its data. Idempotent."""
        if self._process is not None:
            end(self._process, patience_s=self.patience_s)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- of each server
    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        """Start the process there."""
        raise NotImplementedError

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until this very process answers: another may have taken the port."""
        raise NotImplementedError

    # ---- inside
    def _start(self) -> None:
        """Raises ServerFailed."""
        self._process = started(self.port, self._spawn, self._answers)
        if self._process is None:
            log = tail(self._log)
            self.stop()
            raise ServerFailed(f"{self.called} did not start:\n{log}")

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
