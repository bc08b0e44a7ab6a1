"""Processor time of a Spark in this process: the JVM and its Python workers are its children."""

from __future__ import annotations

import os
from pathlib import Path


def used_s() -> float:
    """Of this process and all below it, so far."""
    return sum(_ticks(pid) for pid in _family(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += _family(int(child))
    return found


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended since; its parent has its time
    return sum(int(each) for each in fields[11:15])
