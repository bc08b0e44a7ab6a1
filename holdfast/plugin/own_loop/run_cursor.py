"""RunCursor: a run of records that goes to the loop one record at a time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Partition, Record


class RunCursor:
    """A run that goes to the loop one by one. Records that have gone count as started, the others do not. Under the
    lock of its `Driven`."""

    __slots__ = ("_entry", "_gone", "_gone_before", "until")

    def __init__(self, entry: Entry, until: float) -> None:
        """Begin with the first record, which goes now. `until`: the time of the next look at the client, by the
        engine's clock."""
        self._entry, self._gone, self.until = entry, 1, until
        self._gone_before = 1

    def begin(self) -> None:
        """Note that the records which have gone so far have reached the loop."""
        self._gone_before = self._gone

    def undo(self) -> None:
        """Take back the records that have gone since `begin`: they have not reached the loop."""
        self._gone = self._gone_before

    def has(self, entry: Entry) -> bool:
        """Whether it is this run."""
        return self._entry is entry

    def next(self) -> Record | None:
        """The next record, while the ownership's session lives; None: there is none, or it may not start here."""
        entry, gone = self._entry, self._gone
        if gone >= entry.count or not entry.owner.session_.live():
            return None
        self._gone = gone + 1
        return entry.records[gone]

    @property
    def partition(self) -> Partition:
        """The partition of its records."""
        return self._entry.record.partition

    @property
    def last(self) -> int:
        """The offset of the last record that has gone."""
        return self._entry.records[self._gone - 1].offset

    def rest(self) -> Entry | None:
        """The records that have not gone, as an entry that may start; None: all have gone."""
        if self._gone >= self._entry.count:
            return None
        rest = self._entry.cut(self._gone)
        rest.state, rest.started = EntryState.READY, 0
        return rest
