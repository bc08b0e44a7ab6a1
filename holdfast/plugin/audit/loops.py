"""LoopAudit: the same events from a loop that is not ours, so that both can be held against each other."""

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
    """The events of a loop that is not holdfast's. The loop is taken at its word, and must not say more than what has
    happened.

    Any thread. No call waits, but for the first and the last. A forked child is a run of its own, with partitions of
    its own: it begins with the first call there, which may raise SettingError as this one does.

    Args:
        audit: as for `Holdfast`.
        group: the consumer group's name.
        source: what events call it.

    Raises:
        SettingError: nothing can be told there.
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
        #: Partitions that it has: where they stand, and the ends of their logs.
        self._stands: dict[Partition, list[int | None]] = {}
        self._assigns = self._open = False
        self._look_at = 0.0

    def _ours(self) -> Book:
        """The book of this process, with its beginning told: a child that says nothing is no run."""
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
        """Tell that these partitions came, and where they are read from. None: not known."""
        with self._lock:
            self._assigns = True
            for where, position in positions.items():
                self._stands[Partition(*where)] = [position, (ends or {}).get(where)]
            places = [self._place(Partition(*where)) for where in positions]
        self._ours().acquired(places, "assigned")

    def revoked(self, wheres: Iterable[Where], trigger: str = "revoked") -> None:
        """Tell that these partitions are gone, with what was committed last. Say `lost` where the group had taken them
        before."""
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
        """Tell that the handler of that record has ended; `outcome` says how.

        Args:
            topic: its topic; partition and offset likewise.
            partition: a number.
            offset: in its log.
            key: its business key; told where `Audit.keys` asks for it.
            began_ms: when, wall clock; None: just now.
            outcome: `failed` for an attempt, `dead_lettered` for what was put away.
        """
        now = wall_ms()
        keys = ((offset, key),) if key is not None and self._book.keys else ()
        times = (now if began_ms is None else began_ms, now)
        owner = Unowned(Partition(topic, partition))
        self._ours().add(owner, outcome, (range(offset, offset + 1),), times, keys)

    def absent(self, topic: str, partition: int, first: int, after: int) -> None:
        """The log has no records from `first` up to, without, `after`. A loop that does not say so has lost them."""
        now = wall_ms()
        self._ours().add(Unowned(Partition(topic, partition)), Outcome.ABSENT, (range(first, after),), (now, now))

    def committed(self, positions: Mapping[Where, int], ends: Mapping[Where, int] | None = None) -> None:
        """Everything below is done, by the loop's own word. Told each `progress_s`, and when partitions go. What is not
        assigned is passed over, where the loop says what is."""
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
        """The loop has ended, and has told everything. Waits for the sink, for `Audit.close_s` at most. Idempotent."""
        self._book.stop(clean=error is None, error=None if error is None else type(error).__name__)

    @property
    def dropped(self) -> int:
        """Events that were given up."""
        return self._book.emitter.dropped

    def _place(self, partition: Partition) -> AuditPartition:
        position, end = self._stands.get(partition, (None, None))
        return AuditPartition(topic=partition.topic, partition=label(partition), position=position, end=end)
