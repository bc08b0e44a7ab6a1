"""Ground: one kind of broker with its topics, its group, and the clients of its members.

Each kind has a file of its own; grounds.py lists them.
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
    """A group, as a stage sees it."""

    @property
    def attempts(self) -> list[Attempt]:
        """All commits that reached the broker."""
        ...

    @property
    def members(self) -> Sequence[object]:
        """The members without whose end the broker lets no tool reset the group."""
        ...

    def offset(self, partition: Partition) -> int | None:
        """The committed offset; None = none."""
        ...

    def set_offset(self, partition: Partition, offset: int | None) -> None:
        """Set an offset as a tool does; None = the offset expires."""
        ...

    def refuse(self, partition: Partition, *fates: CommitFate) -> None:
        """Have the next commits of that partition go wrong."""
        ...


class Ground(Protocol):
    """One kind of broker, as a stage sees it."""

    #: Faults that cannot happen here; they are skipped.
    without: frozenset[FaultKind]

    @property
    def broker(self) -> MemoryBroker:
        """The broker with the topics."""
        ...

    @property
    def group(self) -> Group:
        """The group of the members."""
        ...

    def source(self, process: Process, static_id: str | None) -> PartitionedSource | LeasedSource:
        """The client of a member that starts."""
        ...

    def lose(self, source: object) -> None:
        """Have the broker take away all that the member with that client owns."""
        ...

    def begins(self, partitions: Sequence[Partition]) -> None:
        """Note the partitions that exist when the world begins."""
        ...

    def commit_elsewhere(self, partition: Partition, offset: int) -> None:
        """Commit an offset as another program, whether or not members run."""
        ...

    def is_foreign(self, partition: Partition) -> bool:
        """Whether another program committed the offset that stands there."""
        ...

    def told(self, member: str, event: Event) -> None:
        """Note an event of the member of that name."""
        ...

    def store(self, number: int, plan: Planned, value: str) -> RecordPlace:
        """Store a producer's record."""
        ...

    def store_again(self, first: Placed) -> RecordPlace | None:
        """Store the record a second time, as a producer without an answer does; None = the copy has the same message
        id."""
        ...

    def number(self, partition: Partition, offset: int, source: object) -> int:
        """The number, in the book, of the record that the member with that client means by that offset."""
        ...

    def judge(self, member: str, attempt: Attempt) -> None:
        """Judge a commit that the broker has accepted."""
        ...

    def done(self, record: Placed) -> bool:
        """Whether that record is marked as done in the store."""
        ...

    def position(self, partition: Partition) -> str:
        """The name of a partition's position in the store of claims."""
        ...

    def is_blind(self, fence: Fence, record: Placed) -> bool:
        """Whether the owner of the record's partition takes its log for a deleted one."""
        ...

    def committed(self, partition: Partition) -> int | None:
        """The committed offset; None = none, or one for a deleted topic of that name."""
        ...

    @property
    def progress(self) -> int:
        """A number that changes when more is committed."""
        ...

    def behind(self) -> list[str]:
        """Partitions that are not committed to their end, as text; empty = all are."""
        ...
