"""Rows in order, however many they are: what memory has no room for goes into a temporary file."""

from __future__ import annotations

import marshal
from heapq import merge
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING, Any

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = tuple[Any, ...]

#: The bytes of rows to hold in memory, about.
_ROOM = 64 << 20
_A_ROW = 300
#: Bytes of each sorted run that are read at once, about.
_BLOCK = 256 << 10


class Sorter:
    """Sorts rows that come in any order. They can be read more than once.

    Args:
        room: the bytes to hold in memory, about.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room, self._held = room, 0
        self._rows: list[Row] = []
        self._file: IO[bytes] | None = None
        #: The blocks of each sorted run that was written: (position in the file, length).
        self._runs: list[list[tuple[int, int]]] = []

    def add(self, row: Row, size: int = _A_ROW) -> None:
        """Add a row of numbers, text and None. The first columns in which two rows differ must be comparable.

        Raises:
            SettingError: no temporary file can be written.
        """
        self._rows.append(row)
        self._hold(size)

    def extend(self, rows: Sequence[Row]) -> None:
        """Add several rows of a common size."""
        self._rows += rows
        self._hold(len(rows) * _A_ROW)

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held >= self._room:
            try:
                self._write()
            except OSError as error:
                raise SettingError(
                    "TMPDIR", gettempdir(), f"no temporary file can be written there ({error})"
                ) from error

    def __iter__(self) -> Iterator[Row]:
        """All that were given."""
        self._rows.sort()
        return merge(self._rows, *map(self._read, self._runs)) if self._runs else iter(self._rows)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(prefix="holdfast-audit-")  # noqa: SIM115 - it lives as long as this
        self._rows.sort()
        end = self._file.seek(0, 2)
        blocks = []
        in_a_block = max(1, len(self._rows) * _BLOCK // self._held)
        for first in range(0, len(self._rows), in_a_block):
            block = marshal.dumps(self._rows[first : first + in_a_block])
            self._file.write(block)
            blocks.append((end, len(block)))
            end += len(block)
        self._runs.append(blocks)
        self._rows, self._held = [], 0

    def _read(self, blocks: list[tuple[int, int]]) -> Iterator[Row]:
        assert self._file is not None  # noqa: S101 - for mypy: there are blocks
        for at, length in blocks:
            self._file.seek(at)
            yield from marshal.loads(self._file.read(length))  # noqa: S302 - our own file, which has no name
