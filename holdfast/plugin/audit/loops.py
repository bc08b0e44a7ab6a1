"""LoopAudit: the same events from a loop without holdfast, so that a report can compare both."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from holdfast.dedup.forks import after_fork
from holdfast.plugin.audit.book import Book, Unowned
from holdfast.plugin.audit.schema import AuditPartition, Outcome, label
from holdfast.plugin.audit.settings import checked
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, wall_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from holdfast.plugin.audit.settings import Audit

#: A partition as loops name it: topic and number.
Where = tuple[str, int]


class LoopAudit:
    """Writes the events of a consumer loop that does not use holdfast. The report trusts the loop: it must state only
    what has happened.

    Any thread. Only the constructor and `stopped` wait. A forked child is a run of its own, with partitions of its own:
    the run begins with the child's first call, which waits, and may raise SettingError as the constructor does.

    Args:
        audit: as for `Holdfast`.
        group: the consumer group's name.
        source: the loop's name in events.

    Raises:
        SettingError: the destination of the events cannot be written to.
    """

    def __init__(self, audit: Audit, group: str, *, source: str = "loop") -> None:
        checked(audit)
        self._every_s, self._source = audit.progress_s, source
        self._book = Book(audit, group)
        self._begin()
        after_fork(self, LoopAudit._begin)
        self._ours()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        #: Partition of the loop -> [committed position, end of the log]; None: not known.
        self._stands: dict[Partition, list[int | None]] = {}
        self._assigns = self._open = False
        self._look_at = 0.0

    def _ours(self) -> Book:
        """This process's book, started. It starts with the first call, so that a forked child that reports nothing is
        no run."""
        if not self._open:
            with self._lock:
                if not self._open:
                    self._book.open()
                    self._book.start(self._source, None)
                    self._open = True
        return self._book

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped(error)

    def assigned(self, positions: Mapping[Where, int | None], ends: Mapping[Where, int] | None = None) -> None:
        """Report assigned partitions.

        Args:
            positions: partition -> the offset from which it is read; None: not known.
            ends: partition -> the end of its log, as far as known.
        """
        with self._lock:
            self._assigns = True
            for where, position in positions.items():
                self._stands[Partition(*where)] = [position, (ends or {}).get(where)]
            places = [self._place(Partition(*where)) for where in positions]
        self._ours().acquired(places, "assigned")

    def revoked(self, wheres: Iterable[Where], trigger: str = "revoked") -> None:
        """Report partitions that the loop has no more, with the positions that it committed last.

        Args:
            wheres: the partitions.
            trigger: "revoked"; "lost" if the group had taken them away before.
        """
        with self._lock:
            partitions = [Partition(*where) for where in wheres]
            places = [self._place(partition) for partition in partitions]
            for partition in partitions:
                self._stands.pop(partition, None)
        self._ours().released(places, trigger)

    def handled(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        key: str | None = None,
        began_ms: int | None = None,
        outcome: Outcome = Outcome.HANDLED,
    ) -> None:
        """Report that a handler has ended with a record.

        Args:
            topic: the record's topic.
            partition: the number of its partition.
            offset: its offset.
            key: its business key; written if `Audit.keys` asks for keys.
            began_ms: when the handler began, wall clock, milliseconds since 1970; None: now.
            outcome: `FAILED` for a failed attempt, `DEAD_LETTERED` for a record that became a dead letter.
        """
        now = wall_ms()
        keys = ((offset, key),) if key is not None and self._book.keys else ()
        times = (now if began_ms is None else began_ms, now)
        owner = Unowned(Partition(topic, partition))
        self._ours().add(owner, outcome, (range(offset, offset + 1),), times, keys)

    def absent(self, topic: str, partition: int, first: int, after: int) -> None:
        """Report that the log has no records from `first` to `after`, exclusive. Without this call the report counts
        these offsets as lost."""
        now = wall_ms()
        self._ours().add(Unowned(Partition(topic, partition)), Outcome.ABSENT, (range(first, after),), (now, now))

    def committed(self, positions: Mapping[Where, int], ends: Mapping[Where, int] | None = None) -> None:
        """Report that all records below these positions are done. An event is written every `progress_s`, and when
        partitions go.

        Args:
            positions: partition -> the committed offset. Once the loop has called `assigned`, partitions that are not
                assigned are ignored.
            ends: partition -> the end of its log, as far as known.
        """
        with self._lock:
            for at, numbers in enumerate((positions, ends or {})):
                for where, number in numbers.items():
                    if not self._assigns or Partition(*where) in self._stands:
                        self._stands.setdefault(Partition(*where), [None, None])[at] = number
            now = SYSTEM_CLOCK.now()
            due = now >= self._look_at
            if due:
                self._look_at = now + self._every_s
            places = [self._place(partition) for partition in self._stands] if due else []
        if places:
            self._ours().stands(places)

    def stopped(self, error: BaseException | None = None) -> None:
        """Report the end of the loop. Waits for the sink, at most `Audit.close_s`. Idempotent.

        Args:
            error: the error that ended the loop; None: it was asked to stop.
        """
        self._book.stop(clean=error is None, error=None if error is None else type(error).__name__)

    @property
    def dropped(self) -> int:
        """How many events were dropped: the buffer was full, or the sink has lost them."""
        return self._book.emitter.dropped

    def _place(self, partition: Partition) -> AuditPartition:
        position, end = self._stands.get(partition, (None, None))
        return AuditPartition(topic=partition.topic, partition=label(partition), position=position, end=end)
