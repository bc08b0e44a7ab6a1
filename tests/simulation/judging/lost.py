"""Lost: the state that a store lost by a failover, or when it was emptied. Judges excuse what follows from it only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.simulation.playing.book import Book, LogName, Placed, Sight


class Known(NamedTuple):
    """The state of a store."""

    #: Log -> its owner, its epoch, and the offsets that were handed over.
    logs: dict[LogName, Hashable]
    done: set[Placed]
    keys: dict[tuple[str, str], Hashable]

    @classmethod
    def now(cls, book: Book, sight: Sight) -> Known:
        """The store's state of all logs, and of all records of a book."""
        records = book.records.values()
        return cls(
            {log: sight.owned(log) for log in sight.logs()},
            {record for record in records if sight.done(record)},
            {key: sight.held(key) for key in dict.fromkeys(record.unit.key for record in records) if key is not None},
        )


class Lost(NamedTuple):
    """The part of its state that a store has lost or changed."""

    at_s: float
    logs: frozenset[LogName]
    done: frozenset[Placed]
    keys: frozenset[tuple[str, str]]
    #: Records that count as done again: the store has lost that they were to be handled once more.
    again: frozenset[Placed]

    @classmethod
    def between(cls, before: Known, after: Known, at_s: float) -> Lost:
        """The difference between two states."""
        return cls(
            at_s,
            frozenset(log for log, fact in before.logs.items() if after.logs.get(log) != fact),
            frozenset(before.done - after.done),
            frozenset(key for key, fact in before.keys.items() if after.keys.get(key) != fact),
            frozenset(after.done - before.done),
        )

    def has(self, record: Placed, but_marks: bool = False) -> bool:
        """Whether the store lost state of that record: its mark (unless `but_marks`), its key, or its log's owner."""
        return (not but_marks and record in self.done) or record.log in self.logs or record.unit.key in self.keys
