"""What members take of their machine: memory, threads, file descriptors, looked at each second."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_EVERY_S = 1.0
#: A tenth, and what an allocator keeps for itself: a leak of an hour is more.
_GROWTH, _SLACK_KIB = 1.1, 8 * 1024
#: Threads and connections come and go with brokers.
_SLACK_COUNT = 6


class Vitals(NamedTuple):
    """Of a process at a time."""

    at_s: float
    rss_kib: int
    threads: int
    files: int


class Look(NamedTuple):
    """A member's, as medians: when it was a quarter through its life, and at its end."""

    member: str
    lived_s: float
    early: Vitals
    late: Vitals

    @property
    def text(self) -> str:
        """For people."""
        early, late = self.early, self.late
        return (
            f"{self.member} for {self.lived_s:.0f} s: {early.rss_kib // 1024} -> {late.rss_kib // 1024} MiB, "
            f"threads {early.threads} -> {late.threads}, files {early.files} -> {late.files}"
        )

    @property
    def grown(self) -> str:
        """What is not flat, in words; "" = all is."""
        found = []
        if self.late.rss_kib > self.early.rss_kib * _GROWTH + _SLACK_KIB:
            found.append(f"memory {self.early.rss_kib // 1024} -> {self.late.rss_kib // 1024} MiB")
        for what, early, late in (
            ("threads", self.early.threads, self.late.threads),
            ("files", self.early.files, self.late.files),
        ):
            if late > early + _SLACK_COUNT:
                found.append(f"{what} {early} -> {late}")
        return f"{self.member}: {', '.join(found)}" if found else ""


class Watcher:
    """A thread that looks at the processes that it is told of."""

    def __init__(self, processes: Callable[[], Mapping[int, str]]) -> None:
        """Args: processes: those that live, id -> name; asked by that thread."""
        self._processes = processes
        self._seen: dict[tuple[int, str], list[Vitals]] = defaultdict(list)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vitals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Look]:
        """Of those that lived for half the time at least."""
        self._stopping.set()
        self._thread.join()
        longest = max((each[-1].at_s - each[0].at_s for each in self._seen.values()), default=0.0)
        return [
            _look(name, seen) for (_, name), seen in self._seen.items() if seen[-1].at_s - seen[0].at_s >= longest / 2
        ]

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            for pid, name in self._processes().items():
                if (found := _vitals(pid)) is not None:
                    self._seen[pid, name].append(found)


def _look(name: str, seen: Sequence[Vitals]) -> Look:
    quarter = max(1, len(seen) // 4)
    return Look(
        name, seen[-1].at_s - seen[0].at_s, _median(seen[quarter : 2 * quarter] or seen), _median(seen[-quarter:])
    )


def _median(seen: Sequence[Vitals]) -> Vitals:
    return Vitals(
        seen[-1].at_s,
        int(median(each.rss_kib for each in seen)),
        int(median(each.threads for each in seen)),
        int(median(each.files for each in seen)),
    )


def _vitals(pid: int) -> Vitals | None:
    """proc(5). None = it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a count
        return Vitals(time.monotonic(), int(status["VmRSS"].split()[0]), int(status["Threads"]), files)
    except (OSError, KeyError):  # KeyError: a zombie has no memory
        return None
