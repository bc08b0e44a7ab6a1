"""The moves of a reset, partition by partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.errors import SettingError
from holdfast.plugin.engine.partition.group_position import group_position, reads_from

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from holdfast.adapters.cli.arguments import Target
    from holdfast.dedup.claims import Acquired
    from holdfast.plugin.ports import Committed
    from holdfast.records import Partition

_NOTHING: frozenset[int] = frozenset()
_SET_BY_OTHERS = (
    "the offset was set by another tool: the group continues there, and what is known from there on is dropped"
)
_REWOUND = "the broker's offset is below what is done: a reset by another tool is honoured, a late commit is not"
_NONE_SINCE = "no record since then: the end is taken"
_NOT_IN_LOG = "offset {} is not in the log, which has {} to {}: without a reset the group begins at its first record"
_NEAREST = "no such offset any more: the first is taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition of a group, now and after a reset. Offsets are the next to read."""

    partition: Partition
    #: The group's offset at the broker; None = none.
    committed: Committed | None
    #: The store's position; of a group without a store None.
    known: Acquired | None
    #: Where the group would go on without a reset; None = where its auto.offset.reset says.
    at: int | None
    #: The log's first offset, and the one that its next record gets.
    first: int
    last: int
    new: int
    #: What is not as asked, or not as it looks.
    remarks: tuple[str, ...] = ()

    @property
    def done(self) -> AbstractSet[int]:
        """Offsets from `at` on that are done, and would not be read again."""
        if self.known is None or (self.committed is not None and not self.committed.ours):
            return _NOTHING
        return self.known.done

    @property
    def again(self) -> int | None:
        """Offsets that are done and would be read again, at most: logs may have gaps."""
        if self.at is None:
            return None
        at = self.at
        return max(at - self.new, 0) + sum(max(at, self.new) <= offset < self.last for offset in self.done)

    @property
    def skipped(self) -> int | None:
        """Offsets that are not done and would not be read any more, at most."""
        if self.at is None:
            return None
        at = self.at
        if _is_rewound(self.committed, self.known) and self.committed is not None:
            at = min(at, max(self.committed.offset, self.first))  # it may be that the group goes on there
        return max(self.new - at, 0) - sum(at <= offset < self.new for offset in self.done)

    @property
    def remark(self) -> str:
        """All of them, for people."""
        return "; ".join(self.remarks)

    def row(self) -> list[object]:
        """The move's line in a table; see COLUMNS."""
        return [str(self.partition), self._committed, self._position, self.new, self.again, self.skipped, self.remark]

    def as_json(self) -> dict[str, object]:
        """The move for programs."""
        return {
            "type": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "broker": self.partition.broker,
            "committed": self._committed,
            "position": self._position,
            "at": self.at,
            "first": self.first,
            "last": self.last,
            "new": self.new,
            "again_at_most": self.again,
            "skipped_at_most": self.skipped,
            "remark": self.remark,
        }

    @property
    def _committed(self) -> int | None:
        return None if self.committed is None else self.committed.offset

    @property
    def _position(self) -> int | None:
        known = self.known
        return known.watermark if known is not None and (known.watermark or known.done) else None


COLUMNS = ("PARTITION", "COMMITTED", "POSITION", "NEW", "RUN AGAIN", "SKIPPED", "")


def plan(
    target: Target,
    *,
    committed: Mapping[Partition, Committed | None],
    known: Mapping[Partition, Acquired],
    firsts: Mapping[Partition, int],
    lasts: Mapping[Partition, int],
    at_time: Mapping[Partition, int],
    now_ms: int,
) -> list[Move]:
    """The moves, in the partitions' order.

    Args:
        target: where it is to go on.
        committed: the group's offsets at the broker.
        known: to the store; empty: the group has none.
        firsts: the logs' first offsets.
        lasts: those that their next records get.
        at_time: the answer for a time, where the target is one: the log's end where there is no record since.
        now_ms: since 1970; what is later is in the future.

    Raises:
        SettingError: what is asked lies beyond the log, so that all would be skipped; or it counts from where the group
            is in a partition, and nobody knows that.
    """
    if target.kind == "time":
        _refuse_end(target.value, at_time, lasts, now_ms)
    moves = []
    for partition in sorted(committed):
        at = stands = _at(committed[partition], known.get(partition))
        if stands is not None:
            at = reads_from(stands, firsts[partition], lasts[partition])
        move = Move(
            partition=partition,
            committed=committed[partition],
            known=known.get(partition),
            at=at,
            first=firsts[partition],
            last=lasts[partition],
            new=0,
            remarks=() if at == stands else (_NOT_IN_LOG.format(stands, firsts[partition], lasts[partition]),),
        )
        moves.append(_moved(move, target, at_time.get(partition)))
    return moves


def _moved(move: Move, target: Target, at_time: int | None) -> Move:
    """A move to where the target says."""
    remarks = list(move.remarks)
    if move.committed is not None and not move.committed.ours and move.known is not None and move.known.watermark:
        remarks.append(_SET_BY_OTHERS)
    if _is_rewound(move.committed, move.known):
        remarks.append(_REWOUND)
    wanted = {"earliest": move.first, "latest": move.last, "offset": target.value}.get(target.kind)
    if target.kind == "time" and at_time is not None:
        wanted = at_time
        if at_time >= move.last > move.first:
            remarks.append(_NONE_SINCE)
    elif wanted is None:
        wanted = _counted(move, target.value)
    if wanted > move.last and target.kind != "latest":
        raise SettingError(
            "--to",
            f"{target.value:+d}" if target.kind == "shift" else target.value,
            f"offset {wanted} is beyond the log of {move.partition}, which ends at {move.last}: all that was not "
            "handled would be skipped. If you mean that, say latest; a time is written as 2026-11-20T10:00:00Z",
        )
    if wanted < move.first:
        remarks.append(_NEAREST)
    return Move(
        partition=move.partition,
        committed=move.committed,
        known=move.known,
        at=move.at,
        first=move.first,
        last=move.last,
        new=max(wanted, move.first),
        remarks=tuple(remarks),
    )


def _counted(move: Move, shift: int) -> int:
    """Count from where the group goes on; where offsets have no mark (RocketMQ), from the higher of the two: others may
    have moved it on. Raises SettingError: nobody knows from where."""
    if move.at is None:
        raise SettingError(
            "--to", f"{shift:+d}", f"the group has no offset in {move.partition} to count from: name another"
        )
    if shift and _is_rewound(move.committed, move.known) and move.committed is not None:
        raise SettingError(
            "--to",
            f"{shift:+d}",
            f"in {move.partition} the broker has {move.committed.offset} for the group, and {move.at} is done: it is "
            "unclear from which of the two to count; name an offset or a time",
        )
    at = move.at
    if move.committed is not None and not move.committed.marked:
        at = max(at, reads_from(move.committed.offset, move.first, move.last))
    return at + shift


def _refuse_end(when_ms: int, at_time: Mapping[Partition, int], lasts: Mapping[Partition, int], now_ms: int) -> None:
    """Raises SettingError: there is no record since then in any log, and there are records."""
    said = datetime.fromtimestamp(when_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    why = None
    if when_ms > now_ms:
        why = "that is in the future"
    elif any(lasts.values()) and all(at_time[each] >= lasts[each] for each in at_time):
        why = "no record is of that time, or of a later one"
    if why is not None:
        raise SettingError(
            "--to", said, f"{why}: all that was not handled would be skipped. If you mean that, say latest"
        )


def _at(committed: Committed | None, known: Acquired | None) -> int | None:
    """Where the group goes on, as the app would find it."""
    if known is None:  # it has no store
        return None if committed is None else committed.offset
    return group_position(committed, known).offset


def _is_rewound(committed: Committed | None, known: Acquired | None) -> bool:
    """Whether the broker has a lower offset than what is done, of which nobody knows who has set it."""
    return known is not None and committed is not None and not committed.marked and committed.offset < known.watermark
