"""TransactionalProducer: one producer, and how each of its transactions has ended. One thread.

| the client says | what is done |
|---|---|
| retriable | the same call again, until the deadline |
| the transaction requires an abort; or it has refused an output | abort; the outputs stay, for a later transaction |
| fatal, no answer by the deadline, an abort that fails | `Ending.UNKNOWN`: this producer is finished |

A producer is replaced that has aborted a transaction, or has met trouble in one that ended well (`finished`):

- A broker that has forgotten its id (transactional.id.expiration.ms) lets it abort, and takes nothing of it any more.
- librdkafka repeats a slow EndTxn by itself, and a broker may execute a copy that was late while the next transaction
  is open, which it then ends too early (its issue 5423, for brokers' transactions below version 2, which are all that
  it speaks). The copies of a producer that was replaced are fenced.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.kafka._client import KafkaError, KafkaException, Producer
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka._client import Message, TopicPartition
    from holdfast.plugin.handling.outputs import Output
    from holdfast.timing import Deadline

#: A transaction whose end takes longer counts as trouble.
_SLOW_S = 1.0
#: How long a full queue is waited for at a time, and the shortest timeout of a call.
_FULL_S, _LEAST_S = 0.05, 0.1


class Ending(Enum):
    """How a transaction has ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  #: the next producer of the same name ends it; then the group's offsets say what became of it


class Work(NamedTuple):
    """The content of one transaction: all of it is written, or nothing."""

    outputs: Sequence[Output]
    #: With our mark in their metadata.
    offsets: list[TopicPartition]
    #: The consumer's group metadata, of when the offsets were taken.
    member: Any


class Ended(NamedTuple):
    """The end of a transaction."""

    how: Ending
    #: Why it was not committed.
    error: KafkaError | None = None
    #: The topic of the output that was refused, if one was.
    topic: str | None = None


class TransactionalProducer:
    """Args: conf: as for `confluent_kafka.Producer`. Raises KafkaException: the client refuses it."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        #: The client's last error, such as a connection that broke.
        self.met: KafkaError | None = None
        #: Another producer is to be made before the next transaction.
        self.finished = False
        self._refused: tuple[KafkaError, str] | None = None
        self._producer = Producer({**conf, "error_cb": self._told, "delivery.report.only.error": True})

    def begin(self, deadline: Deadline) -> None:
        """Fence former producers of the same name, and have their last transaction ended. Raises KafkaException."""
        self._repeat(self._producer.init_transactions, deadline)
        self.met = None  # connections that were tried in vain before

    def serve(self) -> None:
        """Serve the client's callbacks, between two transactions."""
        self._producer.poll(0)
        self.finished = self.finished or self.met is not None

    def run(self, work: Work, deadline: Deadline) -> Ended:
        """Run a transaction from begin to end."""
        self._refused = None
        try:
            self._producer.begin_transaction()
            for output in work.outputs:
                self._produce(output, deadline)
            self._repeat(
                lambda left: self._producer.send_offsets_to_transaction(work.offsets, work.member, left), deadline
            )
            began = SYSTEM_CLOCK.now()
            self._repeat(self._producer.commit_transaction, deadline)
        except KafkaException as error:
            ended = self._failed(error.args[0], deadline)
        else:
            ended = Ended(Ending.COMMITTED)
            self.finished = SYSTEM_CLOCK.now() - began > _SLOW_S
        self.finished = self.finished or self.met is not None or ended.how is not Ending.COMMITTED
        return ended

    # ---- inside
    def _produce(self, output: Output, deadline: Deadline) -> None:
        while True:
            try:
                self._producer.produce(
                    output.topic,
                    value=output.value,
                    key=output.key,
                    headers=output.headers or None,  # type: ignore[arg-type]  # its list is invariant; None values are allowed
                    on_delivery=self._not_delivered,
                )
            except BufferError:
                self._producer.poll(min(_FULL_S, deadline.left_s()))
                if deadline.passed:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None  # noqa: SLF001 - librdkafka's name
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - as above
                    self._refused = self._refused or (error.args[0], output.topic)
                raise
            else:
                return

    def _failed(self, error: KafkaError, deadline: Deadline) -> Ended:
        fatal = error.fatal() or error.retriable()
        refused, topic = self._refused or (error, None)
        if fatal or not self._aborted(deadline):
            return Ended(Ending.UNKNOWN, refused, topic)
        # Callbacks of outputs come with the abort too.
        refused, topic = self._refused or (refused, topic)
        return Ended(Ending.ABORTED, refused, topic)

    def _aborted(self, deadline: Deadline) -> bool:
        try:
            self._repeat(self._producer.abort_transaction, deadline)
        except KafkaException as error:
            self.met = error.args[0]
            return False
        return True

    @staticmethod
    def _repeat(call: Callable[[float], object], deadline: Deadline) -> None:
        """Call until it does not say that it may be repeated. Raises KafkaException: an error, or the last that may."""
        while True:
            try:
                call(max(_LEAST_S, deadline.left_s()))
            except KafkaException as error:
                if not error.args[0].retriable() or deadline.passed:
                    raise
            else:
                return

    def _not_delivered(self, error: KafkaError | None, message: Message) -> None:
        # Purged ones are those of an abort that has another cause.
        purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 - as above
        if error is not None and self._refused is None and error.code() not in purged:
            self._refused = error, message.topic() or ""

    def _told(self, error: KafkaError) -> None:
        self.met = error
