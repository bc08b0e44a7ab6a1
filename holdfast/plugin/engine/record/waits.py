"""Waits: say in words why each open record is not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import Gate
from holdfast.plugin.observe.snapshot import OpenRecord

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.entry import Entry

_WAITS = {
    Gate.CLAIM: "the store's answer for its key",
    Gate.BUSY: "its key, which another member has claimed",
    Gate.BEHIND: "a record before it, which waits for a key",
    Gate.HANDED: "a former owner, which may still work on it",
    Gate.READY: "a worker",
    Gate.ENDED: "the store's acknowledgement",
}
#: What waits so waits for another: a member, or a record of this one that has the same key.
OTHERS = frozenset({Gate.BUSY, Gate.HANDED})


def lowest(entry: Entry, now: float) -> OpenRecord:
    """The first record of an entry."""
    return OpenRecord(
        offset=entry.record.offset, handler=entry.handler.name, for_s=now - entry.since, waits_for=_waits_for(entry)
    )


def _waits_for(entry: Entry) -> str:
    if entry.letter is not None:
        return f"its dead letter, which goes to {entry.letter.topic!r}"
    if entry.gate is Gate.TAKEN:
        return f"its handler {entry.handler.name}" if entry.started else f"its turn to run {entry.handler.name}"
    if entry.gate is Gate.STUCK:
        return f"its handler {entry.handler.name}, which was given up and may still run"
    if entry.gate is Gate.RETRY:
        return f"its next attempt: {entry.handler.name} has failed {entry.attempt} times"
    return _WAITS.get(entry.gate, "nothing")
