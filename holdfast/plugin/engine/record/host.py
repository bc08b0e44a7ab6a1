"""Host: the interface through which the parts of a record's path use the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.claims import ClaimSession, Mark
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Record


class Marking(NamedTuple):
    """Positions of one session that are to be marked."""

    session: ClaimSession
    marks: Sequence[Mark]
    #: What is to be done with the store's replies.
    on_marked: Callable[[Sequence[frozenset[int]]], None]


class Host(Protocol):
    """One thread, the one that runs the app."""

    @property
    def lease_s(self) -> float | None:
        """The broker's own lease on what a member has; the session's is not longer. None: unknown."""
        ...

    def fence_all(self) -> None:
        """The session is lost: nothing new starts, others may take over; a new session follows."""
        ...

    def settle_with_source(self, entries: Sequence[Entry]) -> None:
        """Mark, or acknowledge. Raises StoreUnavailable: then all of them may be settled again."""
        ...

    def build_marks(self, entries: Sequence[Entry]) -> Sequence[Marking] | None:
        """Tell what `settle_with_source` says to the store; None: the source has another way."""
        ...

    def skipped(self, entry: Entry) -> None:
        """The store says that its key is done."""
        ...

    def taken_over(self, entry: Entry) -> None:
        """The store refused our `finish`: another session runs, or has run, that key."""
        ...

    def forget(self, entry: Entry) -> None:
        """An entry leaves without being settled."""
        ...

    def retry_topic_of(self, entry: Entry) -> str | None:
        """Where a record that has failed here goes to come again: a retry topic, or back to the broker; None: it is
        not."""
        ...

    def attempts_before(self, entry: Entry) -> int:
        """How often a record that comes of a retry topic was tried before."""
        ...

    def born_in(self, record: Record) -> str:
        """The topic where a record was born."""
        ...
