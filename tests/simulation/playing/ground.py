"""Ground: what a world stands on, by kind of broker: its topics, its group, and the clients of its members.

Each kind has a file of its own; grounds.py has them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import CommitFate, LeasedSource, PartitionedSource
    from holdfast.records import Fence, Partition
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.brokers.kafka_group import Attempt
    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import FaultKind, Planned
    from tests.simulation.playing.book import Placed, RecordPlace


class Group(Protocol):
    """A group as a stage asks of it, and changes it."""

    @property
    def attempts(self) -> list[Attempt]:
        """All commits that reached the broker."""
        ...

    @property
    def members(self) -> Sequence[object]:
        """For whom the broker waits before it lets others do something to the group."""
        ...

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = nothing."""
        ...

    def set_offset(self, partition: Partition, offset: int | None) -> None:
        """By hand; None: it has expired."""
        ...

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """The next commits of that partition do not go as they should."""
        ...


class Ground(Protocol):
    """One kind of broker, as a stage needs it."""

    #: What cannot happen here: it is passed over.
    without: frozenset[FaultKind]

    @property
    def broker(self) -> MemoryBroker:
        """Where the topics are."""
        ...

    @property
    def group(self) -> Group:
        """Of the members."""
        ...

    def source(self, process: Process, static_id: str | None) -> PartitionedSource | LeasedSource:
        """The client of a member that starts."""
        ...

    def lose(self, source: object) -> None:
        """The broker takes away what that member has."""
        ...

    def begins(self, partitions: Sequence[Partition]) -> None:
        """The world begins, with these."""
        ...

    def commit_elsewhere(self, partition: Partition, offset: int) -> None:
        """Another program commits that offset of the group's, whether or not members run."""
        ...

    def is_foreign(self, partition: Partition) -> bool:
        """Whether another program has set what is committed there."""
        ...

    def told(self, member: str, event: Event) -> None:
        """A member of that name tells something."""
        ...

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """A producer's record is stored."""
        ...

    def store_again(self, first: Placed) -> RecordPlace | None:
        """Store the record once more, as a producer without an answer does; None: the copy is the same to everybody."""
        ...

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """Of the record in the book that the member with that client tells of by that offset."""
        ...

    def judge(self, member: str, attempt: Attempt) -> None:
        """A commit was taken."""
        ...

    def done(self, record: Placed) -> bool:
        """Whether the store of claims knows that record as done."""
        ...

    def position(self, partition: Partition) -> str:
        """The name of a partition's position in the store of claims."""
        ...

    def is_blind(self, fence: Fence, record: Placed) -> bool:
        """Whether who owns the record's partition takes its log for one that is gone."""
        ...

    def committed(self, partition: Partition) -> int | None:
        """The committed offset; None: nothing, or for a topic of that name that was deleted."""
        ...

    @property
    def progress(self) -> int:
        """Another number where something more was committed."""
        ...

    def behind(self) -> list[str]:
        """The offsets that are still to be committed, for people; empty: nothing is."""
        ...
