"""Slips: a client that skips records, as if the log had none there, or ignores a seek. One client skips a record once.

librdkafka 2.2.0 to 2.13.1 did so ("end"): after it had reported a partition's end its position was one too far, and it
went on from there after a rebalance, or after a pause and a resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_reader import Reader

#: "hand-over": after a rebalance, in any partition. "end": after a rebalance or a resume, in partitions whose end was
#: reported. "now and then": while it reads. "lost seek": as "hand-over", and seeks are ignored.
SlipKind = Literal["hand-over", "end", "now and then", "lost seek"]
SLIP_KINDS: tuple[SlipKind, ...] = get_args(SlipKind)
_ODDS = {"hand-over": 0.5, "end": 1.0, "now and then": 0.02, "lost seek": 0.5}
#: One client ignores at most so many seeks in a row.
LOST_SEEKS = 2
#: If a seek had no effect and nothing comes, the engine seeks again after so long: to a partition's begin, and to a
#: hole.
SENT_AGAIN_S = 2 * 35.0


class SlipsByChance:
    """The slips of one client over its life, by chance."""

    def __init__(self, kind: SlipKind, chance: random.Random) -> None:
        self._kind, self._chance = kind, chance
        self._left_out: set[tuple[Partition, int, int]] = set()
        #: How many records were skipped so far.
        self.count = 0
        self._lost = 0

    def rebalanced(self, readers: Iterable[Reader]) -> None:
        """The application was told of a rebalance; these partitions are read now."""
        for reader in readers:
            if self._kind in ("hand-over", "lost seek"):
                reader.too_far = self._happens()
            else:
                self.resumed(reader)

    def resumed(self, reader: Reader) -> None:
        """A paused partition is read again."""
        reader.too_far = reader.too_far or (self._kind == "end" and reader.told_end >= 0)

    def leaves_out(self, partition: Partition, reader: Reader, log: int, offset: int) -> bool:
        """Whether the client skips that record. `log` counts the logs of a topic that is deleted and made again."""
        slips = reader.too_far or (self._kind == "now and then" and self._happens())
        reader.too_far = False
        if not slips or (partition, log, offset) in self._left_out:
            return False
        self._left_out.add((partition, log, offset))
        self.count += 1
        return True

    def loses_seek(self) -> bool:
        """Whether the client ignores this seek."""
        loses = self._kind == "lost seek" and self._lost < LOST_SEEKS and self._happens()
        self._lost = self._lost + 1 if loses else 0
        return loses

    def _happens(self) -> bool:
        return self._chance.random() < _ODDS[self._kind]
