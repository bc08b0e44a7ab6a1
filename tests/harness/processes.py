"""Starting servers that cannot outlive the test run, on ports that are free."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.harness.forks import Forked

#: Not the one that tests may seed: each of two runs beside each other would choose the same.
_ANY = random.SystemRandom()
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SETPRIV = shutil.which("setpriv")  # of util-linux
# Loaded here: between fork and exec nothing may be imported, another thread could hold the import lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class ServerFailed(Exception):
    """A server did not start or died. That fails the run: a skipped proof looks like a proof."""


def die_with_parent() -> None:
    """In a child before exec: be killed when the *thread* that started it ends, even if that was by kill -9.

    Not in a process that has gRPC's threads: Python runs in the child then, and has died there of a segmentation fault.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody has now. Another server may take one before it is used: try again then.

    Below the ports that connections take for their own ends: one of those might have it by the time at which a server
    has started, or is started again.
    """
    found: set[int] = set()
    while len(found) < count:
        port = _ANY.randrange(20_000, 32_000)
        if is_free(port):
            found.add(port)
    return list(found)


def is_free(port: int) -> bool:
    """Whether nobody has this loopback port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def spawn(
    command: Sequence[str],
    log: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process with its output appended to `log`, in a group of its own (Ctrl-C is for us to hand on).

    `user`: whom it runs as, where we are root. It is killed when the thread that starts it ends, as by
    `die_with_parent`; but by setpriv, where there is one: no Python runs in the child, whatever threads there are here.
    """
    if _SETPRIV is not None:
        command = [_SETPRIV, "--pdeathsig", "KILL", "--", *command]
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            user=user,
            extra_groups=None if user is None else [],
            start_new_session=True,
            preexec_fn=None if _SETPRIV is not None else die_with_parent,
        )


def started(
    given: int,
    start: Callable[[int], subprocess.Popen[bytes]],
    answers: Callable[[subprocess.Popen[bytes]], bool],
) -> subprocess.Popen[bytes] | None:
    """A server on the port that is given, or (0) on one that is free, another where somebody has taken it meanwhile.
    None = it does not answer."""
    for _ in range(1 if given else 5):
        process = start(given or free_ports(1)[0])
        if answers(process):
            return process
        end(process, patience_s=1.0)
    return None


def end(process: subprocess.Popen[bytes] | Forked, patience_s: float) -> None:
    """SIGTERM, and SIGKILL after `patience_s`; returns when the process is gone."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def members(session_id: int) -> list[int]:
    """All living processes of a session: some leave the group of who has started them."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        if int(fields[3]) == session_id and fields[0] != "Z":
            found.append(int(each.parent.name))
    return found


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all of the session that it leads, until nothing is left."""
    while found := members(leader.pid):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    leader.wait()


def ran_well(leader: subprocess.Popen[bytes], log: Path, within_s: float) -> None:
    """Returns when the leader of a session has ended with 0; nothing of it is left, whatever became of it. Raises
    AssertionError with the end of its log."""
    try:
        status = leader.wait(within_s)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        kill_session(leader)
    assert status == 0, f"{'did not end' if status is None else f'status {status}'}: {tail(log)}"


def tail(log: Path, lines: int = 40) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
