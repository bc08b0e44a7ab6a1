"""Replayed letters of a dead letter topic: kept in the store as positions, one a partition, like an app's own.

A letter is noted once the broker has acknowledged its copy. Letters that were filtered out stay open, so what is noted
is no prefix of the log: a watermark, and a bitmap above it. The position's owner is the replay that runs: a second one
waits, and whoever was frozen meanwhile cannot note anything any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.offset_set import OffsetSet
from holdfast.plugin.engine.partition.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.adapters.cli.holding import Holding
    from holdfast.records import Partition, Record
    from holdfast.timing import Deadline

#: Of the positions: forgotten, letters that still lie there would be sent again.
KEEP_S = 10 * 365 * 86_400.0


class Replayed:
    """Read along with the letters. One thread.

    Args:
        holding: of the topic's positions; closed by its owner.
        dry: look, and note nothing.
    """

    def __init__(self, holding: Holding, *, dry: bool) -> None:
        self._holding, self.dry = holding, dry
        self._ledgers: dict[Partition, Ledger] = {}

    def open(self, firsts: Mapping[Partition, int], deadline: Deadline) -> dict[Partition, int]:
        """Take the positions over; replies where to read from: `firsts`, or higher. Raises StoreError."""
        for partition, found in self._holding.take(deadline).items():
            start = max(firsts[partition], found.watermark)
            done = OffsetSet(found.done)
            done.remove_below(start)
            self._ledgers[partition] = Ledger(start, done)
        return {partition: ledger.next for partition, ledger in self._ledgers.items()}

    def is_open(self, letter: Record) -> bool:
        """Whether it was not replayed yet. Letters come in the order of their partition."""
        return self._ledgers[letter.partition].polled(letter.offset)

    def read_to(self, partition: Partition, end: int) -> None:
        """All letters below were looked at: what did not come is none."""
        self._ledgers[partition].reached(end)

    def check(self) -> None:
        """Before letters are sent. Raises StoreUnavailable: another replay may have taken over."""
        self._holding.check()

    def note(self, letters: Iterable[Record], deadline: Deadline) -> None:
        """Note letters that the broker has acknowledged. Raises StoreError: the next replay may send them again."""
        if self.dry:
            return
        offsets: dict[Partition, list[int]] = {partition: [] for partition in self._ledgers}
        for letter in letters:
            self._ledgers[letter.partition].settle(letter.offset)
            offsets[letter.partition].append(letter.offset)
        self._holding.mark(
            {each: (ledger.watermark, offsets[each]) for each, ledger in self._ledgers.items()}, deadline
        )
