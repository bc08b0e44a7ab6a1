"""Reader: a member's position in one partition. Slips: the port of clients that skip records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.records import Partition


class Reader:
    """A member's position in a partition."""

    __slots__ = ("paused", "position", "told_end", "too_far")

    def __init__(self, position: int, *, paused: bool) -> None:
        self.position = position
        self.paused = paused
        self.told_end = -1
        #: Whether the client takes the next record for one that it has delivered already, and skips it.
        self.too_far = False


class Slips(Protocol):
    """The records that one client skips over its life, as if the log had none there."""

    def rebalanced(self, readers: Iterable[Reader]) -> None:
        """The application was told of a rebalance; these partitions are read now."""

    def resumed(self, reader: Reader) -> None:
        """A paused partition is read again."""

    def leaves_out(self, partition: Partition, reader: Reader, log: int, offset: int) -> bool:
        """Whether the client skips that record. `log` counts the logs of a topic that is deleted and made again."""
