"""The moves of a reset, partition by partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from holdfast.adapters.cli.arguments import Target
    from holdfast.records import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The store's position in a partition."""

    #: Every offset below is done.
    watermark: int
    #: Offsets from the watermark on that are done.
    done: AbstractSet[int]

    @property
    def known(self) -> bool:
        """Whether anything was ever done there."""
        return bool(self.watermark or self.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition of a group, now and after a reset. Offsets are the next to read."""

    partition: Partition
    #: The group's offset at the broker; None = none.
    committed: int | None
    position: Position
    #: The log's first offset, and the one that its next record gets.
    first: int
    last: int
    new: int
    #: Not what was asked, since the log has no such offset.
    moved_into_log: bool

    @property
    def at(self) -> int | None:
        """Where the group would go on without a reset; None = where its auto.offset.reset says."""
        return _at(self.committed, self.position)

    @property
    def again(self) -> int | None:
        """Offsets that are done and would be read again, at most: logs may have gaps."""
        if self.at is None:
            return None
        at = self.at
        return max(at - self.new, 0) + sum(offset >= max(at, self.new) for offset in self.position.done)

    @property
    def skipped(self) -> int | None:
        """Offsets that are not done and would not be read any more, at most."""
        if self.at is None:
            return None
        at = max(self.at, self.first)
        return max(self.new - at, 0) - sum(at <= offset < self.new for offset in self.position.done)

    def row(self) -> list[object]:
        """The move's line in a table; see COLUMNS."""
        return [
            str(self.partition),
            self.committed,
            self.position.watermark if self.position.known else None,
            self.new,
            self.again,
            self.skipped,
            "no such offset: the nearest is taken" if self.moved_into_log else "",
        ]

    def as_json(self) -> dict[str, object]:
        """The move for programs."""
        return {
            "type": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "committed": self.committed,
            "position": self.position.watermark if self.position.known else None,
            "first": self.first,
            "last": self.last,
            "new": self.new,
            "again_at_most": self.again,
            "skipped_at_most": self.skipped,
        }


COLUMNS = ("PARTITION", "COMMITTED", "POSITION", "NEW", "RUN AGAIN", "SKIPPED", "")


def plan(
    target: Target,
    *,
    committed: Mapping[Partition, int | None],
    positions: Mapping[Partition, Position],
    firsts: Mapping[Partition, int],
    lasts: Mapping[Partition, int],
    at_time: Mapping[Partition, int],
) -> list[Move]:
    """The moves, in the partitions' order. `at_time`: the answer for a time, where the target is one.

    Raises SettingError: a number of records ahead or back, and a partition of which nobody knows where it is.
    """
    moves = []
    for partition in sorted(committed):
        first, last = firsts[partition], lasts[partition]
        if target.kind == "earliest":
            wanted = first
        elif target.kind == "latest":
            wanted = last
        elif target.kind == "offset":
            wanted = target.value
        elif target.kind == "time":
            wanted = at_time[partition]
        else:
            at = _at(committed[partition], positions[partition])
            if at is None:
                raise SettingError(
                    "--to", f"{target.value:+d}", f"the group has no offset in {partition} to count from: name another"
                )
            wanted = at + target.value
        new = min(max(wanted, first), last)
        moves.append(
            Move(
                partition=partition,
                committed=committed[partition],
                position=positions[partition],
                first=first,
                last=last,
                new=new,
                moved_into_log=new != wanted,
            )
        )
    return moves


def _at(committed: int | None, position: Position) -> int | None:
    """Where the group goes on, as `Takeover` decides for an offset of the group's own: the higher of the two, behind
    what is done from there."""
    if committed is None and not position.known:
        return None
    at = max(committed or 0, position.watermark)
    while at in position.done:
        at += 1
    return at
