"""Waits: say in words why each open record is not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.observe.snapshot import OpenRecord

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.entry import Entry

_WAITS = {
    EntryState.CLAIM: "the store's answer for its key",
    EntryState.BUSY: "its key, which another member has claimed",
    EntryState.BEHIND_BUSY_KEY: "a record before it, which waits for a key",
    EntryState.WITH_FORMER_OWNER: "a former owner, which may still work on it",
    EntryState.READY: "a worker",
    EntryState.ENDED: "the store's acknowledgement",
}
#: What waits so waits for another: a member, or a record of this one that has the same key.
OTHERS = frozenset({EntryState.BUSY, EntryState.WITH_FORMER_OWNER})
#: What has not started, and waits for a worker.
_QUEUED = frozenset({EntryState.READY, EntryState.TAKEN})


def lowest(entry: Entry, now: float, *, since: float, given_at: float) -> OpenRecord:
    """The first record of an entry, which is the lowest of its partition.

    It has its age as the lowest one, or that of its call, if that began before. That it came long ago says only how
    much came before it; nor does it count that a record waits for a worker, as long as workers take others.

    Args:
        entry: see above.
        now: of the app's clock, as all times here.
        since: when everything below it was done.
        given_at: when a worker was given something last.
    """
    began = max(entry.since, since)
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
