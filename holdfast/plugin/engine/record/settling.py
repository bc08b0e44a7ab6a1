"""Settling: records in hand, from the start of their handler until the store has acknowledged their end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.engine.record.offsets import joined, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.recorder import Recorder
    from holdfast.plugin.handlers import Kind


class Unacked:
    """Counts records from when they are taken for their handler until they are acknowledged, given back, or have
    failed.

    A crash repeats at most these. There are never more than `at_most`. The kinds of handlers have equal shares of that,
    and none lends its own: what is slow, or is marked late, would give nothing back when another kind needs it. A batch
    is no larger than its kind's share. Letters of records that failed for good are not counted: no handler of theirs
    runs.
    """

    def __init__(self, at_most: int = sys.maxsize, kinds: Iterable[Kind] = ()) -> None:
        self.at_most = at_most
        self._of: dict[Kind, int] = dict.fromkeys(kinds, 0)
        #: Records in hand, of all kinds.
        self.records = 0

    def share(self, kind: Kind) -> int:
        """The number of records that kind may have at most; one at least."""
        self._of.setdefault(kind, 0)  # the handler of unroutable records, which is not registered
        return max(1, self.at_most // len(self._of))

    def room(self, kind: Kind) -> int:
        """How many records of that kind may be taken now."""
        return min(self.share(kind) - self._of[kind], self.at_most - self.records)

    @property
    def roomy(self) -> bool:
        """No kind has more than half of its share."""
        return max(self._of.values(), default=0) * 2 * len(self._of) <= self.at_most

    def take(self, entry: Entry) -> None:
        """Count the records of an entry that goes to its handler."""
        if not entry.counted:
            entry.counted = True
            self._count(entry, entry.count)

    def leave(self, entry: Entry) -> None:
        """Count out records that are acknowledged, or did not start, or have failed. Nothing happens where they are not
        counted."""
        if entry.counted:
            entry.counted = False
            self._count(entry, -entry.count)

    def _count(self, entry: Entry, records: int) -> None:
        kind = entry.handler.kind
        self._of[kind] = self._of.get(kind, 0) + records
        self.records += records


class Done(NamedTuple):
    """Records of one partition that are done."""

    owner: Ownership
    entries: Sequence[Entry]
    #: Their offsets, ascending, without gaps.
    ranges: Sequence[range]


class Settling:
    """Entries between the end of their handler and the store's acknowledgement. One thread.

    `finish` first, then `mark`: the other way round, a crash between the two would leave a record that is done by its
    position and not by its key, and the producer's next copy of it would run. So what an exchange marks was finished by
    an earlier one.
    """

    def __init__(self, recorder: Recorder, unacked: Unacked) -> None:
        self._recorder, self._unacked = recorder, unacked
        self._finishing: list[Entry] = []
        self._settling: list[Entry] = []
        #: Duplicates by their key, since the start.
        self.skipped = 0
        #: Records that have ended and are not acknowledged.
        self.waiting = 0

    def ended(self, entry: Entry) -> None:
        """A handler ended well, or its dead letter is acknowledged."""
        waiting = self._finishing if entry.held else self._settling
        if not waiting or waiting[-1] is not entry:  # else the call was torn right here, and is made again
            waiting.append(entry)
        self.waiting += entry.count
        entry.state = EntryState.ENDED  # last: who sees it so knows that it waits here

    def skip(self, entry: Entry) -> None:
        """A duplicate by its key: nothing runs, but its position is to be settled."""
        self._recorder.ended(entry, Outcome.SKIPPED_KEY)
        self.skipped += 1
        entry.state = EntryState.ENDED
        self.waiting += 1
        self._settling.append(entry)

    def recount(self) -> Sequence[Entry]:
        """The entries that wait here; counted anew, since a call that was torn may have counted wrong."""
        waiting = [*self._finishing, *self._settling]
        self.waiting = sum(entry.count for entry in waiting)
        return waiting

    @property
    def entries(self) -> int:
        """How many entries wait."""
        return len(self._finishing) + len(self._settling)

    def to_finish(self, at_most: int) -> Sequence[Entry]:
        """The first entries whose keys are to be finished: so many records together, at least one entry."""
        return _first(self._finishing, at_most)

    def to_settle(self, at_most: int) -> Sequence[Entry]:
        """The first entries that their source is to be told of, as `to_finish`."""
        return _first(self._settling, at_most)

    def finished(self, batch: Sequence[Entry]) -> list[Entry]:
        """The store has answered for the keys of these entries.

        Returns: the queue for those whose keys are done, which no crash repeats any more. The others leave.
        """
        answered = set(map(id, batch))
        self._finishing = [entry for entry in self._finishing if id(entry) not in answered]
        return self._settling

    def leaves(self, entry: Entry) -> None:
        """Count out an entry whose key another member took over: its result does not count."""
        self.waiting -= entry.count

    def settled(self, batch: Sequence[Entry]) -> None:
        """Count these out, the first that waited: their source has taken note of them."""
        del self._settling[: len(batch)]
        for entry in batch:
            self.waiting -= entry.count
            self._unacked.leave(entry)


def by_owner(entries: Iterable[Entry]) -> list[Done]:
    """Records that are done and have not left meanwhile, by the partition that owns them."""
    found: dict[Ownership, list[Entry]] = {}
    for entry in entries:
        if entry.state is not EntryState.GONE:
            found.setdefault(entry.owner, []).append(entry)
    return [Done(owner, those, _ranges(those)) for owner, those in found.items()]


def _ranges(entries: Sequence[Entry]) -> list[range]:
    found = spans(entry.record.offset for entry in entries if entry.count == 1)
    return joined([*found, *(span for entry in entries if entry.count > 1 for span in entry.ranges)])


def _first(entries: Sequence[Entry], at_most: int) -> Sequence[Entry]:
    count = 0
    for number, entry in enumerate(entries):
        count += entry.count
        if number and count > at_most:
            return entries[:number]
    return list(entries)
