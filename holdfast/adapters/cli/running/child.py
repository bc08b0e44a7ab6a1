"""One process of several, in its supervisor's hands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from holdfast.adapters.cli.running.lifeline import STOP
from holdfast.plugin.overrides import LIFELINE, PROCESS
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence


class Child:
    """A process that runs the same command, with a line to this one. One thread.

    Args:
        arguments: behind `holdfast`.
        ordinal: which one it is, from 0 on.

    Raises:
        OSError: there is no memory for it, or no room.
    """

    def __init__(self, arguments: Sequence[str], ordinal: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.started_s = SYSTEM_CLOCK.now()
        #: What it has said of its app, once that was imported; and why it ends, if it ends with an error.
        self.loaded: dict[str, Any] | None = None
        self.failed: dict[str, Any] | None = None
        #: Whether it was asked to stop.
        self.asked = False
        self._heard = b""
        with ExitStack() as unless_started:
            unless_started.enter_context(self.socket)
            with theirs:
                # A group of its own: Ctrl-C at a terminal is for the supervisor, which asks all of them once.
                self._process = subprocess.Popen(  # noqa: S603 - this very command
                    [sys.executable, "-m", "holdfast", *arguments],
                    env=os.environ | {PROCESS: str(ordinal), LIFELINE: str(theirs.fileno())},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            unless_started.pop_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def hear(self) -> bool:
        """Take in all that it has said by now. False: it says nothing more."""
        while True:
            try:
                part = self.socket.recv(65_536)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not part:
                return False
            *lines, self._heard = (self._heard + part).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message["type"] == "loaded":
                    self.loaded = message
                else:
                    self.failed = message

    def stop(self, why: str) -> None:
        """Ask it to drain and leave."""
        self.asked = True
        self.tell(f"{STOP} {why}")

    def tell(self, what: str) -> None:
        """Say a line. Who has ended, or has not read for long, does not hear it."""
        with suppress(OSError):
            self.socket.send(what.encode() + b"\n")

    def kill(self) -> None:
        """End it at once, and all that it has started in its group."""
        with suppress(ProcessLookupError, PermissionError):  # on macOS the latter, where all of it is ending
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """With what it has ended, a signal as a negative number; None = it runs. Then everything was heard, and what it
        has left running in its group is ended too."""
        if self._process.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            self.kill()  # before its number is free for another process
        code = self._process.wait()
        self.hear()
        return code


def told(code: int) -> str:
    """How a process has ended, for people."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
