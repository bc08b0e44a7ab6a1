"""The seams of the command line's tools: a group's offsets while nobody consumes, and letters that lie in a topic.

Each kind of broker brings its own implementation. One thread calls; every call ends with its deadline. All raise
SourceError, typed: no answer is SourceUnavailable, never an empty reply.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.errors import DeadLetterError
    from holdfast.plugin.ports import Committed
    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.records import Partition, Record
    from holdfast.timing import Deadline


class NoFence:
    """The `Fence` of records that a tool reads: a tool owns no partition."""

    epoch = 0
    session = ""
    cancelled = False

    def overdue(self, record: Record) -> bool:  # noqa: ARG002 - as of `Fence`
        """No handler has it."""
        return False


class GroupMember(NamedTuple):
    """A process that consumes, as the broker sees it."""

    client: str
    host: str
    member_id: str
    partitions: tuple[Partition, ...]


class OffsetTool(Protocol):
    """A group's offsets at the broker. Offsets are the next to read."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    def partitions(self, topic: str, deadline: Deadline) -> Sequence[Partition]:
        """All partitions of a topic. Raises UnknownTopic."""
        ...

    def members(self, partitions: Sequence[Partition], deadline: Deadline) -> Sequence[GroupMember]:
        """The members of the group now, and whoever is only seen to consume from these partitions in its name; a member
        that is dead counts until its session has ended."""
        ...

    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """The names of their positions in the store, as the group's source makes them."""
        ...

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's committed offsets, as the group's source would read them; None = none."""
        ...

    def retry_lags(self, topic: str, deadline: Deadline) -> Mapping[str, int]:
        """The topics in which records of that topic wait to be tried again by this group, and how many wait there."""
        ...

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first offset that each log still has."""
        ...

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs: the next offset that a producer gets."""
        ...

    def offsets_at(self, partitions: Sequence[Partition], when_ms: int, deadline: Deadline) -> Mapping[Partition, int]:
        """The first record at or after a time in milliseconds since 1970; the log's end where there is none."""
        ...

    def identities(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[str]]:
        """The claims that the group's source keeps of these messages beside their positions: if one is done, its
        message would be skipped.

        An empty batch says that nothing has come for a moment. Raises SourceUnavailable: nothing came for `patience_s`.
        """
        ...

    def set(self, offsets: Mapping[Partition, int], deadline: Deadline) -> None:
        """Set the group's offsets so that they count as set by a person: without the mark of holdfast's own commits.

        Raises GroupActive: the broker refuses it while the group has members, and nothing is set. SourceError: nothing,
        or a part of it, is set.
        """
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


class Outgoing(NamedTuple):
    """A letter on its way back."""

    letter: Record
    topic: str
    #: One of that topic; None = as the broker's clients choose it.
    partition: Partition | None


class DeadLetterTool(Protocol):
    """Dead letters in a topic."""

    def partitions(self, topic: str, deadline: Deadline) -> Sequence[Partition]:
        """All partitions of a topic. Raises UnknownTopic."""
        ...

    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:
        """Names under which the store remembers what was replayed; other ones for a topic that was made again."""
        ...

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first offset that each log still has."""
        ...

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs."""
        ...

    def read(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[Record]]:
        """Read each partition from its start up to its end, and no further, in the partition's order.

        An empty batch says that nothing has come for a moment, so that a caller can look at the clock. Raises
        SourceUnavailable when nothing has come for `patience_s`.
        """
        ...

    def send(self, letters: Sequence[Outgoing], deadline: Deadline) -> Sequence[DeadLetterError | None]:
        """Produce with key, value and headers as they are; returns when each is acknowledged or known to have failed.
        One that is too large for its target so goes without the headers that letters put on.

        Replies in the order of the letters: None = acknowledged by all in-sync replicas; DeadLetterRefused = the target
        will never take it; DeadLetterError = not acknowledged, it may be there all the same.
        """
        ...

    def readers(self, topic: str, deadline: Deadline) -> Sequence[str]:
        """The groups that read a topic, as far as is known."""
        ...

    def is_compacted(self, topic: str, deadline: Deadline) -> bool:
        """Whether of the records of one key only the newest stays there."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


class Configured(NamedTuple):
    """A source's configuration, as its client would get it."""

    #: For `holdfast.tools.advice.doctor`; None: nothing that the doctor judges.
    conf: Mapping[str, object] | None = None
    #: Setting -> the warning that the source itself would give at its start.
    warnings: Mapping[str, str] = MappingProxyType({})


class SourceLook(Protocol):
    """A look at what a source would find at its broker, before it joins: for checks. Joins no group, makes no topic."""

    @property
    def addresses(self) -> str:
        """Where its brokers or name servers are said to be."""
        ...

    @property
    def default_port(self) -> int | None:
        """The port of an address that names none; None: it has to."""
        ...

    def reach(self, deadline: Deadline) -> str:
        """Reach one server and log in there. Returns: which one, in words."""
        ...

    def configuration(self) -> Configured:
        """Make what its client would get, as far as is known of the broker. Raises SettingError: the broker cannot."""
        ...

    def partitions(self, topic: str, deadline: Deadline) -> int:
        """How many partitions a topic has. Raises UnknownTopic."""
        ...

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:
        """The topics that a pattern (^...) names now."""
        ...

    def flaws(self, topic: str, delay_s: float | None, deadline: Deadline) -> Sequence[Flaw]:
        """Find what is wrong with a topic in which records wait for so long; None: dead letters."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...
