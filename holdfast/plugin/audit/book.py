"""Book: collects what happens in one run until it is written as events. The engine and own loops write into it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from holdfast.dedup.forks import after_fork
from holdfast.plugin.audit.emitter import Emitter
from holdfast.plugin.audit.schema import (
    Assigned,
    Keyed,
    Outcome,
    Progress,
    Revoked,
    Span,
    Spans,
    Started,
    Stopped,
    label,
)
from holdfast.plugin.audit.settings import KeyWriter
from holdfast.plugin.audit.spans import SpanMerger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.plugin.audit.schema import AuditPartition, Body
    from holdfast.plugin.audit.settings import Audit
    from holdfast.records import Partition

T = TypeVar("T")

#: Most spans or partitions in one event, and most keys, which may be long: an event stays below a message's size limit.
_IN_ONE, _KEYS_IN_ONE = 1_000, 250


class Owned(Protocol):
    """One partition under one ownership. A key of dictionaries: compared by identity, or as a value."""

    @property
    def epoch(self) -> int:
        """The fence's epoch; 0: ownerships are not counted."""
        ...

    @property
    def partition(self) -> Partition: ...  # noqa: D102


class Unowned(NamedTuple):
    """A partition whose ownerships are not counted."""

    partition: Partition
    epoch: int = 0


class _Page:
    """The spans and keys of one partition under one ownership, since the last flush."""

    __slots__ = ("epoch", "keys", "partition", "spans")

    def __init__(self, owner: Owned) -> None:
        self.partition, self.epoch = owner.partition, owner.epoch or None
        self.spans = SpanMerger()
        self.keys: list[Keyed] = []


class Book:
    """Collects the events of one run. Any thread.

    The emitter's thread, or a caller of `flush`, turns the content into events. The lock keeps events in the order in
    which things happened; no call waits for I/O while it holds the lock. A forked child has an empty book, which must
    be opened and started anew.
    """

    def __init__(self, audit: Audit, group: str) -> None:
        self._audit = audit
        self.emitter = Emitter(audit, group)
        self._key = KeyWriter(audit, group)
        #: Whether `Audit.keys` asks for keys.
        self.keys = self._key.wanted
        self._begin()
        after_fork(self, Book._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pages: dict[Owned, _Page] = {}
        self._acquired: dict[str, list[AuditPartition]] = {}
        self._counts: Counter[Outcome] = Counter()
        self._ordered = True
        self._started = self._stopped = False

    # ---- the beginning and the end
    def open(self) -> None:
        """Open the sink. No event is written before `start`. Raises SettingError, OSError: it cannot be written to."""
        self.emitter.start(self.flush)

    def start(self, source: str, protocol: str | None, *, ordered: bool = True) -> None:
        """Begin the run. `ordered`: whether offsets are positions in a log."""
        audit = self._audit
        with self._lock:
            self._ordered, self._started = ordered, True
            settings = {"flush_s": audit.flush_s, "progress_s": audit.progress_s, "keys": audit.keys}
            self.emitter.put(Started(protocol=protocol, source=source, settings=settings), must=True)
        self.emitter.wake()

    def stop(self, *, clean: bool, in_hand: int = 0, error: str | None = None) -> None:
        """End the run. Waits for the sink, at most `Audit.close_s`. Idempotent."""
        self.flush()
        with self._lock:
            if self._started and not self._stopped:
                records = {str(outcome): count for outcome, count in self._counts.items()}
                self.emitter.put(Stopped(clean=clean, records=records, in_hand=in_hand, error=error), must=True)
            self._stopped = True
        self.emitter.close()

    # ---- what happens
    def add(
        self,
        owner: Owned,
        outcome: Outcome,
        offsets: Iterable[range],
        times: tuple[int, int],
        keys: Iterable[tuple[int, str]] = (),
    ) -> None:
        """Add records that have ended. A range has a record at each of its offsets; for ABSENT and EXPIRED at none.

        Args:
            owner: partition and ownership. Each has a page of its own until the next flush.
            outcome: of all these records.
            offsets: ranges of offsets, in any order.
            times: when the first began and when the last ended, wall clock, milliseconds since 1970.
            keys: (offset, business key) of the records that have a key; empty unless `self.keys`.
        """
        with self._lock:
            page = self._pages.get(owner)
            if page is None:
                page = self._pages[owner] = _Page(owner)
            for each in offsets:
                if self._ordered:
                    page.spans.add(outcome, each, times)
                else:
                    page.spans.count(outcome, len(each), times)
            for offset, key in keys:
                at = offset if self._ordered else None
                page.keys.append(Keyed(offset=at, key=self._key(key), outcome=outcome))

    def acquired(self, places: Iterable[AuditPartition], trigger: str) -> None:
        """Note partitions that this member has from now on."""
        with self._lock:
            self._acquired.setdefault(trigger, []).extend(places)
        self.emitter.wake()

    def released(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """Note partitions that this member has no more."""
        with self._lock:
            self._flush()
            for part in _parts(places):
                self.emitter.put(Revoked(partitions=part, trigger=trigger))
        self.emitter.wake()

    def stands(self, places: Sequence[AuditPartition]) -> None:
        """Note the positions of all partitions."""
        with self._lock:
            self._flush()
            for part in _parts(places):
                self.emitter.put(Progress(partitions=part))

    def tell(self, body: Body) -> None:
        """Add an event as it is."""
        with self._lock:
            self._flush()
            self.emitter.put(body)

    def flush(self) -> None:
        """Turn all that was collected into events."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._started:
            return
        acquired, self._acquired = self._acquired, {}
        for trigger, places in acquired.items():
            for part in _parts(places):
                self.emitter.put(Assigned(partitions=part, trigger=trigger))
        pages, self._pages = self._pages, {}
        for page in pages.values():
            self._turn(page)

    def _turn(self, page: _Page) -> None:
        """Emit one partition's spans, in as many events as they need. More than `_KEYS_IN_ONE` keys get further events,
        without spans."""
        spans = page.spans.take()
        for each in spans:
            if each.records:
                self._counts[each.outcome] += each.records
        none: tuple[Keyed, ...] | None = () if self.keys else None
        keys: list[tuple[Keyed, ...] | None] = [*_parts(page.keys, _KEYS_IN_ONE)] or [none]
        parts: list[tuple[Sequence[Span], Sequence[Keyed] | None]] = [(part, none) for part in _parts(spans)]
        if not parts:
            return
        parts[-1] = (parts[-1][0], keys[0])
        parts += [((), more) for more in keys[1:]]
        for some, keyed in parts:
            self.emitter.put(
                Spans(
                    topic=page.partition.topic,
                    partition=label(page.partition),
                    epoch=page.epoch,
                    spans=some,
                    keys=keyed,
                    ordered=self._ordered,
                )
            )


def _parts(these: Sequence[T], in_one: int = _IN_ONE) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(these), in_one):
        yield tuple(these[at : at + in_one])
