"""Answers of Kafka's coordinator, what it asks of a member, and what it keeps of one."""

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


#: As `holdfast.adapters.kafka.faults` reads them, which a test holds against this.
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
    #: All that it should have; None = as before.
    assigned: frozenset[Partition] | None = None
    #: A classic group wants to know who is there, for its next generation.
    rejoin: bool = False
    refusal: Answer | None = None


class GroupMember(Protocol):
    """A member as its group reaches it. All with the broker's lock."""

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
        """Taken away by the broker, not told yet."""
        ...

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions that the member says it has."""
        ...

    def wants(self, topic: str) -> bool:
        """Whether a topic is subscribed to."""
        ...

    def stir(self) -> None:
        """There may be news."""
        ...

    def loses(self, partitions: Sequence[Partition]) -> None:
        """The broker takes these away without a word."""
        ...

    def is_told(self, member_id: int, told: Told) -> None:
        """Tell the member what it should have."""
        ...


class Seat:
    """A member's place in its group. A static member's outlives the process."""

    __slots__ = ("assigned", "away", "deadline", "epoch", "id", "member", "owned", "ready", "since", "static_id")

    def __init__(self, member: GroupMember, member_id: int, static_id: str | None) -> None:
        self.member, self.id, self.static_id = member, member_id, static_id
        #: When its session ends; None = never, where no clock counts.
        self.deadline: float | None = None
        self.epoch = 0
        #: In which epoch each partition came to it.
        self.since: dict[Partition, int] = {}
        #: What it should have now, as it is told.
        self.assigned: frozenset[Partition] = frozenset()
        #: What it has said that it has.
        self.owned: frozenset[Partition] = frozenset()
        #: It has joined the round that is open.
        self.ready = False
        #: It said that it comes back.
        self.away = False
