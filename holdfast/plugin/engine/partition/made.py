"""Made: the outputs of one ownership's records, from the end of their handlers until a transaction has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.handling.outputs import Output
    from holdfast.runtime import Lock


class _Call(NamedTuple):
    """The outputs of one call of a handler, which had the records from its first on."""

    outputs: Sequence[Output]
    #: The offset behind its last record: all of a batch is committed together.
    until: int
    size: int


class Made:
    """Outputs by the offset of the record of which they were made; of a batch, its first. Workers put; the thread that
    runs the app takes. Its lock is innermost: nothing is called under it.

    It dies with its ownership: what a handler makes after its partition has gone is nobody's.
    """

    __slots__ = ("_batches", "_calls", "_lock", "_settled", "bytes")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._calls: dict[int, _Call] = {}
        #: Whether some of them are of several records.
        self._batches = False
        #: Records that have failed for good: their letter is what was made of them, whatever their handler makes yet
        #: that was given up.
        self._settled: set[int] = set()
        #: About what all of them take in memory.
        self.bytes = 0

    def put(self, offsets: Sequence[int], outputs: Sequence[Output]) -> None:
        """Keep what a call has made of these records, ascending, in place of what one before has. Any thread."""
        if not outputs and self._calls.keys().isdisjoint(offsets):
            return
        with self._lock:
            if not self._settled or self._settled.isdisjoint(offsets):
                self._put(offsets, outputs)

    def put_letter(self, offset: int, letter: Output) -> None:
        """Keep that alone of a record that has failed for good. Any thread."""
        with self._lock:
            self._settled.add(offset)
            self._put([offset], [letter])

    def up_to(self, watermark: int) -> int:
        """How far may be committed where all below the watermark is done: not into a batch."""
        if self._batches:
            with self._lock:
                for first in sorted(self._calls, reverse=True):
                    if first < watermark < self._calls[first].until:
                        watermark = first
        return watermark

    def below(self, offset: int) -> list[Output]:
        """List the outputs of all records below, in the order of their records."""
        with self._lock:
            return [output for first in sorted(self._calls) if first < offset for output in self._calls[first].outputs]

    def forget(self, offset: int) -> None:
        """Forget those of records below: they are committed."""
        with self._lock:
            for first in [first for first in self._calls if first < offset]:
                self.bytes -= self._calls.pop(first).size
            self._settled = {each for each in self._settled if each >= offset}

    def _put(self, offsets: Sequence[int], outputs: Sequence[Output]) -> None:
        for offset in offsets:
            if (before := self._calls.pop(offset, None)) is not None:
                self.bytes -= before.size
        if outputs:
            call = _Call(outputs, offsets[-1] + 1, sum(each.size_bytes for each in outputs))
            self._batches = self._batches or len(offsets) > 1
            self._calls[offsets[0]] = call
            self.bytes += call.size
