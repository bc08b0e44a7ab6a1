"""Answers of Kafka's coordinator, the port of a member, and a member's seat in its group."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.plugin.ports import CommitFate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.records import Partition


class Answer(Enum):
    """Kafka's own names for how a request ended."""

    NO_ERROR = "NO_ERROR"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    STALE_MEMBER_EPOCH = "STALE_MEMBER_EPOCH"
    FENCED_MEMBER_EPOCH = "FENCED_MEMBER_EPOCH"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"
    UNRELEASED_INSTANCE_ID = "UNRELEASED_INSTANCE_ID"
    COORDINATOR_LOAD_IN_PROGRESS = "COORDINATOR_LOAD_IN_PROGRESS"
    NOT_COORDINATOR = "NOT_COORDINATOR"
    UNKNOWN_TOPIC_OR_PART = "UNKNOWN_TOPIC_OR_PART"
    #: No answer in time.
    TIMED_OUT = "_TIMED_OUT"


#: The same as in `holdfast.adapters.kafka.faults`; a test compares the two.
FATES = {
    Answer.NO_ERROR: CommitFate.DONE,
    Answer.UNKNOWN_MEMBER_ID: CommitFate.DISCARD,
    Answer.ILLEGAL_GENERATION: CommitFate.AGAIN,
    Answer.REBALANCE_IN_PROGRESS: CommitFate.AGAIN,
    Answer.STALE_MEMBER_EPOCH: CommitFate.AGAIN,
    Answer.FENCED_MEMBER_EPOCH: CommitFate.DISCARD,
    Answer.FENCED_INSTANCE_ID: CommitFate.DISCARD,
    Answer.UNRELEASED_INSTANCE_ID: CommitFate.DISCARD,
    Answer.COORDINATOR_LOAD_IN_PROGRESS: CommitFate.AGAIN,
    Answer.NOT_COORDINATOR: CommitFate.AGAIN,
    Answer.UNKNOWN_TOPIC_OR_PART: CommitFate.AGAIN,
    Answer.TIMED_OUT: CommitFate.AGAIN,
}


class Told(NamedTuple):
    """The answer to a member's heartbeat or join."""

    epoch: int = 0
    #: All partitions that are assigned to it; None = as before.
    assigned: frozenset[Partition] | None = None
    #: Classic protocols: the member has to join the next generation.
    rejoin: bool = False
    refusal: Answer | None = None


class GroupMember(Protocol):
    """A member, as its group sees it. All calls are made with the broker's lock."""

    #: For judges and stories.
    name: str
    static_id: str | None
    max_poll_interval_s: float

    @property
    def readers(self) -> Collection[Partition]:
        """The partitions that it reads."""
        ...

    @property
    def lost(self) -> Collection[Partition]:
        """Partitions that the broker took away and the application has not been told of."""
        ...

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions that the member says it has."""
        ...

    def wants(self, topic: str) -> bool:
        """Whether the member subscribes to a topic."""
        ...

    def stir(self) -> None:
        """Wake a poll that waits: there may be news."""
        ...

    def loses(self, partitions: Sequence[Partition]) -> None:
        """The broker takes these partitions away without a revocation."""
        ...

    def is_told(self, member_id: int, told: Told) -> None:
        """Tell the member its assignment."""
        ...


class Seat:
    """A member's place in its group. The seat of a static member outlives its process."""

    __slots__ = ("assigned", "away", "deadline", "epoch", "id", "member", "owned", "ready", "since", "static_id")

    def __init__(self, member: GroupMember, member_id: int, static_id: str | None) -> None:
        self.member, self.id, self.static_id = member, member_id, static_id
        #: When its session ends; None = never (a member without a session timeout).
        self.deadline: float | None = None
        self.epoch = 0
        #: Partition -> the epoch in which it was assigned to this member.
        self.since: dict[Partition, int] = {}
        #: The partitions that are assigned to it now.
        self.assigned: frozenset[Partition] = frozenset()
        #: The partitions that the member reports as its own.
        self.owned: frozenset[Partition] = frozenset()
        #: Whether it has joined the open round.
        self.ready = False
        #: Whether it has left and announced that it comes back.
        self.away = False
