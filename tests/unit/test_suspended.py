"""The clock that judges leases counts the time in which the machine was suspended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The kernel's own way to say "this machine was suspended for so long" to one process (time_namespaces(7)).
SUSPENDED_S = 100_000
PROGRAM = """
import time
from holdfast.timing import SYSTEM_CLOCK
print(round(SYSTEM_CLOCK.now() - time.monotonic()))
"""


def unshare() -> list[str]:
    """What starts a program as on such a machine; the test is not for one whose kernel or container forbids that."""
    command = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--time", "--fork"]
    command += ["--boottime", str(SUSPENDED_S)]
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        pytest.skip("no time namespaces here")
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine forbids time namespaces")
    return command


def test_it_goes_on_while_the_machine_is_suspended() -> None:
    def apart(*prefix: str) -> int:
        ran = subprocess.run([*prefix, sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, check=True)
        return int(ran.stdout)

    command = unshare()
    assert abs(apart(*command) - apart() - SUSPENDED_S) <= 1
