"""The witness: a file to which every handler writes when it starts and when it ends an order.

It belongs to none of the consumers. Each line is one write() on a descriptor opened with O_APPEND, which the kernel
puts at the end of the file as a whole, whoever else writes at that moment; what was written stays when the process is
killed right after. Times are of the machine's monotonic clock, which all processes share.

    start 1234.567890 C 4711 3 1042 order-77
    end   1234.571002 C 4711 3 1042 order-77
          seconds     | pid  | offset
                      member partition
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    starts: bool
    at: float
    member: str
    pid: int
    partition: int
    offset: int
    key: str


class LedgerWriter:
    """The handler's side. One for each member process; any of its threads may write."""

    def __init__(self, path: Path, member: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._who = f"{member} {os.getpid()}"

    def start(self, partition: int, offset: int, key: str) -> None:
        """A handler begins with this order."""
        self._write("start", partition, offset, key)

    def end(self, partition: int, offset: int, key: str) -> None:
        """The handler has done its work; what the consumer makes of that is its own business."""
        self._write("end", partition, offset, key)

    def _write(self, what: str, partition: int, offset: int, key: str) -> None:
        line = f"{what} {time.monotonic():.6f} {self._who} {partition} {offset} {key}\n"
        os.write(self._descriptor, line.encode())


class LedgerReader:
    """The judge's side: reads on from where it stopped."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._descriptor = os.open(path, os.O_RDONLY)
        self._rest = b""

    def read(self) -> list[Entry]:
        """All lines that are new since the last call."""
        parts = [self._rest]
        while chunk := os.read(self._descriptor, 1 << 20):
            parts.append(chunk)
        *lines, self._rest = b"".join(parts).split(b"\n")
        return [_parse(line.decode()) for line in lines]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _parse(line: str) -> Entry:
    what, at, member, pid, partition, offset, key = line.split(" ", 6)
    return Entry(
        starts=what == "start",
        at=float(at),
        member=member,
        pid=int(pid),
        partition=int(partition),
        offset=int(offset),
        key=key,
    )
