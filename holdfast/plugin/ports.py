"""The seams: what the engine needs of a broker's client, of dead letters and of those who watch.

Two families of source. *Partitioned* (Kafka, RocketMQ pull): partitions are assigned and taken away, a watermark per
partition is committed. *Leased* (RocketMQ 5 over gRPC, share groups): every record has a lease at the broker and is
acknowledged alone. All methods of a source are called by one thread, the one that runs the app.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.errors import RecordUnreadable, SourceError
    from holdfast.plugin.events import Event
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Fence, Partition, Record
    from holdfast.timing import Deadline


class Start(NamedTuple):
    """Where an assigned partition begins."""

    #: The next offset to read; None = not known yet, and the partition is held.
    offset: int | None
    #: The engine has not taken the partition over yet: deliver nothing, the engine seeks and resumes later.
    hold: bool


class Committed(NamedTuple):
    """A group's committed offset: the next one to read."""

    offset: int
    #: Whether it carries our mark with this very offset. If not, somebody has set it: it wins over what we know.
    ours: bool
    #: False: the broker's commits carry no mark, so it says nothing of who made it. Then what is known wins, also over
    #: a higher one; it counts where nothing is known.
    marked: bool = True
    #: Of the store whose member has made it, as `ClaimStore.store_id`; "" = it does not say. No reason for a reset.
    store: str = ""


class CommitFate(Enum):
    """The fate of one partition's commit."""

    DONE = "done"
    AGAIN = "again"  #: refused or unknown for now: send again while the partition is owned
    DISCARD = "discard"  #: no longer ours to commit


class End(NamedTuple):
    """The source has read a partition up to here: gaps below (compaction, transaction markers) count as done."""

    partition: Partition
    offset: int


NONE: Mapping[tuple[Partition, int], RecordUnreadable] = MappingProxyType({})


class Batch(NamedTuple):
    """The records and ends of one poll."""

    records: Sequence[Record]
    ends: Sequence[End] = ()
    #: Of those records whose message cannot be read, so that their value is what there is of it, partition and offset,
    #: and why. No handler gets them: they fail for good at once.
    unreadable: Mapping[tuple[Partition, int], RecordUnreadable] = NONE


NOTHING = Batch(())


class RebalanceListener(Protocol):
    """The engine, as a partitioned source calls it inside `poll` or `close`. No call raises."""

    @property
    def store_id(self) -> str:
        """Which store of claims stands behind what is committed: for the commits' metadata, where there is any."""
        ...

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """These partitions came. Replies where each begins."""
        ...

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These partitions go now: on return they are drained, committed and let go."""
        ...

    def lost(self, partitions: Sequence[Partition]) -> None:
        """These partitions are gone already: nothing may be committed for them."""
        ...

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None:
        """A signal handler has raised inside of `assigned`, `revoked` or `lost`. The change stands. New partitions stay
        paused until a seek."""
        ...

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        """A commit has come to its end."""
        ...

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        """The broker says that somebody has reset the group's offset; or (`cut`) its log ends before what was read.
        What is known from there on is dropped, and the engine seeks."""
        ...

    def overwritten(self, partition: Partition, offset: int) -> None:
        """The broker has this offset for the group, though another commit of ours was acknowledged and none is under
        way: the engine commits anew."""
        ...


class PartitionedSource(Protocol):
    """A client whose partitions are assigned. Raises SourceError (typed) where the broker does not do as asked."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    @property
    def protocol(self) -> str:
        """The rebalance protocol in use, for reports ("eager", "cooperative", "consumer", ...)."""
        ...

    @property
    def session_timeout_s(self) -> float | None:
        """After how long of silence the broker hands a member's partitions on; None = only the broker knows."""
        ...

    @property
    def max_poll_interval_s(self) -> float:
        """How long a member may stay away from `poll` before the group goes on without it."""
        ...

    @property
    def identity(self) -> Callable[[Record], str | None] | None:
        """An identity that all copies of one message share, where producers may store one twice: the engine claims it
        where the handler names no key. None: positions are enough."""
        ...

    @property
    def retry_topic(self) -> str | None:
        """A topic in which failed records come again: each goes to the handler of the topic where it was born."""
        ...

    def brings_again(self, topic: str) -> bool:
        """Whether records of that topic were tried before, and say where they were born: `retry_topic`, and what the
        broker has for other ways to consume for the group."""
        ...

    @property
    def unroutable_letters(self) -> str | None:
        """The dead letter topic for what comes by `retry_topic` and does not say where it was born: somebody has put it
        there by hand. None: it stops the app, as records of topics do that nobody handles."""
        ...

    @property
    def retries(self) -> Callable[[Record], bool] | None:
        """Whether the broker would bring that record again, which has failed here: then its letter goes to
        `retry_topic`. So does the last one of a handler without a dead letter: the broker puts it away. None: what
        fails is tried again in place alone."""
        ...

    @property
    def gaps_are_the_logs(self) -> bool:
        """Whether what it brings nothing of has no record in the log, beyond doubt: each read begins at an offset of
        its own books, and the broker's answer says where it ends. False: a client keeps the position, which may go past
        records; then the engine looks twice (`Holes`)."""
        ...

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Reach the broker and join. Names that begin with ^ are patterns. Records of partitions that are not in
        `owners` are dropped; the others carry their fence."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription while running."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Deliver records, call the listener. Returns at the first record, and after `timeout_s` without one.

        What was assigned in this very call brings one record at most: the engine then asks for fewer than before.
        """
        ...

    # Of these three, each partition has its own answer. What goes wrong with one of them (its topic is gone, it has no
    # leader) stands in its place as a SourceError, and what was not answered may be left out; either is asked for
    # again, and the others go on. Raised is what is about all of them.
    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """A name for each partition's position in the store: other for a topic that was deleted and made again."""
        ...

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """The group's committed offsets; None = none. An error or a timeout is never None."""
        ...

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """Where a group begins that has committed nothing (earliest, latest): now, as a number."""
        ...

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs, asked of the broker now: the next offset that a producer gets. Raises SourceError."""
        ...

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """Ask for the ends of the logs without waiting, and give the answer once, in the same or a later call; None =
        not yet. The answer is about the partitions of the call that asked. Raises SourceError."""
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit exactly these; never blocks. The listener's `committed` tells the outcome in a later poll.

        Inside `revoked` the source must not let the partitions go before the broker has answered, or a bound of its own
        has passed.
        """
        ...

    def set_back(self, partition: Partition, offset: int) -> None:
        """Begin to commit an offset to which the group goes back on purpose, as a tool's reset does: without our mark,
        where there are marks. Whoever has the partition next honours it, though the store knows more as done."""
        ...

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the partitions' logs as far as known without asking the broker; for reports."""
        ...

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Where the partitions' logs begin, as far as known without asking the broker: what lay before was deleted. Of
        a log that has deleted what was to be read it is known when the source brings what comes behind that."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from there. Raises SourceUnavailable: not yet possible."""
        ...

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver nothing of these, while membership goes on."""
        ...

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver again."""
        ...

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Leave the group. Called when everything is committed and let go. Idempotent.

        A static member (one that keeps its place over a restart) only closes, unless it is to `leave` for good.
        """
        ...


@runtime_checkable
class ReachableSource(Protocol):
    """A source that can ask its brokers before it joins: what is asked of them after that knows that they answer."""

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Reach the brokers and look for the topics. Before `open`. Raises SourceError: UnknownTopic names all that are
        missing."""
        ...


@runtime_checkable
class RetryTopicsSource(Protocol):
    """A partitioned source that can have retry topics: the app reads them beside its own topics."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    def reads_all_of(self, topics: Collection[str]) -> None:
        """These topics begin at their first record, wherever others begin of which the group has no offset: what lies
        there was put there by this group. Before `open`."""
        ...


@runtime_checkable
class LeasedSource(Protocol):
    """A client whose records have a lease each. Raises SourceError where the broker does not do as asked."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    @property
    def lease_s(self) -> float:
        """How long a record stays hidden from others after it was delivered or extended."""
        ...

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Reach the broker; all records carry this fence."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Deliver records. Offsets are numbers of the source's choice, never used twice in a partition."""
        ...

    def identity(self, record: Record) -> str:
        """An identity that stays when the record is delivered again: the key where the handler names none."""
        ...

    def extend(self, records: Sequence[Record]) -> None:
        """Renew leases, each third of one; also without records: then for what is received and not delivered. Called
        by one thread, so never twice at once for a record."""
        ...

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Acknowledge records that are done. Replies with those whose lease had ended: they will be delivered again.

        A source may only begin it here: then it keeps books until the broker has answered, acknowledges what comes
        again meanwhile without delivering it, and replies with those of earlier calls.
        """
        ...

    def release(self, records: Iterable[Record]) -> None:
        """Give back what was not handled; best effort: the lease ends by itself."""
        ...

    def drain(self) -> None:
        """The app is leaving: deliver nothing more, and give back what is received and not delivered."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Bring to an end what was begun, then leave. Idempotent. What is neither acknowledged nor released may still
        be running: its lease ends by itself."""
        ...


@runtime_checkable
class BatchedSource(Protocol):
    """A leased source whose client hands batches over one record after the other, and gives one back as a whole.

    So it is better to bring to its end what has been begun than to give it back.
    """

    def wind_up(self) -> None:
        """Begin to leave: nothing more is fetched; what has been begun is delivered on. Returns at once."""
        ...

    @property
    def wound_up(self) -> bool:
        """Whether nothing more will be delivered."""
        ...


class Seen(NamedTuple):
    """A queue as the broker describes it."""

    #: The lowest offset that is there, and the next one that a producer gets.
    first: int
    end: int
    #: Every offset below was answered by some member of the group; None = the group has none.
    committed: int | None
    #: Whether each offset from there on is delivered: nothing is filtered out on the way.
    dense: bool


@runtime_checkable
class QueueLeasedSource(Protocol):
    """A leased source whose records come from queues that move between members, and whose client does not say when."""

    @property
    def queue_lease_wait_s(self) -> float:
        """How long a queue's first record waits for the member that has it; a callback of the client waits with it."""
        ...

    def queue(self, record: Record) -> Partition | None:
        """The queue that it came from, with its broker; None = it cannot be told. Does not wait."""
        ...

    def position_name(self, queue: Partition) -> str:
        """The name of its position in the store."""
        ...

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """Ask the broker. Raises SourceError."""
        ...


class DeadLetters(Protocol):
    """Where records go that failed for good."""

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """At the start: the targets exist. Raises SourceError."""
        ...

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Return when the letter is acknowledged by its broker, else raise DeadLetterError. Any thread."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Give the connections back."""
        ...


class Observer(Protocol):
    """Sees what happens. Called by the thread that runs the app: return quickly. What it raises is logged."""

    def on_event(self, event: Event) -> None:
        """One of `holdfast.plugin.events`."""
        ...
