"""One ownership of a partition, and what is known of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Owner:
    """One ownership, as `owners.ownerships` has it; below the line what the sweep finds."""

    run: str
    member: str
    turn: int
    epoch: int | None = None
    trigger: str | None = None
    from_seq: int = 0
    from_ms: int = 0
    to_ms: int | None = None
    ended_by: str | None = None
    position: int | None = None
    end: int | None = None
    said: int | None = None
    told: int | None = None
    last_end: int | None = None
    complete: bool = False
    killed: bool = False

    first: int | None = None
    next: int | None = None
    records: int = 0
    first_ms: int | None = None  #: when its first record had ended
    last_ms: int | None = None
    behind_ms: int | None = None  #: when the last record below `end` had ended

    def has_told(self, offset: int) -> bool:
        """Whether it would have a span there if it had done anything."""
        return self.complete or (self.told is not None and self.told > offset)

    def ended(self, first: int, records: int, began_ms: int, ended_ms: int) -> None:
        """One span of records more."""
        self.records += records
        early_ms = ended_ms if records < 2 else began_ms + (ended_ms - began_ms) // records
        if self.first_ms is None or early_ms < self.first_ms:
            self.first_ms = early_ms
        if self.last_ms is None or ended_ms > self.last_ms:
            self.last_ms = ended_ms
        if self.end is not None and first < self.end and (self.behind_ms is None or ended_ms > self.behind_ms):
            self.behind_ms = ended_ms

    def read_below(self, offset: int) -> bool:
        """Asked in the order of offsets: whether it has begun before this one."""
        return self.first is not None and self.first < offset
