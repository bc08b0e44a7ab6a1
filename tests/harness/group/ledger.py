"""The ledger: what every handler of every member did, in one file that survives any of their deaths."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

What = Literal["start", "end", "fail"]
_WHATS: dict[str, What] = {"start": "start", "end": "end", "fail": "fail"}


class Where(NamedTuple):
    """A record's place."""

    topic: str
    partition: int
    offset: int


class Entry(NamedTuple):
    """One line. `lane` is the record's Kafka key, within which order is kept; `key` is its business key."""

    at_ns: int  #: time.monotonic_ns(): on Linux the same clock for all processes
    member: str
    pid: int
    where: Where
    lane: str
    key: str
    what: What
    epoch: int


class Ledger:
    """The writing end. O_APPEND and one write a line: lines of several processes never mix, and are there or not."""

    def __init__(self, path: Path, member: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._path = path
        self._member = member
        self._pid = os.getpid()

    def note(self, what: What, where: Where, lane: str, key: str, epoch: int) -> None:
        """Append a line. Any thread."""
        fields = (time.monotonic_ns(), self._member, self._pid, *where, lane, key, what, epoch)
        os.write(self._file, ("\t".join(map(str, fields)) + "\n").encode())

    def first(self, key: str) -> bool:
        """Whether nobody has asked for that key before, in any process."""
        try:
            os.close(os.open(self._path.with_name(f"first-{key}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class Reader:
    """The reading end; reads only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """All entries so far, in the order of the file."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._at += len(whole)
            self.entries.extend(_parse(line) for line in whole.decode().splitlines())
        return self.entries


def _parse(line: str) -> Entry:
    at_ns, member, pid, topic, partition, offset, lane, key, what, epoch = line.split("\t")
    where = Where(topic, int(partition), int(offset))
    return Entry(int(at_ns), member, int(pid), where, lane, key, _WHATS[what], int(epoch))
