"""Marks of records that are done: one a partition, its offsets joined to ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.dedup.claims import Mark
from holdfast.dedup.offset_set import Runs
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.engine.record.host import Marking
from holdfast.plugin.engine.record.offsets import joined, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry

    Marked = Callable[[Ownership, Sequence[Entry], Sequence[range], frozenset[int]], None]


def build_marks(entries: Sequence[Entry], on_marked: Marked) -> list[Marking]:
    """Tell what the store is to be told of records that are done, by session.

    Args:
        entries: records that are done, of any partitions.
        on_marked: is told of each ownership which of its entries and ranges the store has noted, and which it has not.
    """
    by_owner: dict[Ownership, list[Entry]] = {}
    for entry in entries:
        if entry.state is not EntryState.GONE:
            by_owner.setdefault(cast("Ownership", entry.owner), []).append(entry)  # made in `admit`
    by_session: dict[ClaimSession, list[Ownership]] = {}
    for owner in by_owner:
        by_session.setdefault(owner.session_, []).append(owner)
    return [_marking(session, owners, by_owner, on_marked) for session, owners in by_session.items()]


def _marking(
    session: ClaimSession, owners: Sequence[Ownership], entries: Mapping[Ownership, Sequence[Entry]], on_marked: Marked
) -> Marking:
    ranges = [_ranges(entries[owner]) for owner in owners]

    def each_marked(replies: Sequence[frozenset[int]]) -> None:
        for owner, done, fenced in zip(owners, ranges, replies, strict=True):
            on_marked(owner, entries[owner], done, fenced)

    marks = [_mark(owner, done) for owner, done in zip(owners, ranges, strict=True)]
    return Marking(session, marks, each_marked)


def _ranges(entries: Sequence[Entry]) -> list[range]:
    """The offsets of all of them, ascending, without gaps."""
    found = spans(entry.record.offset for entry in entries if entry.count == 1)
    return joined([*found, *(span for entry in entries if entry.count > 1 for span in entry.ranges)])


def _mark(owner: Ownership, done: Sequence[range]) -> Mark:
    offsets = done[0] if len(done) == 1 else Runs(done)
    former = owner.phase is Phase.GONE
    return Mark(owner.name, owner.store_epoch, owner.ledger.watermark_with(done), offsets, former)
