"""Unacked: records given to handlers and not acknowledged by the store. A crash repeats at most these. Pure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.handlers import Kind


class Unacked:
    """Counts records from when they are taken for their handler until they are acknowledged, given back, or have
    failed.

    There are never more than `at_most`. The kinds of handlers have equal shares of that, and none lends its own: what
    is slow, or is marked late, would give nothing back when another kind needs it. A batch is no larger than its kind's
    share. Letters of records that failed for good are not counted: no handler of theirs runs.
    """

    def __init__(self, at_most: int = sys.maxsize, kinds: Iterable[Kind] = ()) -> None:
        self.at_most = at_most
        self._of: dict[Kind, int] = dict.fromkeys(kinds, 0)
        #: Of all kinds.
        self.records = 0

    def share(self, kind: Kind) -> int:
        """The number of records that kind may have at most; one at least."""
        self._of.setdefault(kind, 0)  # a handler that nobody has registered: of unroutable records
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
