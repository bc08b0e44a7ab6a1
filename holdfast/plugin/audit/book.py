"""The book of one run: what is to be told, until it is told. Engines and loops of one's own write into it."""

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

#: Spans or partitions in one event, and keys, which may be long: it stays below what a broker takes as one message.
_IN_ONE, _KEYS_IN_ONE = 1_000, 250


class Owned(Protocol):
    """One partition under one ownership; compared by identity, or as a value."""

    @property
    def epoch(self) -> int:
        """0: nobody counts."""
        ...

    @property
    def partition(self) -> Partition: ...  # noqa: D102


class Unowned(NamedTuple):
    """A partition of which nobody counts the owners."""

    partition: Partition
    epoch: int = 0


class _Page:
    """Of one partition under one ownership."""

    __slots__ = ("epoch", "keys", "partition", "spans")

    def __init__(self, owner: Owned) -> None:
        self.partition, self.epoch = owner.partition, owner.epoch or None
        self.spans = SpanMerger()
        self.keys: list[Keyed] = []


class Book:
    """Any thread. What is written here is told at the next flush, by the emitter's thread or by whoever asks for it;
    the lock keeps events in the order in which things happened, and nobody is waited for under it. A forked child has
    an empty one, which has to be opened and started."""

    def __init__(self, audit: Audit, group: str) -> None:
        self._audit = audit
        self.emitter = Emitter(audit, group)
        self._key = KeyWriter(audit, group)
        #: Whether keys are asked for.
        self.keys = self._key.wanted
        self._begin()
        after_fork(self, Book._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pages: dict[Owned, _Page] = {}
        self._came: dict[str, list[AuditPartition]] = {}
        self._told: Counter[Outcome] = Counter()
        self._ordered = True
        self._started = self._stopped = False

    # ---- the beginning and the end
    def open(self) -> None:
        """Nothing is told before `start`. Raises SettingError, OSError: nothing can be told there."""
        self.emitter.start(self.flush)

    def start(self, source: str, protocol: str | None, *, ordered: bool = True) -> None:
        """The run begins. Args: ordered: offsets are a log's."""
        audit = self._audit
        with self._lock:
            self._ordered, self._started = ordered, True
            settings = {"flush_s": audit.flush_s, "progress_s": audit.progress_s, "keys": audit.keys}
            self.emitter.put(Started(protocol=protocol, source=source, settings=settings), must=True)
        self.emitter.wake()

    def stop(self, *, clean: bool, in_hand: int = 0, error: str | None = None) -> None:
        """The run is over. Waits for the sink, for `Audit.close_s` at most. Idempotent."""
        self.flush()
        with self._lock:
            if self._started and not self._stopped:
                records = {str(outcome): count for outcome, count in self._told.items()}
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
        """Records that have ended, as ranges of offsets that are all there; of ABSENT and EXPIRED none is.

        Args:
            owner: has a page of its own until the next flush.
            outcome: of all of them.
            offsets: in any order.
            times: when the first of them began and the last had ended, wall clock, milliseconds.
            keys: offset and business key of those that have one; not to be given where keys are not asked for.
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
        """Note partitions that are ours from now on."""
        with self._lock:
            self._came.setdefault(trigger, []).extend(places)
        self.emitter.wake()

    def released(self, places: Sequence[AuditPartition], trigger: str) -> None:
        """Note partitions that are not ours any more."""
        with self._lock:
            self._flush()
            for part in _parts(places):
                self.emitter.put(Revoked(partitions=part, trigger=trigger))
        self.emitter.wake()

    def stands(self, places: Sequence[AuditPartition]) -> None:
        """Where all partitions stand."""
        with self._lock:
            self._flush()
            for part in _parts(places):
                self.emitter.put(Progress(partitions=part))

    def tell(self, body: Body) -> None:
        """An event as it is."""
        with self._lock:
            self._flush()
            self.emitter.put(body)

    def flush(self) -> None:
        """Tell what there is."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._started:
            return
        came, self._came = self._came, {}
        for trigger, places in came.items():
            for part in _parts(places):
                self.emitter.put(Assigned(partitions=part, trigger=trigger))
        pages, self._pages = self._pages, {}
        for page in pages.values():
            self._turn(page)

    def _turn(self, page: _Page) -> None:
        """One partition's spans, in as many events as it takes; keys have events of their own where there are many."""
        spans = page.spans.take()
        for each in spans:
            if each.records:
                self._told[each.outcome] += each.records
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
