"""Taking back: what waits in a chunk behind a slow record, while its worker goes on. The loop's thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import Entry

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.call import Call

#: A chunk in which no record has ended for so long has met a slow one, which the others need not wait for; nor need
#: they for a chunk that takes longer than that in all.
_LATE_S = 0.005
_LONG_S = 0.02


def is_late(chunk: Call, current: object, now: float) -> bool:
    """Whether the records queued behind `current` should move to other workers. A waiting coroutine is late at once."""
    if chunk.began is None:
        return False
    if chunk.waits:
        return True
    ended = current.ended if isinstance(current, Entry) else 0
    if chunk.seen[:2] != (current, ended):
        chunk.seen = (current, ended, now)
    return now - max(chunk.seen[2], chunk.began) >= _LATE_S or now - chunk.began >= _LONG_S


def take_back(chunk: Call, current: object) -> list[tuple[Entry, int, int]]:
    """Take what its worker has not begun.

    Returns: entries, and of each how many of its records have ended, and how many a worker has begun.
    """
    waiting = []
    with suppress(IndexError):
        while True:
            waiting.append((chunk.entries.pop(), 0, 0))
    waiting.reverse()
    # Of one that its worker has only looked at, all records would be taken, and it would say that all of them have
    # ended: there were none left.
    if isinstance(current, Entry) and current.count > 1 and current.started:
        waiting.insert(0, _rest(current))
    return waiting


def _rest(run: Entry) -> tuple[Entry, int, int]:
    left = 0
    with suppress(IndexError):
        while True:
            run.todo.pop()
            left += 1
    # In this order: its worker can begin no more of them, but it may end the one that it is busy with.
    begun = run.count - left
    return run, run.ended - run.base, begun
