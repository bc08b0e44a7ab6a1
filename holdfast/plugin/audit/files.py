"""FileEvents: events as lines of files. Whole lines are written; a reader ignores a line that a kill has cut."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.audit")

_TROUBLE_S = 60.0


@dataclass(frozen=True, slots=True)
class FileEvents:
    """A folder of files `<member>-<run>-<number>.jsonl`, one event a line. The folder is created if it is missing.

    Once the next file has begun, a file is never written again. No two processes write to one file. holdfast deletes
    none of them.

    Args:
        folder: the folder; all members of a group may use the same.
        rotate_bytes: the size in bytes at which the next file begins.
        rotate_s: the age in seconds at which the next file begins.

    Raises:
        SettingError: a value that cannot work.
    """

    folder: str | os.PathLike[str]
    rotate_bytes: int = 64 * 1024 * 1024
    rotate_s: float = 3_600.0

    def __post_init__(self) -> None:
        folder: object = self.folder
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise SettingError("folder", self.folder, "name the folder for the events")
        for name in ("rotate_bytes", "rotate_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise SettingError(name, value, "use a number above 0")

    def open(self, member: str, run: str) -> _Files:
        """Open the run's first file. Raises SettingError: the folder cannot be written to."""
        folder = Path(self.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return _Files(self, folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', member)[:100]}-{run}")
        except OSError as error:
            raise SettingError("folder", str(folder), f"must be a folder to write to ({error})") from error


class _Files:
    """The sink of one run: its files, one after the other. One thread."""

    #: Lines that cannot be written wait with the emitter; none is lost here.
    lost = 0

    def __init__(self, how: FileEvents, stem: Path) -> None:
        self._how, self._stem = how, stem
        self._number = 0
        self._file = self._next()
        self._trouble_at = -_TROUBLE_S

    def write(self, lines: Sequence[str], run: str) -> int:  # noqa: ARG002 - the protocol's signature
        """Write whole lines, in as few calls as possible. See `Sink.write`."""
        try:
            full = self._bytes >= self._how.rotate_bytes or SYSTEM_CLOCK.now() >= self._old_at
            if self._file < 0 or (full and self._bytes):
                self._shut()
                self._file = self._next()
            return self._append([f"{line}\n".encode() for line in lines])
        except OSError as error:
            if not self._is_empty():  # else each try on a full disk would leave one more empty file
                self._shut()  # the last line may be cut; the next file begins with a whole line
            now = SYSTEM_CLOCK.now()
            if now >= self._trouble_at + _TROUBLE_S:
                self._trouble_at = now
                _log.warning("audit: events cannot be written to %s-*.jsonl, and wait (%s)", self._stem, error)
            return 0

    def close(self, deadline: Deadline | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Close the file. No line is on its way."""
        self._shut()

    # ---- inside
    def _append(self, lines: Sequence[bytes]) -> int:
        whole = b"".join(lines)
        written = 0
        try:
            while written < len(whole):
                written += os.write(self._file, whole[written:])
        except OSError:
            taken = 0
            for line in lines:
                written -= len(line)
                if written < 0:
                    break
                taken += 1
            if not taken:
                raise
            self._shut()
            return taken
        self._bytes += len(whole)
        return len(lines)

    def _next(self) -> int:
        path = f"{self._stem}-{self._number:04d}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o640)
        self._number += 1
        self._bytes, self._old_at = 0, SYSTEM_CLOCK.now() + self._how.rotate_s
        return file

    def _is_empty(self) -> bool:
        """Whether the file is open and has no bytes."""
        if self._file < 0:
            return False
        try:
            return os.fstat(self._file).st_size == 0
        except OSError:
            return False

    def _shut(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            try:
                os.close(file)
            except OSError as error:
                _log.warning("audit: %s", error)
