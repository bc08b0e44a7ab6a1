"""Python processes that are forked from one which has imported what they need: a start of Python with the library and
its clients is a third of a second of a core, and the tests start some hundred members and commands.

One such process for each process that asks, started when it first does: `python -m tests.harness.forks <socket>`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT = Path(__file__).parents[2]
#: What all of them import. None of these starts a thread; what is run is not among them.
_IMPORTED = (
    "holdfast",
    "holdfast.adapters.cli.entry",
    "holdfast.adapters.kafka",
    "holdfast.adapters.rocketmq",
    "tests.harness.group.config",
    "tests.harness.group.ledger",
    "tests.harness.group.numbers",
    "tests.harness.group.orders",
)
_MESSAGE = 1 << 17


class Forked:
    """A process, as `subprocess.Popen` has it."""

    def __init__(self, arguments: Sequence[str], status: int) -> None:
        """Args: status: where its parent writes its id, and later with what it has ended."""
        self._arguments, self._status = arguments, status
        self._said = b""
        self.returncode: int | None = None
        while b"\n" not in self._said:
            if not self._hear(None):
                raise ChildProcessError(f"{arguments}: there is nobody to fork it")
        self.pid = int(self._said.split(b"\n")[0])

    def poll(self) -> int | None:
        """With what it has ended; None = it runs."""
        while self.returncode is None and self._hear(0.0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        while self.returncode is None:
            if not self._hear(timeout):
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self, timeout: float | None) -> bool:
        """Whether there was anything to hear: a part of what is said, or that it is over."""
        if not select.select([self._status], [], [], timeout)[0]:
            return False
        part = os.read(self._status, 100)
        self._said += part
        if part:
            return True
        os.close(self._status)
        _, _, code = self._said.partition(b"\n")
        self.returncode = int(code or -signal.SIGKILL)  # without a word: who forks has ended, and all with it
        return bool(self._said)


class _Forks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, "-m", "tests.harness.forks", str(other.fileno())]
            # It ends when nobody holds the other end of its socket any more, and takes its children along.
            self._process = subprocess.Popen(
                command, pass_fds=[other.fileno()], cwd=_ROOT, stdin=subprocess.DEVNULL, start_new_session=True
            )

        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, how: Mapping[str, Any], *files: int) -> int:
        """Returns where its end is told."""
        status, tells = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(how).encode()], [*files, tells])
        finally:
            os.close(tells)
        return status


@functools.cache
def _forks() -> _Forks:
    return _Forks()


def fork(module: str, *arguments: str, out: int, err: int, strict: bool = False) -> Forked:
    """`python -m module arguments` in a session of its own, with what it says in these files. It has nothing to read,
    and dies with this process. `strict`: its warnings are errors, as by -W error, from when it begins."""
    how = {"module": module, "arguments": arguments, "environment": dict(os.environ), "strict": strict}
    return Forked([module, *arguments], _forks().start(how, out, err))


def run(module: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with `fork`, its warnings errors. Raises subprocess.TimeoutExpired, with it killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        forked = fork(module, *arguments, out=out.fileno(), err=err.fileno(), strict=True)
        try:
            forked.wait(timeout_s)
        finally:
            forked.kill()
        said = []
        for each in (out, err):
            each.seek(0)
            said.append(each.read().decode())
    return subprocess.CompletedProcess([module, *arguments], forked.wait(), *said)


# -- the process that forks --------------------------------------------------------------------------------------------


def _become(how: Mapping[str, Any], out: int, err: int) -> None:
    """In the child: be that module's process, to the end of Python."""
    os.setsid()
    die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.clear()
    os.environ.update(how["environment"])
    if how["strict"]:
        warnings.simplefilter("error")
    sys.argv = [how["module"], *how["arguments"]]
    runpy.run_module(how["module"], run_name="__main__", alter_sys=True)
    raise SystemExit(0)


def _serve(asked: socket.socket) -> None:
    """Fork what is asked for, tell who ends, until nobody can ask any more."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # or nothing would wake us
    tells: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1000)
            while tells and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                told = tells.pop(ended[0])
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, b"%d" % os.waitstatus_to_exitcode(ended[1]))
                os.close(told)
        if asked.fileno() in ready:
            what, files, _, _ = socket.recv_fds(asked, _MESSAGE, 3)
            if not what:
                return
            if (pid := os.fork()) == 0:
                for each in (asked.detach(), woken, wakes, files[2], *tells.values()):
                    os.close(each)
                _become(json.loads(what), *files[:2])
            os.write(files[2], b"%d\n" % pid)
            tells[pid] = files[2]
            for each in files[:2]:
                os.close(each)


def main() -> None:
    for each in _IMPORTED:
        importlib.import_module(each)
    assert threading.active_count() == 1, "a fork would lose a thread"
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
