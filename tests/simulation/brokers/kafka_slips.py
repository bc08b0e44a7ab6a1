"""Slips: a client that goes past records, as if the log had none there, or stays where it is though it was sent
elsewhere. No record is left out twice by one client.

librdkafka 2.2.0 to 2.13.1 did ("end"): where it had told a partition's end its position was one too far, and it went on
from there when the group rebalanced, or when the partition was paused and resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_reader import Reader

#: After a rebalance, of any partition; where it has told the end, after a rebalance or a resume; while it reads on; and
#: as the first, with seeks that are without effect.
SlipKind = Literal["hand-over", "end", "now and then", "lost seek"]
SLIP_KINDS: tuple[SlipKind, ...] = get_args(SlipKind)
_ODDS = {"hand-over": 0.5, "end": 1.0, "now and then": 0.02, "lost seek": 0.5}
#: So many seeks in a row are without effect, of one client, at most.
LOST_SEEKS = 2


class SlipsByChance:
    """Of one client, all over its life."""

    def __init__(self, kind: SlipKind, chance: random.Random) -> None:
        self._kind, self._chance = kind, chance
        self._left_out: set[tuple[Partition, int, int]] = set()
        #: How many records were left out so far.
        self.count = 0
        self._lost = 0

    def rebalanced(self, readers: Iterable[Reader]) -> None:
        """The application was told of a rebalance, and these are read."""
        for reader in readers:
            if self._kind in ("hand-over", "lost seek"):
                reader.too_far = self._happens()
            else:
                self.resumed(reader)

    def resumed(self, reader: Reader) -> None:
        """A reader that was paused goes on."""
        reader.too_far = reader.too_far or (self._kind == "end" and reader.told_end >= 0)

    def leaves_out(self, partition: Partition, reader: Reader, log: int, offset: int) -> bool:
        """Whether that record is not given. `log`: a topic that is made again has others."""
        slips = reader.too_far or (self._kind == "now and then" and self._happens())
        reader.too_far = False
        if not slips or (partition, log, offset) in self._left_out:
            return False
        self._left_out.add((partition, log, offset))
        self.count += 1
        return True

    def loses_seek(self) -> bool:
        """Whether a seek is without effect: the client stays where it is."""
        loses = self._kind == "lost seek" and self._lost < LOST_SEEKS and self._happens()
        self._lost = self._lost + 1 if loses else 0
        return loses

    def _happens(self) -> bool:
        return self._chance.random() < _ODDS[self._kind]
