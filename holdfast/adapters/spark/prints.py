"""A print of a batch's keys: 64 bits by which one that comes again is known, whatever of its keys has run out since.

Of each task's keys, distinct and in order, a hash; of all tasks these together. So it is the same where the keys are,
and where Spark shuffles them into as many tasks: `spark.sql.shuffle.partitions` below 8 is a part of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import np, pa, pc

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES = 8


class KeysPrint:
    """One task's keys, as they come. About 30 ns a key."""

    def __init__(self) -> None:
        # Two of them: how Arrow cuts the keys into batches makes no difference then, and "ab", "c" is not "a", "bc".
        self._bytes, self._lengths = hashlib.blake2b(digest_size=_BYTES), hashlib.blake2b(digest_size=_BYTES)
        self._any = False

    def add(self, names: pa.Array) -> None:
        """Texts or bytes, none of them null, each once and in order."""
        if not len(names):
            return
        self._any = True
        _, offsets, data = names.cast(pa.binary()).buffers()
        ends = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
        self._bytes.update(memoryview(data)[ends[0] : ends[-1]])
        self._lengths.update(pc.binary_length(names).to_numpy(zero_copy_only=False).astype("<i4").tobytes())

    @property
    def number(self) -> int:
        """The task's part, as a bigint; 0: it has no keys."""
        both = hashlib.blake2b(self._bytes.digest() + self._lengths.digest(), digest_size=_BYTES).digest()
        return int.from_bytes(both, "big", signed=True) if self._any else 0


def print_of(parts: Iterable[int]) -> str:
    """All tasks' parts together."""
    total = 0
    for each in parts:
        total ^= each
    return f"{total & (1 << 8 * _BYTES) - 1:016x}"
