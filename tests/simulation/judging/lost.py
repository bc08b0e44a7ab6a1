"""Lost: what a store has lost by a failover, or when it was emptied. Judges excuse what follows from it, no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.simulation.playing.book import Book, LogName, Placed, Sight


class Known(NamedTuple):
    """A store's knowledge."""

    #: Of each log: its owner, its epoch, and what was handed over.
    logs: dict[LogName, Hashable]
    done: set[Placed]
    keys: dict[tuple[str, str], Hashable]

    @classmethod
    def now(cls, book: Book, sight: Sight) -> Known:
        """All that it knows of logs, and of the records of a book."""
        records = book.records.values()
        return cls(
            {log: sight.owned(log) for log in sight.logs()},
            {record for record in records if sight.done(record)},
            {key: sight.held(key) for key in dict.fromkeys(record.unit.key for record in records) if key is not None},
        )


class Lost(NamedTuple):
    """The part of its knowledge that a store has lost, or has otherwise."""

    at_s: float
    logs: frozenset[LogName]
    done: frozenset[Placed]
    keys: frozenset[tuple[str, str]]
    #: Done as before: that they were to be handled once more is forgotten.
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
        """Whether anything of that record is among it: its mark (unless `but_marks`), its key, or who owned it."""
        return (not but_marks and record in self.done) or record.log in self.logs or record.unit.key in self.keys
