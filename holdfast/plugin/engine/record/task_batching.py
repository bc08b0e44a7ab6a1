"""Together: how many records of an `async def` handler go as one task.

A task costs more than a trivial coroutine. A coroutine that waits needs a task of its own, or others would wait behind
it. So as many go together as lately ended without waiting for anything: twice as many after each time that this went
well, half as many after each time that it did not.
"""

from __future__ import annotations

#: Nothing else of the event loop runs meanwhile.
_LONG_S = 0.002
_AT_MOST = 256


class Together:
    """By handlers' names. `ended` is called in the event loop's thread, `records` in the engine's."""

    def __init__(self) -> None:
        self._records: dict[str, int] = {}

    def records(self, handler: str) -> int:
        """How many to give to one task; 1 where they wait, or nothing is known."""
        return self._records.get(handler, 1)

    def ended(self, handler: str, records: int, took_s: float, *, waited: bool) -> None:
        """A task of so many records has ended; or it waits: it has let others run before it has ended."""
        now = self.records(handler)
        if records * 2 <= now:
            return  # it says nothing of as many as go together now
        well = not waited and took_s <= _LONG_S
        self._records[handler] = min(_AT_MOST, now * 2) if well else max(1, now // 2)
