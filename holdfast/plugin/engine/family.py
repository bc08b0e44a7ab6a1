"""Family: the interface between the loop and a kind of source, `partition/partitioned.py` or `leased/leased.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.observe.snapshot import SourceFigures
    from holdfast.plugin.ports import Batch, End
    from holdfast.records import Partition, Record
    from holdfast.timing import Deadline


class Loop(Protocol):
    """The loop that takes the turns of a family: `Engine`, or a user's own loop (`Driven`). One thread."""

    @property
    def starts_inside(self) -> bool:
        """Whether records start while it goes on without the client."""
        ...

    def collect(self) -> None:
        """Take what has ended."""
        ...

    def settle(self) -> None:
        """Finish and mark what has ended, as far as the store answers."""
        ...

    def work_until(self, over: Callable[[], bool], deadline: Deadline) -> None:
        """Go on without the client until `over()` or the deadline."""
        ...

    def on_revoke(self, partitions: Collection[Partition]) -> None:
        """Note that these partitions are about to be handed over, or are lost."""
        ...

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """Note that another program has said that all of that partition below the offset is done."""
        ...


class Family(Protocol):
    """One thread, the one that runs the app. `open`, `subscribe`, `poll` and `settle` may raise SourceError.

    What has a body here holds where records have no positions, and each is leased alone.
    """

    source: object
    #: Records have positions: what is done is known by them, records may go in runs, and the store takes marks.
    by_position: bool = False
    #: `default_key` is claimed for a record without a business key.
    by_identity: bool = True

    @property
    def lease_s(self) -> float | None:
        """The broker's own lease on what a member has; the session's is not longer. None: unknown."""
        ...

    @property
    def patience_s(self) -> float:
        """How long the loop may stand still until others may take over what its session has."""
        ...

    # ---- where a record comes from, and where it goes again
    def mixes(self, topic: str) -> bool:
        """Whether records of other topics come in that one: each goes to the handler of the topic where it was born."""
        return False

    def born_in(self, record: Record) -> str:
        """The topic where a record was born: its own, unless it came by such a topic and says so. Headers of other
        records are anybody's."""
        return record.partition.topic

    def unroutable(self, topic: str) -> Handler | None:
        """The handler of records that were born in that topic, which no handler of the app has; None: they stop the
        app."""
        return None

    def retry_topic_of(self, record: Record, *, has_letters: bool) -> str | None:
        """Where a record that has failed here goes to be brought again by the broker; None: it is not. A handler that
        has no dead letter topic leaves the last time to the broker too."""
        return None

    def refusal(self, record: Record) -> Exception | None:
        """Why no handler may get the record, which is a dead letter then; None: handlers may get it."""
        return None

    def default_key(self, record: Record) -> str | None:
        """The key to claim where the handler names none."""
        ...

    # ---- the loop's steps
    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Join."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records, and what the client has to tell."""
        ...

    def admit(self, records: Sequence[Record]) -> Iterator[tuple[Ownership, Sequence[Record]]]:
        """Which of the records that one poll brought are to be handled here, and under whose ownership, in their order.

        Each step of the iteration looks at what the ones before have entered.
        """
        ...

    def reached(self, ends: Sequence[End]) -> None:
        """The source has read so far; after the records of the same poll were admitted."""
        return

    def settle(self, entries: Sequence[Entry]) -> None:
        """Mark, or acknowledge. Raises StoreUnavailable too: then all of them may be settled again."""
        ...

    def marked(
        self, owner: Ownership, entries: Sequence[Entry], ranges: Sequence[range], fenced: frozenset[int]
    ) -> None:
        """The store has taken note of these entries and their offsets, but for those that it has refused: another
        member has taken the partition over."""
        return

    def fenced(self, owner: Ownership) -> None:
        """A handler's transaction was refused: another member has taken the partition over."""
        return

    def given_up(self, entry: Entry) -> None:
        """The entry left without being settled: the next owner reads it again."""
        return

    def tend(self) -> None:
        """Do what time brings."""
        ...

    def session_lost(self) -> None:
        """Fence everything; a new session follows."""
        ...

    def figures(self) -> SourceFigures:
        """For a snapshot, as far as known without asking anybody."""
        ...

    def leave(self, deadline: Deadline) -> None:
        """Fence, drain, settle, let go."""
        ...

    def close(self) -> None:
        """Close the client. Idempotent."""
        ...
