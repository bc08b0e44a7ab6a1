"""Where a group goes on in a partition: one answer for the app that takes it over and for tools. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.offset_set import OffsetSet

if TYPE_CHECKING:
    from holdfast.dedup.claims import Acquired
    from holdfast.plugin.ports import Committed


class GroupPosition(NamedTuple):
    """The next offset of a group."""

    #: None: the group has none; it begins where its settings say.
    offset: int | None
    #: Another program has set it at the broker: what the store knows from there on is dropped.
    foreign: bool


def group_position(committed: Committed | None, known: Acquired, *, truth: bool = False) -> GroupPosition:
    """Hold the committed offset against what the store knows.

    Who has set an offset is honoured. An offset of ours cannot take anything back, so the higher one counts; but one
    that is not above `Acquired.again` may have been sent before a reset, and have come late: then the store's counts.
    Unmarked ones (RocketMQ's) say nothing where the store knows something.

    Args:
        committed: the group's offset at the broker; None = it has none.
        known: the store's reply.
        truth: `ClaimStore.truth`. An offset of ours then says nothing where the store knows something: a higher one was
            committed for marks, and effects, that the store has lost.
    """
    if committed is not None and not committed.ours:
        return GroupPosition(committed.offset, foreign=True)
    if committed is None and is_new(known):
        return GroupPosition(None, foreign=False)
    at = known.watermark
    believed = not truth and committed is not None and committed.marked and committed.offset > known.again
    if committed is not None and (is_new(known) or believed):
        at = max(at, committed.offset)
    return GroupPosition(OffsetSet(known.done).first_missing(at), foreign=False)


def reads_from(offset: int, first: int, last: int) -> int:
    """The offset that a group which stands there reads next: the log's first one, where the log has dropped what lies
    before, and where it ends before: then it is another log, or has lost records.

    Args:
        offset: the next one, by `group_position`.
        first: that the log still has.
        last: that its next record gets.
    """
    return offset if first <= offset <= last else first


def is_new(known: Acquired) -> bool:
    """Whether the store knows nothing of the position: no owner has ever begun there."""
    return not (known.begun or known.done or known.running or known.again)
