"""Figures: how a partition stands, and why its lowest open record is not done, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.observe.snapshot import OpenRecord, PartitionFigures

if TYPE_CHECKING:
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Partition
    from holdfast.timing import Clock

#: The words for states in which no handler of this process is concerned.
_WAITS = {
    EntryState.CLAIM: "the store's answer for its key",
    EntryState.BUSY: "its key, which another member has claimed",
    EntryState.BEHIND_BUSY_KEY: "a record before it, which waits for a key",
    EntryState.WITH_FORMER_OWNER: "a former owner, which may still work on it",
    EntryState.READY: "a worker",
    EntryState.ENDED: "the store's acknowledgement",
}
#: The entry waits for another member, or for a record of this one that has the same key.
_OTHERS = frozenset({EntryState.BUSY, EntryState.WITH_FORMER_OWNER})
#: The entry has not started, and waits for a worker.
_QUEUED = frozenset({EntryState.READY, EntryState.TAKEN})


def figures_of(
    partition: Partition,
    owner: Ownership | None,
    *,
    log_end: int | None,
    next_retry_ms: int | None,
    lowest: OpenRecord | None,
    waiting_for_turn: int,
    paused: str | None,
) -> PartitionFigures:
    """Return how an assigned partition stands."""
    if owner is None or not owner.owned:
        phase = "assigned" if owner is None else owner.phase.name.lower() if owner.name else "unnamed"
        return PartitionFigures(partition=partition, phase=phase, log_end=log_end)
    return PartitionFigures(
        partition=partition,
        phase=owner.phase.name.lower(),
        watermark=owner.ledger.watermark,
        next=owner.ledger.next,
        committed=owner.committed,
        log_end=log_end,
        epoch=owner.epoch or None,
        in_flight=sum(entry.count for entry in owner.entries.values()),
        waiting_for_claims=sum(entry.count for entry in owner.entries.values() if entry.state in _OTHERS),
        waiting_for_turn=waiting_for_turn,
        lowest=lowest,
        paused=paused,
        next_retry_ms=next_retry_ms,
    )


def lowest_open(owner: Ownership, clock: Clock, given_at: float) -> OpenRecord | None:
    """Return the lowest open record of a partition. None: none is open.

    Its age counts from when it became the lowest, or from the start of its call, if that was earlier. The time since
    it came says only how much came before it. Its wait for a worker does not count as long as workers take others.

    Args:
        owner: of the partition.
        clock: the engine's.
        given_at: when a worker was given a record last.
    """
    if not owner.entries:
        return None
    now, entry = clock.now(), owner.entries[min(owner.entries)]
    began = max(entry.since, owner.moved_at)
    if entry.running:
        began = min(began, entry.given_at)
    elif not entry.attempt and entry.state in _QUEUED:
        began = max(began, given_at)
    return OpenRecord(
        offset=entry.record.offset, handler=entry.handler.name, for_s=max(0.0, now - began), waits_for=_waits_for(entry)
    )


def _waits_for(entry: Entry) -> str:
    if entry.letter is not None:
        return f"its dead letter, which goes to {entry.letter.topic!r}"
    if entry.state is EntryState.TAKEN:
        return f"its handler {entry.handler.name}" if entry.started else f"its turn to run {entry.handler.name}"
    if entry.state is EntryState.STUCK:
        return f"its handler {entry.handler.name}, which was given up and may still run"
    if entry.state is EntryState.RETRY:
        return f"its next attempt: {entry.handler.name} has failed {entry.attempt} times"
    return _WAITS.get(entry.state, "nothing")
