"""The print of a batch's keys: 64 bits by which a replay is recognised, also if some of its keys have expired in Redis.

A hash of each task's distinct keys, in order; the hashes of all tasks are combined. The print depends on the keys and
on the number of tasks, so `spark.sql.shuffle.partitions` must not change if it is below 8.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import np, pa, pc

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES = 8


class KeysPrint:
    """The print of one task's keys. About 30 ns a key."""

    def __init__(self) -> None:
        # A hash of the bytes and one of the lengths: the cut into Arrow's batches has no influence then, and "ab", "c"
        # differs from "a", "bc".
        self._bytes, self._lengths = hashlib.blake2b(digest_size=_BYTES), hashlib.blake2b(digest_size=_BYTES)
        self._any = False

    def add(self, names: pa.Array) -> None:
        """Add keys: texts or bytes, not null, distinct and sorted."""
        if not len(names):
            return
        self._any = True
        _, offsets, data = names.cast(pa.binary()).buffers()
        ends = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
        self._bytes.update(memoryview(data)[ends[0] : ends[-1]])
        self._lengths.update(pc.binary_length(names).to_numpy(zero_copy_only=False).astype("<i4").tobytes())

    @property
    def number(self) -> int:
        """The task's part of the print, as a bigint; 0: it has no keys."""
        both = hashlib.blake2b(self._bytes.digest() + self._lengths.digest(), digest_size=_BYTES).digest()
        return int.from_bytes(both, "big", signed=True) if self._any else 0


def print_of(parts: Iterable[int]) -> str:
    """The print, from all tasks' parts."""
    total = 0
    for each in parts:
        total ^= each
    return f"{total & (1 << 8 * _BYTES) - 1:016x}"
