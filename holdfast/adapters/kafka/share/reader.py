"""Reader: one share consumer and the thread that owns it: it polls, hands over, and tells the broker what became of it.

librdkafka 2.16 lets a client poll only when all of its last poll is acknowledged. So a reader has one poll's records in
hand at a time, and a slow one among them holds its reader up, but no other reader of the process.

A lock counts from the time at which the poll *before* was sent: its request may have stayed at the broker, and have
brought records while nobody polled.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaError, KafkaException, partition_of
from holdfast.adapters.kafka.quirks.header_names import headers_of
from holdfast.adapters.kafka.share.deliveries import Delivery, Said
from holdfast.errors import DeadLetterError, SourceError, SourceFatal
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.records import Partition, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.adapters.kafka._client import Message, ShareConsumer, TopicPartition
    from holdfast.adapters.kafka.share.deliveries import Answer, Deliveries, Held
    from holdfast.adapters.kafka.share.limits import Limits
    from holdfast.records import Fence
    from holdfast.runtime import Runtime, Thread

#: The longest call of a poll; a stop waits for it.
_POLL_S = 0.2
#: A request may have stayed so long at the broker (fetch.wait.max.ms): what a poll after a longer pause finds at once
#: may be as old as the pause.
_PAUSE_S = 0.5
#: How long the first answer waits for others: each commit is a request, and a write at the broker.
_GATHER_S = 0.005
_LOOK_S = 0.05
#: After an error that the client goes on with.
_AGAIN_S = 0.2
#: How long a commit waits for the broker; without an answer it is unknown what it did.
_COMMIT_S = 10.0


class Shares(Protocol):
    """The part of a source that its readers use. Any thread."""

    @property
    def fence(self) -> Fence:
        """The fence of all records."""
        ...

    def wanted(self) -> bool:
        """Whether the app takes records now."""
        ...

    def connect(self, number: int) -> ShareConsumer:
        """Make a client and subscribe. Raises SourceError."""
        ...

    def met(self, error: SourceError) -> None:
        """Note an error, for the app."""
        ...

    def rescue(self, held: Held) -> None:
        """Write a record into its dead letters. Raises DeadLetterError."""
        ...

    def lost(self, record: Record) -> None:
        """Report a record that nobody gets any more, since no dead letter could be written in time."""
        ...


class Reader:
    """One client. `join` and `end` are for other threads.

    Args:
        number: which of the source's clients.
        shares: the source.
        deliveries: the records in the process.
        limits: of the group.
        runtime: clock and threads.
        name: of its thread.
    """

    def __init__(
        self, number: int, shares: Shares, deliveries: Deliveries, *, limits: Limits, runtime: Runtime, name: str
    ) -> None:
        self._number, self._shares, self._deliveries, self._limits = number, shares, deliveries, limits
        self._runtime = runtime
        #: Ask for nothing more; and end, whatever is in hand.
        self.stopping, self._over = runtime.event(), runtime.event()
        #: Whether the group has let the client in, as far as it shows: records came, or no error for as long as an
        #: assignment takes.
        self.let_in = False
        #: Deliveries whose answer the client was not told.
        self._open = 0
        self._asked_at = self._returned_at = self._made_at = runtime.now()
        self._thread: Thread = runtime.spawn(self._run, name)

    def join(self, timeout_s: float) -> bool:
        """Wait for its end. Returns: whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def end(self) -> None:
        """End now: what has no answer is given back by the client as it leaves."""
        self.stopping.set()
        self._over.set()

    # ---- the thread
    def _run(self) -> None:
        failures = 0
        while not self.stopping.is_set():
            try:
                client = self._shares.connect(self._number)
            except SourceError as error:
                self._shares.met(error)
            else:
                failures = self._consume(client, failures)
            failures += 1
            self.stopping.wait(BACKOFF.wait_s(failures, SourceFatal(), self._runtime.random) or _LOOK_S)

    def _consume(self, client: ShareConsumer, failures: int) -> int:
        """Until the app leaves, or the client has ended. Returns: failures in a row."""
        self._asked_at = self._returned_at = self._made_at = self._runtime.now()
        try:
            while not self.stopping.is_set():
                if not self._shares.wanted():
                    self.stopping.wait(_LOOK_S)
                    continue
                if self._poll(client):
                    failures = 0
                self._finish(client)
        except KafkaException as error:
            self._shares.met(_ended_by(error.args[0]))
        except RuntimeError as error:  # the client's IllegalStateException: it and we do not agree on what is in hand
            self._shares.met(SourceFatal(f"consuming as client {self._number}: {error}"))
        except SourceError as error:
            self._shares.met(error)
        finally:
            self._close(client)
        return failures

    def _poll(self, client: ShareConsumer) -> bool:
        """Ask for records. Returns: whether there was no error. Raises KafkaException, SourceError: this client has
        ended."""
        now = self._runtime.now()
        paused = now - self._returned_at > _PAUSE_S
        asked_at, self._asked_at = self._asked_at, now
        try:
            messages = list(client.poll(0.0 if paused else _POLL_S))
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self._failed(error.args[0], "consuming")  # of one topic, and again at each poll
            self.stopping.wait(_AGAIN_S)
            return False
        self._returned_at = self._runtime.now()
        if messages:
            self._deliveries.arrived(self._read(messages, asked_at + self._limits.lock_s))
        self.let_in = self.let_in or bool(messages) or self._returned_at - self._made_at > self._limits.join_s
        return True

    def _read(self, messages: Iterable[Message], until: float) -> list[tuple[Record, Delivery]]:
        came, fence = [], self._shares.fence
        for message in messages:
            error = message.error()
            topic, number, offset = message.topic(), message.partition(), message.offset()
            if error is not None or topic is None or number is None or offset is None:
                if error is not None:
                    self._failed(error, f"consuming {topic or 'as a share group'}")
                continue
            fields = (
                Partition(topic, number),
                offset,
                message.key(),
                message.value(),
                headers_of(message),
                message.timestamp()[1],
                fence,
            )
            came.append((Record(*fields), Delivery(self._number, message, message.delivery_count() or 1, until)))
        self._open += len(came)
        return came

    def _failed(self, error: KafkaError, what: str) -> None:
        """An error in place of a record. Raises SourceError: this client has ended."""
        found = faults.as_source_error(error, what)
        if faults.cure_of(error) is faults.Cure.REBUILD:
            raise found
        self._shares.met(found)

    def _finish(self, client: ShareConsumer) -> None:
        """Tell the broker of all that the last poll brought, as it ends. Raises SourceError: the client has ended."""
        while self._open and not self._over.is_set():
            for held in self._deliveries.lapse(self._number):
                self._rescue(held)
            while self._deliveries.lost:
                self._shares.lost(self._deliveries.lost.popleft())
            answers = self._deliveries.answers(self._number, _LOOK_S)
            if answers and len(answers) < self._open:
                self._over.wait(_GATHER_S)
                answers = [*answers, *self._deliveries.answers(self._number, 0.0)]
            if answers:
                self._tell(client, answers)

    def _tell(self, client: ShareConsumer, answers: Sequence[Answer]) -> None:
        self._open -= len(answers)
        for answer in answers:
            with suppress(RuntimeError):  # IllegalStateException: not in the client's hand any more
                client.acknowledge(answer.delivery.message, answer.kind)
        try:
            replies: Mapping[TopicPartition, Any] = client.commit_sync(_COMMIT_S)
        except KafkaException as error:
            self._deliveries.told(answers, {})
            self._failed(error.args[0], "acknowledging")
            return
        self._deliveries.told(answers, {partition_of(each): _said(error) for each, error in replies.items()})

    def _rescue(self, held: Held) -> None:
        try:
            self._shares.rescue(held)
        except DeadLetterError as error:
            self._shares.met(SourceFatal(str(error)))
        else:
            self._deliveries.rescued(held)

    def _close(self, client: ShareConsumer) -> None:
        """Leave the group: the broker gives others at once what has no answer. What was to be said is said first."""
        try:
            if answers := self._deliveries.answers(self._number, 0.0):
                self._tell(client, answers)
        except SourceError as error:
            self._shares.met(error)
        self._deliveries.forget(self._number)
        self._open = 0
        try:
            client.close()
        except KafkaException as error:
            self._shares.met(faults.as_source_error(error.args[0], "leaving the share group"))


def _ended_by(error: KafkaError) -> SourceError:
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return SourceError(
            f"{error.str()}: the brokers have a consumer group of that name, or no share groups (share.version=1 from "
            "4.2 on): choose another group.id"
        )
    return faults.as_source_error(error, "consuming as a share group")


def _said(error: KafkaException | None) -> Said:
    if error is None:
        return Said.TAKEN
    late = error.args[0].code() == KafkaError.INVALID_RECORD_STATE
    return Said.LATE if late else Said.UNKNOWN
