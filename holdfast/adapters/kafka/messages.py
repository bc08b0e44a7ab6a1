"""The source of a user's own loop: its records are the client's messages, and it calls the loop's callbacks."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaError, Message, TopicPartition, partitions_of, topic_partitions
from holdfast.adapters.kafka.callbacks import Callbacks
from holdfast.adapters.kafka.first_look import FirstLook
from holdfast.adapters.kafka.loop_commits import LoopCommits
from holdfast.adapters.kafka.offsets import BEGINNING, END, ENDS, TAIL, offsets_at
from holdfast.adapters.kafka.quirks.header_names import headers_of
from holdfast.adapters.kafka.source import KafkaSource
from holdfast.adapters.kafka.starting_offsets import LOOP_DEFAULT
from holdfast.errors import SourceUnavailable
from holdfast.plugin.ports import Batch, Committed, End
from holdfast.records import Partition, size_of_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.config import Assignment
    from holdfast.errors import SourceError
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Fence, Record
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")

_LOOKED_AT_ONE_OF = 16


class _Fields(NamedTuple):
    """The fields of a `MessageRecord`, in the order for `tuple.__new__`."""

    partition: Partition
    offset: int
    fence: Fence
    message: Message
    #: Bytes of the value as the client counts them (before it is deserialised), and of the headers, if messages have
    #: some. Without the key, which would have to be fetched for that.
    size_bytes: int


class MessageRecord(_Fields):
    """A message in the place of a `Record`: its properties are read from the message when they are needed. A NamedTuple
    for the same reason as `Record`."""

    #: Why the message could not be deserialised, or has no key; raised when the message would be returned.
    failure: Exception | None = None

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.topic

    @property
    def key(self) -> Any:  # noqa: ANN401 - bytes, or what the deserialiser made of them
        """The message's key."""
        return self.message.key()

    @property
    def value(self) -> Any:  # noqa: ANN401 - as above
        """The message's value."""
        return self.message.value()

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers as a sequence; empty = there are none."""
        return headers_of(self.message)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; -1 = not known."""
        return self.message.timestamp()[1]

    @property
    def cancelled(self) -> bool:
        """True once this process no longer owns the record."""
        return self.fence.cancelled


class UserCallbacks(Callbacks):
    """The loop's own callbacks: on_revoke is called before anything is fenced, on_assign when the partitions are taken
    over and in `assignment()`, on_lost before the engine. The call around them raises what they raise."""

    def __init__(self, group: str, brokers: str) -> None:
        super().__init__(group, brokers)
        #: The consumer that the loop's callbacks get.
        self.facade: Any = None
        self.user: dict[str, Callable[..., object] | None] = {}
        #: The first exception that they have raised.
        self.raised: Exception | None = None
        #: Offsets that on_assign has given, by `assign` or `seek`; None = on_assign is not running.
        self.wanted: list[TopicPartition] | None = None
        #: The partitions that on_assign has assigned by itself; None = it has called no assign.
        self.chosen: list[Partition] | None = None
        #: Called after on_assign with the assigned partitions, `wanted` and `chosen`.
        self.settled: Callable[[Sequence[Partition], Sequence[TopicPartition], Sequence[Partition] | None], None]
        self.settled = lambda *_: None
        self.commits = LoopCommits()

    def on_assign(self, consumer: Consumer, came: list[TopicPartition]) -> None:
        """Take the partitions over, then call the loop's on_assign; another offset that it gives is a reset."""
        super().on_assign(consumer, came)
        self.wanted, self.chosen = [], None
        self._call("on_assign", self.facade, [TopicPartition(one.topic, one.partition, one.offset) for one in came])
        wanted, self.wanted = self.wanted, None
        self._guarded(lambda: self.settled(partitions_of(came), wanted, self.chosen))

    def on_revoke(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Call the loop's on_revoke, in which it may still report records as done; then hand over."""
        try:
            self._call("on_revoke", self.facade, list(gone))
        finally:
            super().on_revoke(consumer, gone)
            self.commits.revoked(partitions_of(gone))

    def on_lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Call the loop's on_lost; without one its on_revoke, as the client does."""
        try:
            self._call("on_lost" if self.user.get("on_lost") else "on_revoke", self.facade, list(gone))
        finally:
            super().on_lost(consumer, gone)
            self.commits.revoked(partitions_of(gone))

    def given_up(self) -> None:
        """Call the loop's on_lost, as for any loss."""
        if self.assigned:
            gone = topic_partitions(sorted(self.assigned))
            self._call("on_lost" if self.user.get("on_lost") else "on_revoke", self.facade, gone)
        self.commits.revoked(self.assigned)
        super().given_up()

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Note the outcome for the engine, then call the loop's on_commit, if the commit was its own."""
        super().on_commit(error, offsets)
        if told := self.commits.for_loop(offsets):
            self._call("on_commit", error, told)

    def not_committed(self, error: KafkaError, offsets: list[TopicPartition]) -> None:
        """Call the loop's on_commit for a commit that was not sent."""
        self._call("on_commit", error, offsets)

    def applications(self, _: str, call: Callable[..., object]) -> Callable[..., object]:
        """Wrap a callback so that the call around it raises its exception: a loop may end that way."""
        return lambda *args: self._guarded(lambda: call(*args))

    def leaving(self) -> None:
        """Call on_revoke before the client closes, and none but on_commit afterwards: in the client's own close() a
        commit of the loop may hang, or be refused."""
        if self.assigned:
            self._call("on_revoke", self.facade, topic_partitions(sorted(self.assigned)))
        self.user = {name: call for name, call in self.user.items() if name == "on_commit"}

    def _call(self, name: str, *args: object) -> None:
        call = self.user.get(name)
        if call is not None:
            self._guarded(lambda: call(*args))

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - an exception that leaves the callback loses messages
            self.raised = self.raised or error


class MessageSource(KafkaSource):
    """A `KafkaSource` whose records are the client's messages, and whose client exists before it joins.

    Args:
        conf: as for `KafkaSource`, without the properties that `loop_config.read` has taken out.
        assignment: as for `KafkaSource`; this and the next two.
        static_id: as there.
        leave: as there.
        on_commit: the loop's own.
        wants_ends: whether the loop has asked for the ends of partitions (enable.partition.eof).
        deserialise: changes a message in place; its exception is kept for the loop.
    """

    #: The name of this source in audit events: the class that users know.
    known_as = "KafkaConsumer"
    _begins_by_default = LOOP_DEFAULT

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        assignment: Assignment | None,
        static_id: str | Callable[[], str] | None,
        leave: bool,
        on_commit: Callable[..., object] | None,
        wants_ends: bool,
        deserialise: Callable[[Message], None] | None,
    ) -> None:
        super().__init__(conf, assignment=assignment, static_id=static_id, leave=leave)
        self._callbacks: UserCallbacks = UserCallbacks(self._checked.group, self._checked.bootstrap)
        self._callbacks.user["on_commit"] = on_commit
        self._mark.note = self._callbacks.commits.note
        self._first_look = FirstLook(self.group, self._checked.conf, self._starting_offsets)
        self._wants_ends, self._deserialise = wants_ends, deserialise
        #: Messages that carry an error, for the loop.
        self.error_messages: deque[Message] = deque()
        #: Whether messages have headers; and how many messages came since some were checked.
        self._weighs_headers, self._unlooked = False, 0
        #: Partition without an offset, under auto.offset.reset=error -> the assignment at which this was seen, and
        #: whether the loop has got the error.
        self._without_offset: dict[Partition, tuple[int, bool]] = {}

    @property
    def callbacks(self) -> UserCallbacks:
        """The loop's callbacks."""
        return self._callbacks

    @property
    def client(self) -> Consumer:
        """The client, for calls that do not concern the engine. Raises SourceUnavailable: it is being rebuilt."""
        return self._client_or_raise()

    def assignment(self) -> list[TopicPartition]:
        """The client's assignment; empty while it is being rebuilt."""
        return [] if self._consumer is None else self._consumer.assignment()

    def build(self, deadline: Deadline) -> None:
        """Make the client, which a loop may use before it joins. Raises SourceError."""
        self._make_client(deadline)

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Do nothing: a loop's subscribe() waits for no broker, and its topics may be created later, as with the
        client."""

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,  # noqa: ARG002 - the port's
    ) -> None:
        """Join, without waiting for a broker. Topics that do not exist (yet) are no error, as with the client
        itself."""
        self._topics, self._callbacks.listener, self._owners = list(topics), listener, owners
        self._first_look.begin(self._topics)
        self._join()

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to other topics from now on. Waits for no broker."""
        self._topics = list(topics)
        self._first_look.begin(self._topics)
        self._join()

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """The offsets at which the group begins. Waits for the look that began with the subscription.

        With auto.offset.reset=error on_assign has to give them. For a partition without one the loop gets a message
        with _AUTO_OFFSET_RESET, once, as from the client; the other partitions go on.
        """
        if not self._starting_offsets.chosen:
            return self._missing_offsets(partitions)
        self._first_look.wait(deadline)
        found = super().first_offsets(partitions, deadline)
        begins = {partition: offset for partition, offset in found.items() if isinstance(offset, int)}
        self._callbacks.commits.adopted(begins, begins=True)
        return found

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """Read the committed offsets. If one has no mark of ours, the engine's first commit there is not reported to
        the loop."""
        found = super().committed(partitions, deadline)
        foreign = {each: one.offset for each, one in found.items() if isinstance(one, Committed) and not one.ours}
        self._callbacks.commits.adopted(foreign, begins=False)
        return found

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit."""
        self._callbacks.commits.sent(offsets)
        super().commit(offsets)

    def set_back(self, partition: Partition, offset: int) -> None:
        """Begin to commit, without a mark."""
        self._callbacks.commits.sent({partition: offset})
        super().set_back(partition, offset)

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Close as `KafkaSource` does."""
        self._first_look.end()
        super().close(deadline, leave=leave)

    def unsubscribe(self) -> None:
        """Leave the group; a later poll revokes the assigned partitions."""
        self._unowned = None  # it would join again
        # A client in its first join has no member id to leave with: `close` tells the broker then.
        self._subscribed = self._subscribed and not self.in_group
        self._callbacks.in_group = False
        self.client.unsubscribe()

    def _missing_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, SourceError]:
        found: dict[Partition, SourceError] = {}
        assignment = self._callbacks.assignments
        for partition in partitions:
            asked, told = self._without_offset.get(partition, (-1, False))
            if asked != assignment:
                self._without_offset[partition] = (assignment, False)  # on_assign is called after this
                continue
            if not told:
                self._without_offset[partition] = (assignment, True)
                self.error_messages.append(_no_offset(partition))
            found[partition] = SourceUnavailable("the group has no offset, and auto.offset.reset=error: seek to one")
        return found

    def _sort(self, messages: list[Message], batch: Batch) -> Batch:
        records, ends = list(batch.records), list(batch.ends)
        weighs_headers = self._looks_for_headers(messages)
        owners, known, new, deserialise = self._owners, self._partitions, tuple.__new__, self._deserialise
        at, partition, fence = ("", -1), Partition("", -1), None
        for message in cast("Sequence[Any]", messages):  # as in KafkaSource
            error = message.error()
            if error is not None and not self._told_error(message, error):
                break
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                continue
            if (where := (message.topic(), message.partition())) != at:
                at = where
                partition = known.setdefault(where, Partition(*where))
                fence = owners.get(partition)
            if error is not None:
                ends.append(End(partition, message.offset()))
            elif fence is not None:
                size = len(message) + (size_of_headers(headers_of(message)) if weighs_headers else 0)
                record = new(MessageRecord, (partition, message.offset(), fence, message, size))
                if deserialise is not None:
                    record.failure = _failure(deserialise, message)
                records.append(cast("Record", record))
        return Batch(records, ends)

    def _looks_for_headers(self, messages: Sequence[Message]) -> bool:
        """Whether headers count in the records' sizes. To ask each message would cost a tenth of its processing, and
        most have none. Therefore one in 16 is asked; once one has headers, all are."""
        self._unlooked += len(messages)
        if not self._weighs_headers and self._unlooked >= _LOOKED_AT_ONE_OF:
            self._unlooked = 0
            self._weighs_headers = any(map(headers_of, messages[::_LOOKED_AT_ONE_OF]))
        return self._weighs_headers

    def _told_error(self, message: Message, error: KafkaError) -> bool:
        """Keep a message with an error for the loop. False = the messages after it may not be read."""
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            if self._wants_ends:
                self.error_messages.append(message)
            return True
        self.error_messages.append(message)
        return self._failed(error, f"consuming {message.topic() or self._topics}")

    def _failed(self, error: KafkaError, what: str) -> bool:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001 - librdkafka's name
            _log.warning(
                "the loop of %s did not poll for max.poll.interval.ms=%d: the group goes on without it, and what it "
                "has in hand may run again elsewhere. Poll more often (fewer records a poll), raise the interval, or "
                "let Holdfast(KafkaSource(...)) poll while handlers run",
                self.group,
                self._checked.max_poll_ms,
            )
        # The loop gets the message about a missing or forbidden topic, and decides what to do. The client goes on.
        if faults.is_about_a_topic(error):
            self._callbacks.met(error, what)  # also logged from time to time: many loops ignore messages with an error
            return True
        return super()._failed(error, what)

    # ---- for the loop's own calls
    def commit_now(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        """Commit and wait for the answer, as long as the client does. Raises KafkaException."""
        commits = self._callbacks.commits
        commits.sent(offsets)
        replies = self.client.commit(offsets=self._mark.marked(offsets), asynchronous=False)
        return [commits.without_mark(reply) for reply in replies]

    def resolve(self, partition: Partition, offset: int, deadline: Deadline) -> int:
        """Return an offset as a number; it may be one of the client's special values. Raises SourceError."""
        if offset >= 0:
            return offset
        if offset > TAIL:
            return offsets_at(self.client, [partition], offset, deadline, ENDS)[partition]
        first, end = (self.resolve(partition, one, deadline) for one in (BEGINNING, END))
        return max(first, end - (TAIL - offset))


def _no_offset(partition: Partition) -> Message:
    code = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - librdkafka's name
    error = KafkaError(code, "no previously committed offset available: Local: No offset stored")
    return Message(topic=partition.topic, partition=partition.number, error=error)


def _failure(deserialise: Callable[[Message], None], message: Message) -> Exception | None:
    try:
        deserialise(message)
    except Exception as failure:  # noqa: BLE001 - raised when this message would be returned
        return failure
    return None
