"""Digests put into order in a task, in memory of a size of its own: what is more than that waits on the disk, as where
Spark sorts. Spark itself takes five times as long.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

from holdfast.adapters.spark._pyspark import np, pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Digests that a task has in memory, 16 bytes each; those that are put into order twice as much for a moment.
AT_ONCE = 1_000_000
#: Of those in order, so many are looked at together.
_TOGETHER = 100_000
_BYTES = 16


def in_order(rows: Iterable[pa.RecordBatch], at_once: int = AT_ONCE) -> Iterator[pa.Array]:
    """Digests in order, those that are null behind them.

    Args:
        rows: of one column.
        at_once: so many are in memory. What is more comes in runs: each is put into order, written to a file, and all
            of them are read side by side.

    Raises:
        OSError: the disk is full.
    """
    found, nulls = bytearray(), 0
    with ExitStack() as stack:
        runs: _Runs | None = None
        for batch in rows:
            names = batch.column(0)
            nulls += names.null_count
            found += joined(names.drop_null())
            if len(found) >= at_once * _BYTES:
                runs = runs or _Runs(stack.enter_context(_file()))
                runs.add(_sorted(found))
                found = bytearray()
        if runs is None:
            parts: Iterable[np.ndarray] = (_sorted(found),)
        else:
            runs.add(_sorted(found))
            del found
            parts = runs.merged(at_once)
        for digests in parts:
            for first in range(0, len(digests), _TOGETHER):
                some = digests[first : first + _TOGETHER]
                yield pa.Array.from_buffers(pa.binary(_BYTES), len(some), [None, pa.py_buffer(some)]).cast(pa.binary())
    for first in range(0, nulls, _TOGETHER):
        yield pa.nulls(min(_TOGETHER, nulls - first), pa.binary())


def _file() -> IO[bytes]:
    """Beside what Spark spills; without a name, so it goes with the process, however that ends."""
    return tempfile.TemporaryFile(dir=os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None)


class _Runs:
    """Digests in order, one run behind the other in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lengths: list[int] = []

    def add(self, digests: np.ndarray) -> None:
        self._file.write(digests.data)
        self._lengths.append(len(digests))

    def merged(self, at_once: int) -> Iterator[np.ndarray]:
        """All of them in order. At least one run's piece is used up each time: a key that stands there a million times
        is no exception."""
        size = max(1, at_once // len(self._lengths))
        ends = np.cumsum(self._lengths)
        at = [int(end) - length for end, length in zip(ends, self._lengths, strict=True)]
        pieces = [np.empty(0, "S16") for _ in self._lengths]
        while True:
            for n, end in enumerate(ends):
                if not len(pieces[n]) and at[n] < end:
                    pieces[n] = self._read(at[n], min(size, int(end) - at[n]))
                    at[n] += len(pieces[n])
            # What is above the lowest of their last ones may have others before it in what was not read yet.
            lasts = [piece[-1] for n, piece in enumerate(pieces) if len(piece) and at[n] < ends[n]]
            upto = [len(piece) if not lasts else int(np.searchsorted(piece, min(lasts), "right")) for piece in pieces]
            some = np.concatenate([piece[:each] for piece, each in zip(pieces, upto, strict=True)])
            pieces = [piece[each:] for piece, each in zip(pieces, upto, strict=True)]
            some.sort(kind="stable")  # which takes what is in order already as it is
            if not len(some):
                return
            yield some

    def _read(self, first: int, count: int) -> np.ndarray:
        self._file.seek(first * _BYTES)
        return np.frombuffer(self._file.read(count * _BYTES), "S16")


def joined(digests: pa.Array) -> bytes:
    """One after the other."""
    kept = digests.cast(pa.binary(_BYTES))
    data = kept.buffers()[1]
    return b"" if data is None else bytes(data[_BYTES * kept.offset : _BYTES * (kept.offset + len(kept))])


def _sorted(found: bytearray) -> np.ndarray:
    digests = np.frombuffer(found, "S16")  # compared as 16 bytes, zeros at their end too: nothing makes texts of them
    digests.sort()
    return digests
