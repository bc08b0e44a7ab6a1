"""A place in memory for the audit's events; it can stand still."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.plugin.audit.schema import Assigned, Outcome, Revoked, Span, Spans, decode
from holdfast.plugin.audit.settings import Audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.audit.schema import AuditPartition, Event
    from holdfast.timing import Deadline

B = TypeVar("B")


class MemoryEvents:
    """Any thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.events: list[Event] = []
        self.stands = False
        self.closed = False
        self.lost = 0

    def audit(self, member: str = "a", **how: Any) -> Audit:
        """Flushed soon."""
        return Audit(self, member=member, flush_s=0.01, progress_s=0.05, **how)

    # ---- as a place, and as a sink
    def open(self, member: str, run: str) -> MemoryEvents:
        return self

    def write(self, lines: Sequence[str], run: str) -> int:
        with self.changed:
            if self.stands:
                return 0
            self.events += [decode(line) for line in lines]
            self.changed.notify_all()
            return len(lines)

    def close(self, deadline: Deadline) -> None:
        self.closed = True

    # ---- looking
    def bodies(self, kind: type[B], member: str | None = None) -> list[B]:
        with self.changed:
            return [
                event.body
                for event in self.events
                if isinstance(event.body, kind) and member in (None, event.stamp.member)
            ]

    def spans(self, member: str | None = None) -> list[Span]:
        return [span for body in self.bodies(Spans, member) for span in body.spans]

    def offsets(self, outcome: Outcome, member: str | None = None) -> Counter[tuple[str, int]]:
        """How often that became of them, by partition and offset."""
        return Counter(
            (body.partition, offset)
            for body in self.bodies(Spans, member)
            for span in body.spans
            if span.outcome is outcome
            for offset in range(span.first or 0, span.next or 0)
        )

    def places(self, kind: type[Assigned | Revoked], member: str | None = None) -> list[tuple[str, AuditPartition]]:
        """By trigger."""
        return [(body.trigger, place) for body in self.bodies(kind, member) for place in body.partitions]


def once(*offsets: int, partition: str = "0") -> Counter[tuple[str, int]]:
    return Counter((partition, offset) for offset in offsets)
