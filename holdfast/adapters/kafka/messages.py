"""The source of a loop that is not ours: it gives the client's own messages, and calls the loop's own callbacks."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaError, Message, TopicPartition
from holdfast.adapters.kafka.callbacks import Callbacks, partitions_of, topic_partitions
from holdfast.adapters.kafka.first_look import FirstLook
from holdfast.adapters.kafka.loop_commits import LoopCommits
from holdfast.adapters.kafka.offsets import BEGINNING, END, ENDS, TAIL, offsets_at
from holdfast.adapters.kafka.quirks.header_names import headers_of
from holdfast.adapters.kafka.source import KafkaSource
from holdfast.adapters.kafka.starting_offsets import OF_A_LOOP
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
    """For `tuple.__new__`, in this order."""

    partition: Partition
    offset: int
    fence: Fence
    message: Message
    #: The value's, as the client counts it (before anybody deserialises it), and the headers' where messages have some:
    #: the key is not fetched for that.
    size_bytes: int


class MessageRecord(_Fields):
    """A message in the place of a `Record`: what the engine asks of it is looked up in the message when it is asked. A
    NamedTuple for the reason that a `Record` is one."""

    #: Why the message could not be deserialised, or has no key; raised when it is its turn.
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
        """The headers as a list, also where there are none."""
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
    """The loop's own callbacks, each at its moment: on_revoke before anything is fenced, on_assign when all is taken
    over and `assignment()` tells it, on_lost before the rest. What they raise is raised by the call around them."""

    def __init__(self, group: str, brokers: str) -> None:
        super().__init__(group, brokers)
        #: What the loop's callbacks get as their consumer.
        self.facade: Any = None
        self.user: dict[str, Callable[..., object] | None] = {}
        #: The first of what they raised.
        self.raised: Exception | None = None
        #: Where on_assign wants partitions to begin, by its own assign call; None = not inside of on_assign.
        self.wanted: list[TopicPartition] | None = None
        #: Which partitions on_assign has assigned itself; None = it leaves that to us.
        self.chosen: list[Partition] | None = None
        #: Told of partitions that came, and what on_assign has said: where to begin, and which it has chosen.
        self.settled: Callable[[Sequence[Partition], Sequence[TopicPartition], Sequence[Partition] | None], None]
        self.settled = lambda *_: None
        self.commits = LoopCommits()

    def on_assign(self, consumer: Consumer, came: list[TopicPartition]) -> None:
        """Take over, then tell the loop; where it says another offset, that is a reset."""
        super().on_assign(consumer, came)
        self.wanted, self.chosen = [], None
        self._call("on_assign", self.facade, [TopicPartition(one.topic, one.partition, one.offset) for one in came])
        wanted, self.wanted = self.wanted, None
        self._guarded(lambda: self.settled(partitions_of(came), wanted, self.chosen))

    def on_revoke(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """The loop's last chance to say what is done, then the hand-over."""
        try:
            self._call("on_revoke", self.facade, list(gone))
        finally:
            super().on_revoke(consumer, gone)
            self.commits.gone(partitions_of(gone))

    def on_lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Call on_revoke where there is no on_lost, as the client does."""
        try:
            self._call("on_lost" if self.user.get("on_lost") else "on_revoke", self.facade, list(gone))
        finally:
            super().on_lost(consumer, gone)
            self.commits.gone(partitions_of(gone))

    def given_up(self) -> None:
        """Tell the loop as of any loss."""
        if self.assigned:
            gone = topic_partitions(sorted(self.assigned))
            self._call("on_lost" if self.user.get("on_lost") else "on_revoke", self.facade, gone)
        self.commits.gone(self.assigned)
        super().given_up()

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """The engine first. The loop is told of its own commits."""
        super().on_commit(error, offsets)
        if told := self.commits.told(offsets):
            self._call("on_commit", error, told)

    def not_committed(self, error: KafkaError, offsets: list[TopicPartition]) -> None:
        """A commit of the loop's that did not even leave the client."""
        self._call("on_commit", error, offsets)

    def applications(self, _: str, call: Callable[..., object]) -> Callable[..., object]:
        """A loop may end by what its error_cb raises."""
        return lambda *args: self._guarded(lambda: call(*args))

    def leaving(self) -> None:
        """The loop leaves: on_revoke now, while what it commits still counts, and nothing of the loop's later. In the
        client's own close() a commit may hang, or be refused."""
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
        except Exception as error:  # noqa: BLE001 - leaving the callback, it would take messages with it
            self.raised = self.raised or error


class MessageSource(KafkaSource):
    """A `KafkaSource` whose records are the client's messages, and whose client is there before it joins.

    Args:
        conf: as for `KafkaSource`, without what the loop says by other means.
        assignment: as for `KafkaSource`; this and the next two.
        static_id: as there.
        leave: as there.
        on_commit: the loop's own.
        ends_told: whether the loop has asked for the ends of partitions (enable.partition.eof).
        deserialise: changes a message in place; what it raises is kept for the loop.
    """

    #: In the audit's events: the class that users know.
    known_as = "KafkaConsumer"
    _begins_by_default = OF_A_LOOP

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        assignment: Assignment | None,
        static_id: str | Callable[[], str] | None,
        leave: bool,
        on_commit: Callable[..., object] | None,
        ends_told: bool,
        deserialise: Callable[[Message], None] | None,
    ) -> None:
        super().__init__(conf, assignment=assignment, static_id=static_id, leave=leave)
        self._callbacks: UserCallbacks = UserCallbacks(self._checked.group, self._checked.bootstrap)
        self._callbacks.user["on_commit"] = on_commit
        self._mark.note = self._callbacks.commits.note
        self._first_look = FirstLook(self.group, self._checked.conf, self._starting_offsets)
        self._ends_told, self._deserialise = ends_told, deserialise
        #: Messages that carry an error, for the loop.
        self.told: deque[Message] = deque()
        #: Some of the messages have headers; and how many came since one was looked at.
        self._weighs_headers, self._unlooked = False, 0
        #: Of partitions without an offset, where none may be chosen: at which assignment that was seen, and whether the
        #: loop was told.
        self._unsaid: dict[Partition, tuple[int, bool]] = {}

    @property
    def callbacks(self) -> UserCallbacks:
        """Where the loop's callbacks are."""
        return self._callbacks

    @property
    def client(self) -> Consumer:
        """For what is the client's alone. Raises SourceUnavailable: it is being rebuilt."""
        return self._client_or_raise()

    def assignment(self) -> list[TopicPartition]:
        """The client's; nothing while it is being rebuilt."""
        return [] if self._consumer is None else self._consumer.assignment()

    def build(self, deadline: Deadline) -> None:
        """Make the client, which a loop may use before it joins. Raises SourceError."""
        self._make_client(deadline)

    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Nothing: a loop's subscribe() waits for no broker, and its topics may come later, as with the client."""

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,  # noqa: ARG002 - the port's
    ) -> None:
        """Join: waits for no broker. Topics that do not exist (yet) are no error, as with the client itself."""
        self._topics, self._callbacks.listener, self._owners = list(topics), listener, owners
        self._first_look.begin(self._topics)
        self._join()

    def subscribe(self, topics: Collection[str]) -> None:
        """Ask for other topics from now on. Waits for no broker."""
        self._topics = list(topics)
        self._first_look.begin(self._topics)
        self._join()

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """Where the group begins: known once the look is over that began with the subscription.

        With auto.offset.reset=error that is for on_assign to say. Of a partition of which it says nothing the loop gets
        a message with _AUTO_OFFSET_RESET, once, as from the client; the others go on.
        """
        if not self._starting_offsets.chosen:
            return self._unsaid_offsets(partitions)
        self._first_look.wait(deadline)
        found = super().first_offsets(partitions, deadline)
        begins = {partition: offset for partition, offset in found.items() if isinstance(offset, int)}
        self._callbacks.commits.adopts(begins, begins=True)
        return found

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """Read the offsets; of one that is not ours, the engine's first commit is not the loop's."""
        found = super().committed(partitions, deadline)
        foreign = {each: one.offset for each, one in found.items() if isinstance(one, Committed) and not one.ours}
        self._callbacks.commits.adopts(foreign, begins=False)
        return found

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit."""
        self._callbacks.commits.goes(offsets)
        super().commit(offsets)

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Close as `KafkaSource` does."""
        self._first_look.end()
        super().close(deadline, leave=leave)

    def unsubscribe(self) -> None:
        """Leave the group; what was assigned is revoked in a poll to come."""
        self._unowned = None  # it would join again
        # While it joins for the first time it has nothing to leave with yet: that is said when it is closed.
        self._subscribed = self._subscribed and not self.in_group
        self._callbacks.in_group = False
        self.client.unsubscribe()

    def _unsaid_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, SourceError]:
        found: dict[Partition, SourceError] = {}
        assignment = self._callbacks.assignments
        for partition in partitions:
            asked, told = self._unsaid.get(partition, (-1, False))
            if asked != assignment:
                self._unsaid[partition] = (assignment, False)  # on_assign is called after this
                continue
            if not told:
                self._unsaid[partition] = (assignment, True)
                self.told.append(_no_offset(partition))
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
        """Whether headers count in what the records weigh. Asking each message would cost a tenth of its way, and most
        have none: so one of some is asked, and all from the first that has some."""
        self._unlooked += len(messages)
        if not self._weighs_headers and self._unlooked >= _LOOKED_AT_ONE_OF:
            self._unlooked = 0
            self._weighs_headers = any(map(headers_of, messages[::_LOOKED_AT_ONE_OF]))
        return self._weighs_headers

    def _told_error(self, message: Message, error: KafkaError) -> bool:
        """Keep it for the loop. False = nothing that comes behind it may be read."""
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            if self._ends_told:
                self.told.append(message)
            return True
        self.told.append(message)
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
        # A topic that is missing or closed to us is the loop's to judge, which gets the message: the client goes on.
        if faults.is_about_a_topic(error):
            self._callbacks.met(error, what)  # told now and then: many loops pass over what carries an error
            return True
        return super()._failed(error, what)

    # ---- for the loop's own calls
    def commit_now(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        """Commit and wait for the answer, as long as the client does. Raises KafkaException."""
        commits = self._callbacks.commits
        commits.goes(offsets)
        replies = self.client.commit(offsets=self._mark.on(offsets), asynchronous=False)
        return [commits.shown(reply) for reply in replies]

    def resolve(self, partition: Partition, offset: int, deadline: Deadline) -> int:
        """An offset as a number, where it may be one of the client's own places. Raises SourceError."""
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
    except Exception as failure:  # noqa: BLE001 - raised when it is this message's turn
        return failure
    return None
