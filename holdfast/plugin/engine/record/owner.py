"""Owner: the interface through which a record's path uses the owner of its partition (`partition/ownership.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.records import Partition


class Starting(Protocol):
    """An entry as the start gate sees it."""

    #: How many of its records have started, and how many there are.
    started: int
    count: int


class Owner(Protocol):
    """One partition, owned once. All belongs to the thread that runs the app, except `enter`, `enter_all` and
    `still_ours`, which workers call."""

    partition: Partition
    #: The session under which it is owned.
    session_: ClaimSession
    #: The position's name in the store.
    name: str
    #: What was polled and is not settled, by offset: entries.
    entries: dict[int, Any]
    #: Offsets that former owners may still be working on.
    waiting: set[int]
    #: What was listed as in flight when the partition was let go.
    handed_over: frozenset[int]
    #: Offsets whose handlers run for longer than they may.
    late: set[int]
    #: Offsets below are replayed on purpose, after a reset.
    again: int
    #: When its first record started, by the engine's clock; for reports.
    first_start: float | None

    @property
    def epoch(self) -> int:
        """The fence that records show; 0 before it is acquired."""
        ...

    @property
    def store_epoch(self) -> int:
        """The epoch at the store, which marks and tokens carry."""
        ...

    @property
    def is_owned(self) -> bool:
        """Whether records may start, and may be tried again, here."""
        ...

    @property
    def open(self) -> bool:
        """Whether the source may deliver: it is owned, and the client stands where it has to."""
        ...

    @property
    def next_offset(self) -> int:
        """The first offset that has not come yet."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the partition was let go, or lost."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the ownership is over: handed on, lost, or its session has run out by our own clock."""
        ...

    def enter(self, entry: Starting) -> bool:
        """A worker asks whether to start the entry's next record; then it is counted as started."""
        ...

    def enter_all(self, entries: Sequence[Starting]) -> bool:
        """Open the gate for all records of these entries, which start together; or for none of them."""
        ...

    def still_ours(self, offset: int) -> bool:
        """Whether what has started there is ours to bring to an end: not let go yet, or handed over (others wait)."""
        ...
