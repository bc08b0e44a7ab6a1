"""Family: what one kind of source does in its own way. `partitioned.py` and `leased.py` are the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.plugin.lanes import Entry
    from holdfast.plugin.ownership import Ownership
    from holdfast.plugin.ports import Batch, End
    from holdfast.records import Record
    from holdfast.timing import Deadline


class Family(Protocol):
    """One thread, the one that runs the app. `open`, `subscribe`, `poll` and `settle` may raise SourceError."""

    @property
    def lease_s(self) -> float | None:
        """The broker's own lease on what a member has; the session's is not longer. None: unknown."""
        ...

    @property
    def patience_s(self) -> float:
        """How long the loop may stand still until others may take over what its session has."""
        ...

    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Join."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records, and what the client has to tell."""
        ...

    def admit(self, record: Record) -> Ownership | None:
        """Under whose ownership the record is to be handled; None = not here, or not again."""
        ...

    def reached(self, ends: Sequence[End]) -> None:
        """The source has read so far; after the records of the same poll were admitted."""
        ...

    def default_key(self, record: Record) -> str | None:
        """What is claimed where the handler names no key."""
        ...

    def settle(self, entries: Sequence[Entry]) -> None:
        """Mark, or acknowledge. Raises StoreUnavailable too: then all of them may be settled again."""
        ...

    def given_up(self, entry: Entry) -> None:
        """The entry left without being settled."""
        ...

    def tend(self) -> None:
        """What time brings."""
        ...

    def session_lost(self) -> None:
        """Fence everything; a new session follows."""
        ...

    def leave(self, deadline: Deadline) -> None:
        """Fence, drain, settle, let go."""
        ...

    def close(self) -> None:
        """Close the client. Idempotent."""
        ...
