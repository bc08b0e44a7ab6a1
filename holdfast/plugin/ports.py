"""Ports: the protocols between the engine and a broker's client, dead letters, and observers.

There are two families of sources. *Partitioned* (Kafka, RocketMQ pull): partitions are assigned and revoked, and a
watermark for each partition is committed. *Leased* (RocketMQ 5 over gRPC, share groups): every record has a lease at
the broker and is acknowledged by itself. One thread calls all methods of a source: the one that runs the app.
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
    """The engine's answer for an assigned partition."""

    #: The next offset to read; None: not known yet, and the partition is held.
    offset: int | None
    #: The engine has not taken the partition over yet: deliver no records; the engine seeks and resumes later.
    hold: bool


class Committed(NamedTuple):
    """A group's committed offset: the next one to read."""

    offset: int
    #: Whether its metadata has holdfast's mark for this offset. If not, another program has set it, and it wins over
    #: the position in the store.
    ours: bool
    #: False: the broker's commits carry no metadata, so it is unknown which program has made it. Then the position in
    #: the store wins, also over a higher offset; without a position, the offset counts.
    marked: bool = True
    #: The `ClaimStore.store_id` of the member that has made the commit; "": not known. Another store is no reason for
    #: a reset.
    store: str = ""


class CommitFate(Enum):
    """The fate of one partition's commit."""

    DONE = "done"
    AGAIN = "again"  #: refused for now, or unknown: send it again while the partition is owned
    DISCARD = "discard"  #: this member must not commit the partition any more


class End(NamedTuple):
    """The source has read a partition up to here: gaps below (compaction, transaction markers) count as done."""

    partition: Partition
    offset: int


NONE: Mapping[tuple[Partition, int], RecordUnreadable] = MappingProxyType({})


class Batch(NamedTuple):
    """The records and ends of one poll."""

    records: Sequence[Record]
    ends: Sequence[End] = ()
    #: (partition, offset) -> error, for records whose message cannot be decoded; their value is the raw content. No
    #: handler gets them: they fail for good at once.
    unreadable: Mapping[tuple[Partition, int], RecordUnreadable] = NONE


NOTHING = Batch(())


class RebalanceListener(Protocol):
    """The engine's methods that a partitioned source calls inside `poll` or `close`. They never raise."""

    @property
    def store_id(self) -> str:
        """The id of the store of claims, for the metadata of commits, if the broker has metadata."""
        ...

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        """Take assigned partitions. Returns where each begins."""
        ...

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Give up partitions. On return they are drained, committed and released."""
        ...

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Drop partitions that other members may have already: no commit is allowed for them."""
        ...

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None:
        """Note that a signal handler has raised inside of `assigned`, `revoked` or `lost`. The change stands. New
        partitions stay paused until a seek."""
        ...

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        """Take the fate of a commit."""
        ...

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None:
        """Take a reset of the group's offset, as the broker reports it; or (`cut`) a log that ends before the offset
        that was read. The engine drops what it knows from `offset` on, and seeks."""
        ...

    def overwritten(self, partition: Partition, offset: int) -> None:
        """Note that the broker has this offset for the group, although it has acknowledged another commit of this
        member, and none is under way. The engine commits again."""
        ...


class PartitionedSource(Protocol):
    """A client whose partitions are assigned. Methods raise SourceError if the broker refuses or does not answer."""

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
        """Seconds of silence after which the broker gives the member's partitions away; None: only the broker knows."""
        ...

    @property
    def max_poll_interval_s(self) -> float:
        """The longest time between two polls, in seconds, before the group removes the member."""
        ...

    @property
    def identity(self) -> Callable[[Record], str | None] | None:
        """An identity that all copies of one message share, if producers may store a message twice: the engine claims
        it if the handler has no key. None: positions are enough."""
        ...

    @property
    def retry_topic(self) -> str | None:
        """The topic in which failed records are delivered again, each to the handler of its origin topic."""
        ...

    def brings_again(self, topic: str) -> bool:
        """Whether records of this topic were tried before and name their origin topic: `retry_topic`, and the broker's
        retry topics for other kinds of consumers of the group."""
        ...

    @property
    def unroutable_letters(self) -> str | None:
        """The dead letter topic for records of `retry_topic` without an origin topic, which a person may have sent
        there. None: such a record stops the app, as a record of a topic without a handler does."""
        ...

    @property
    def retries(self) -> Callable[[Record], bool] | None:
        """Whether the broker would deliver a failed record again: then its letter goes to `retry_topic`. If the handler
        has no dead letter topic, the last letter goes there too, and the broker puts it into its own dead letters.
        None: records are retried only in place."""
        ...

    @property
    def gaps_are_the_logs(self) -> bool:
        """Whether offsets without a record surely have none in the log. True: each read begins at an offset that the
        source itself keeps, and the broker's answer says where it ends. False: a client keeps the position, and may
        skip records; then the engine checks gaps (`Holes`)."""
        ...

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Connect to the broker and join the group. Names that begin with ^ are patterns. Records of partitions that
        are not in `owners` are dropped; the others get their fence."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription while running."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records, and call the listener. Returns at the first record, and after `timeout_s` without one.

        A partition that was assigned in this call gives one record at most: the engine may want fewer records after a
        rebalance.
        """
        ...

    # In the next three methods each partition has its own answer. An error of one partition (its topic is gone, it has
    # no leader) is returned in its place, and unanswered partitions may be left out; the engine asks for both again,
    # and the others go on. An error that concerns all partitions is raised.
    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """A name for each partition's position in the store; a new one if the topic was deleted and created again."""
        ...

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """The group's committed offsets; None: there is none. An error or a timeout is never None."""
        ...

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """The starting offsets for a group without committed offsets (earliest, latest), as numbers, now."""
        ...

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs, by a request to the broker: the offset of the next record. Raises SourceError."""
        ...

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs without waiting: sends a request, and returns the answer in this or a later call, once;
        None: not yet. The answer is for the partitions of the call that sent the request. Raises SourceError."""
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit exactly these offsets; never blocks. A later poll passes the fate to `committed`.

        Inside `revoked`, the source must not release the partitions before the broker has answered, or a limit of its
        own has passed.
        """
        ...

    def set_back(self, partition: Partition, offset: int) -> None:
        """Begin to commit an offset to which the group goes back on purpose, as a tool's reset does: without holdfast's
        mark, if the broker's commits have metadata. The partition's next owner follows it, although the store has later
        records as done.

        Its fate is not passed to `committed`: the owner commits the same offset with the mark soon after, and must not
        take this answer for that one's. Where commits have no marks, the two are alike."""
        ...

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs, as far as known without a request to the broker; for reports."""
        ...

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The beginnings of the logs, as far as known without a request to the broker. If records were deleted before
        they were read, the beginning is known by the time the source delivers the records behind them."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from this offset. Raises SourceUnavailable: not possible yet."""
        ...

    def pause(self, partitions: Collection[Partition]) -> None:
        """Deliver no records of these partitions, and stay in the group."""
        ...

    def resume(self, partitions: Collection[Partition]) -> None:
        """Deliver records of these partitions again."""
        ...

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Leave the group. Called when all partitions are committed and released. Idempotent.

        A static member, which keeps its partitions during a restart, only closes its client, unless `leave` is true.
        """
        ...


@runtime_checkable
class ReachableSource(Protocol):
    """A source that can reach its brokers before it joins, so that later steps of the start know that they answer."""

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Connect to the brokers and look for the topics. Before `open`. Raises SourceError; UnknownTopic names all
        missing topics."""
        ...


@runtime_checkable
class RetryTopicsSource(Protocol):
    """A partitioned source that supports retry topics, which the app reads beside its own topics."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    def reads_all_of(self, topics: Collection[str]) -> None:
        """Read these topics from their first record if the group has no offset there, whatever the setting for other
        topics: this group has written their records. Before `open`."""
        ...


@runtime_checkable
class TransactionalSource(Protocol):
    """A partitioned source whose commits may be transactions: each writes what handlers have made of the records below
    its offsets (`Ownership.made`, see `Made`), together with these offsets, or nothing.

    There is one at a time: a commit that comes meanwhile gets `CommitFate.AGAIN`. `committed` gives no answer while
    one is under way: its offset may count or not.
    """

    @property
    def transactions_each_s(self) -> float | None:
        """Seconds between two transactions; None: commits are plain ones."""
        ...


def transactions_each_s(source: object) -> float | None:
    """Seconds between two transactions of a source; None: it has none."""
    return source.transactions_each_s if isinstance(source, TransactionalSource) else None


@runtime_checkable
class LeasedSource(Protocol):
    """A client whose records have a lease each. Methods raise SourceError if the broker refuses or does not answer."""

    @property
    def group(self) -> str:
        """The consumer group's name."""
        ...

    @property
    def lease_s(self) -> float:
        """How long a record stays hidden from other members after its delivery or extension, in seconds."""
        ...

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Connect to the broker. All records get this fence."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records. The source chooses their offsets, and never uses one twice in a partition."""
        ...

    def identity(self, record: Record) -> str:
        """An identity that is the same when the record is delivered again; claimed if the handler has no key."""
        ...

    def extend(self, records: Sequence[Record]) -> None:
        """Renew leases. Called three times a lease, also without records: then for received records that are not
        delivered yet. One thread calls it, so never twice at once for a record."""
        ...

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Acknowledge done records. Returns those whose lease had ended: the broker will deliver them again.

        A source may only begin to acknowledge here. Then it remembers the records until the broker has answered,
        acknowledges further deliveries without passing them on, and returns late records of earlier calls.
        """
        ...

    def release(self, records: Iterable[Record]) -> None:
        """Give unhandled records back, best effort: otherwise their leases end."""
        ...

    def drain(self) -> None:
        """Deliver no more records, and give back those that were received and not delivered: the app is leaving."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Complete requests under way, then leave. Idempotent. Records that are neither acknowledged nor released may
        still be running; their leases end."""
        ...


@runtime_checkable
class FixedLeaseSource(Protocol):
    """A leased source whose leases cannot be renewed, and whose broker drops a record that was delivered too often.

    The engine starts a record only while its handler's timeout fits into the rest of its lease, and gives it back
    before the lease ends. A record that has failed here, and would come back only to be refused, becomes a dead letter.
    """

    @property
    def spare_s(self) -> float:
        """Seconds that a record needs at the end of its lease, to be acknowledged or given back."""
        ...

    def left_s(self, record: Record) -> float:
        """Seconds until the record's lease ends; below 0: it has ended."""
        ...

    def deliveries_left(self, record: Record) -> int:
        """How often the broker would deliver the record again."""
        ...

    def refusal(self, record: Record) -> Exception | None:
        """Why no handler may get the record: the reason in its dead letter. None: handlers may get it."""
        ...


@runtime_checkable
class BatchedSource(Protocol):
    """A leased source whose client delivers batches one record after the other, and can give back only whole batches.

    Therefore the app completes begun batches before it leaves.
    """

    def wind_up(self) -> None:
        """Begin to leave: fetch no more, and deliver the rest of begun batches. Returns at once."""
        ...

    @property
    def wound_up(self) -> bool:
        """Whether no more records will be delivered."""
        ...


class Seen(NamedTuple):
    """A queue as the broker describes it."""

    #: The lowest offset in the log, and the offset of the next message.
    first: int
    end: int
    #: The group's offset: members have acknowledged all messages below; None: the group has none.
    committed: int | None
    #: Whether every message is delivered: no filter by tags.
    dense: bool


@runtime_checkable
class QueueLeasedSource(Protocol):
    """A leased source whose records come from queues that move between members without a report by the client."""

    @property
    def queue_lease_wait_s(self) -> float:
        """Seconds that a queue's first record waits for the member that has the queue. A callback of the client waits
        with it."""
        ...

    def queue(self, record: Record) -> Partition | None:
        """The record's queue, with its broker; None: not known. Does not wait."""
        ...

    def position_name(self, queue: Partition) -> str:
        """The name of the queue's position in the store."""
        ...

    def look(self, queue: Partition, deadline: Deadline) -> Seen:
        """Ask the broker for the queue. Raises SourceError."""
        ...


class DeadLetters(Protocol):
    """Sends records that failed for good to a dead letter topic."""

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Check at the start that the targets exist. Raises SourceError."""
        ...

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Send a letter; return when its broker has acknowledged it. Any thread. Raises DeadLetterError."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Close the connections."""
        ...


class Observer(Protocol):
    """Gets the app's events. The thread that runs the app calls it: return quickly. Its errors are logged."""

    def on_event(self, event: Event) -> None:
        """Take an event, one of `holdfast.plugin.events`."""
        ...
