"""Replayed letters of a dead letter topic: kept in the store as positions, one a partition and
target, like an app's own.

What was sent to one topic was not sent to another: a try elsewhere takes no letter away. The notes are in a namespace
of their own, so that all who share the topic know of each other's, whatever their app's is.

A letter is noted once the broker has acknowledged its copy. Letters that were filtered out stay open, so what is noted
is no prefix of the log: a watermark, and a bitmap above it. The position's owner is the replay that runs: a second one
waits, and whoever was frozen meanwhile cannot note anything any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.offset_set import OffsetSet
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.records import Partition  # noqa: TC001 - a field's type, which NamedTuple keeps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.adapters.cli.holding import Holder
    from holdfast.records import Record
    from holdfast.timing import Deadline

#: Of the positions: forgotten, letters that still lie there would be sent again.
KEEP_S = 10 * 365 * 86_400.0


#: Where they are kept.
NAMESPACE = "holdfast-replays"
_TO = ">"  # in no topic's name


class Target(NamedTuple):
    """A partition of letters, on the way to a topic."""

    partition: Partition
    topic: str

    def __str__(self) -> str:
        return f"{self.partition} (on the way to {self.topic})"


def names_of(partitions: Mapping[Partition, str], topics: Iterable[str]) -> dict[Target, str]:
    """Names of what is kept, of the names of the partitions. In one order, so that two replays wait for each other."""
    return {
        Target(partition, topic): f"{name}{_TO}{topic}"
        for topic in sorted(topics)
        for partition, name in sorted(partitions.items())
    }


def topics_in(names: Iterable[str]) -> set[str]:
    """The targets that names of `names_of` are about."""
    return {name.rpartition(_TO)[2] for name in names if _TO in name}


class Replayed:
    """Read along with the letters. One thread.

    Args:
        holding: of the positions; closed by its owner.
        dry: look, and note nothing.
    """

    def __init__(self, holding: Holder[Target], *, dry: bool) -> None:
        self._holding, self.dry = holding, dry
        self._ledgers: dict[Target, Ledger] = {}
        #: The same by partition, as letters come.
        self._of: dict[Partition, list[tuple[str, Ledger]]] = {}

    def open(self, firsts: Mapping[Partition, int], deadline: Deadline) -> dict[Partition, int]:
        """Take the positions over; replies where to read from: `firsts`, or higher. Raises StoreError."""
        starts: dict[Partition, int] = {}
        for target, found in self._holding.take(deadline).items():
            start = max(firsts[target.partition], found.watermark)
            done = OffsetSet(found.done)
            done.remove_below(start)
            ledger = self._ledgers[target] = Ledger(start, done)
            self._of.setdefault(target.partition, []).append((target.topic, ledger))
            starts[target.partition] = min(ledger.next, starts.get(target.partition, ledger.next))
        return {partition: starts.get(partition, first) for partition, first in firsts.items()}

    def came(self, letter: Record) -> frozenset[str]:
        """Note a letter that was read, in the order of its partition. Replies to which topics it was sent."""
        at = letter.offset
        return frozenset(
            topic for topic, ledger in self._of.get(letter.partition, ()) if at < ledger.next or not ledger.polled(at)
        )

    def read_to(self, partition: Partition, end: int) -> None:
        """All letters below were looked at: what did not come is none."""
        for _, ledger in self._of.get(partition, ()):
            ledger.reached(end)

    def check(self) -> None:
        """Before letters are sent. Raises StoreUnavailable: another replay may have taken over."""
        self._holding.check()

    def note(self, letters: Iterable[tuple[Record, str]], deadline: Deadline) -> None:
        """Note letters that the broker has acknowledged, with their topics. Raises StoreError: the next replay may send
        them again."""
        if self.dry:
            return
        offsets: dict[Target, list[int]] = {target: [] for target in self._ledgers}
        for letter, topic in letters:
            target = Target(letter.partition, topic)
            self._ledgers[target].settle(letter.offset)
            offsets[target].append(letter.offset)
        self._holding.mark(
            {each: (ledger.watermark, offsets[each]) for each, ledger in self._ledgers.items()}, deadline
        )
