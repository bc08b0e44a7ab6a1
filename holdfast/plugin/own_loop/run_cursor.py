"""A run of records on its way to a loop that takes one at a time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Partition, Record


class RunCursor:
    """A run that goes to the loop one by one: what has gone has started, the rest has not. Under the lock of its
    `Driven`."""

    __slots__ = ("_entry", "_gone", "_gone_before", "until")

    def __init__(self, entry: Entry, until: float) -> None:
        """The first record goes with this. Args: until: when to look at something else, by the engine's clock."""
        self._entry, self._gone, self.until = entry, 1, until
        self._gone_before = 1

    def begin(self) -> None:
        """Note that what has gone up to now has reached the loop."""
        self._gone_before = self._gone

    def undo(self) -> None:
        """Undo what has gone since `begin`: it has not reached the loop."""
        self._gone = self._gone_before

    def has(self, entry: Entry) -> bool:
        """Whether it is the run that lies here."""
        return self._entry is entry

    def next(self) -> Record | None:
        """The next one, while the session of its ownership lives; None = there is none, or it may not start here."""
        entry, gone = self._entry, self._gone
        if gone >= entry.count or not entry.owner.session_.live():
            return None
        self._gone = gone + 1
        return entry.records[gone]

    @property
    def partition(self) -> Partition:
        """Of its records."""
        return self._entry.record.partition

    @property
    def last(self) -> int:
        """The offset of the last one that has gone."""
        return self._entry.records[self._gone - 1].offset

    def rest(self) -> Entry | None:
        """The rest, in an entry of its own that may start."""
        if self._gone >= self._entry.count:
            return None
        rest = self._entry.cut(self._gone)
        rest.state, rest.started = EntryState.READY, 0
        return rest
