"""One ownership of a partition, and what is known of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.tools.audit_report.judge.times import early_ms


@dataclass(slots=True, kw_only=True)
class Owner:
    """An owner, as the run's events tell; below the line as its spans tell.

    turn      1, 2 ... of the partition
    said      the highest position that the member said of it
    told      the same, of what it said while all its events had come: everything below has a span that came too
    end       the log's end as it said first: a client may not have heard of it when it is assigned
    last_end  the log's end, as it said last
    complete  everything of it has come: its run is complete, or it gave the partition with nothing in hand
    """

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
        early = early_ms(began_ms, ended_ms, records)
        if self.first_ms is None or early < self.first_ms:
            self.first_ms = early
        if self.last_ms is None or ended_ms > self.last_ms:
            self.last_ms = ended_ms
        if self.end is not None and first < self.end and (self.behind_ms is None or ended_ms > self.behind_ms):
            self.behind_ms = ended_ms

    def unread(self) -> None:
        """Forget the spans: a reader that reads them again finds all of this anew."""
        self.first = self.next = self.first_ms = self.last_ms = self.behind_ms = None
        self.records = 0

    def read_below(self, offset: int) -> bool:
        """Asked in the order of offsets: whether it has begun before this one."""
        return self.first is not None and self.first < offset
