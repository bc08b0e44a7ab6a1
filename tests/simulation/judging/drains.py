"""Drains: judges that partitions that stay do not wait for long while others are drained (P5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.records import Partition
    from tests.simulation.playing.stage import Actor, Stage

#: A partition that stays waits at most so long for a drain, besides one call of the store.
_UNREAD_S = 1.75


class Drains:
    """Looks at members, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: Member -> partition that ran dry during its drain -> (next offset to read, since when).
        self._since: dict[str, dict[Partition, tuple[int, float]]] = {}

    def look(self, member: Actor, engine: Engine | Driven, *, in_order: bool) -> None:
        """Judge that none of its partitions has waited for too long. A member that is not in order is not judged."""
        stage, now, before = self._stage, self._stage.now, self._since.get(member.name, {})
        judged = in_order and _drains(engine) and not engine.parts.sessions.storeless and _is_heard(engine)
        found = dry(engine) if judged else {}
        # Another next offset: records were read meanwhile, between two drains.
        since = self._since[member.name] = {
            partition: (following, was[1] if (was := before.get(partition)) and was[0] == following else now)
            for partition, following in found.items()
        }
        at_most_s = _UNREAD_S + stage.world.store_timeout_s
        for partition, (_, at) in since.items():
            if now - at > at_most_s:
                stage.judges.broken(
                    "UNREAD", f"{partition} stays at {member.name}, which reads nothing for {now - at:.2f} s: it drains"
                )


def dry(engine: Engine | Driven | None) -> Mapping[Partition, int]:
    """Partition -> next offset to read, of partitions that the engine may read, that have no record left to start, and
    whose logs have more records."""
    ends = _ends_of_empty(engine)
    return {each: following for each, (end, following) in ends.items() if end is not None and end > following}


def may_be_dry(engine: Engine | Driven | None) -> bool:
    """Whether there are dry partitions, or may have been: the log of a topic that was just deleted has no end."""
    return any(end is None or end > following for end, following in _ends_of_empty(engine).values())


def _ends_of_empty(engine: Engine | Driven | None) -> dict[Partition, tuple[int | None, int]]:
    """Partition without a record left to start -> (end of its log or None, next offset to read)."""
    if engine is None or not isinstance(engine.family, Partitioned):
        return {}
    owners = engine.family.owners
    empty = [
        owner.partition
        for owner in owners.values()
        if owner.open and engine.parts.intake.lets_in(owner.partition) and not _left(owner)
    ]
    ends = engine.family.source.end_offsets(empty)
    return {each: (ends.get(each), owners[each].next_offset) for each in empty}


def has_drained(engine: Engine | Driven | None) -> bool:
    """Whether the engine is to leave, and has waited for handlers as long as it may since it saw that. Inside a
    rebalance other handlers may have started meanwhile."""
    if engine is None or not isinstance(engine.family, Partitioned):
        return False
    leaving = engine.family.partitions.leaving
    return leaving is not None and leaving.passed


def _is_heard(engine: Engine | Driven) -> bool:
    """Whether the engine can learn where logs end: the broker answers at once."""
    family: Any = engine.family
    source = family.source
    return bool(source.line.hears and source.line.speaks and not source.line.delay_s)


def _left(owner: Ownership) -> bool:
    started: int = sum(len(entry.unacked) for entry in owner.entries.values())
    records: int = sum(entry.count for entry in owner.entries.values())
    return started < records


def _drains(engine: Engine | Driven) -> bool:
    return isinstance(engine.family, Partitioned) and any(
        entry.state is EntryState.TAKEN and entry.started
        for owner in engine.family.owners.values()
        if owner.phase is Phase.FENCED
        for entry in owner.entries.values()
    )
