"""Dead letters in a Kafka topic, read and sent back: `tools.ports.DeadLetterTool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    topic_partitions,
)
from holdfast.adapters.kafka.admin import refused, request_s
from holdfast.adapters.kafka.callbacks import client_log
from holdfast.adapters.kafka.dead_letter import REFUSALS, TOO_LARGE, packing_conf, producer_conf
from holdfast.adapters.kafka.faults import Cure, cure_of
from holdfast.adapters.kafka.quirks.header_names import headers_of
from holdfast.adapters.kafka.tools.topics import TopicView
from holdfast.adapters.kafka.topic_keeping import keeping_of
from holdfast.errors import DeadLetterError, DeadLetterRefused, NotAuthorised, SourceUnavailable
from holdfast.plugin.retrying.dead_letter import theirs
from holdfast.plugin.retrying.keeping import Keeping
from holdfast.records import Partition, Record
from holdfast.tools.ports import NoFence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.adapters.kafka._client import Message
    from holdfast.timing import Deadline
    from holdfast.tools.ports import Outgoing

#: The group.id under which letters are read, and the first part of the names of what is remembered of a replay.
REPLAY = "holdfast-replay"
_BATCH = 100
_READ = 500
_READ_S = 0.2
_POLL_S = 0.1


class KafkaDeadLetterTool(TopicView):
    """Reads dead letters and sends them back. One thread. Needs READ on the letters' topic, and WRITE on the
    targets."""

    def __init__(self, conf: Mapping[str, object]) -> None:
        super().__init__(conf, REPLAY)
        self._conf = conf
        #: Whether it compresses -> the producer.
        self._producers: dict[bool, Producer] = {}

    def read(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[Record]]:
        """Read each partition from its start up to its end. Raises SourceError."""
        open_ = {partition for partition in starts if starts[partition] < ends[partition]}
        if not open_:
            return
        self.consumer.assign(topic_partitions(sorted(open_), starts))
        silent_s = 0.0  # adds up empty polls, since the caller may take its time between two polls
        while open_:
            messages = self.consumer.consume(_READ, _READ_S)
            self._shield.raise_kept()
            records: list[Record] = []
            for message in messages:
                self._take(message, ends, open_, records)
            silent_s = 0.0 if messages else silent_s + _READ_S
            self._look(silent_s, patience_s)
            yield records
        self.consumer.unassign()

    def _take(
        self, message: Message, ends: Mapping[Partition, int], open_: set[Partition], records: list[Record]
    ) -> None:
        """Take one message: a record goes into `records`; a partition that is read to its end leaves `open_`."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            if cure_of(error) is not Cure.CLIENT:
                raise faults.as_source_error(error, f"reading letters at {self.where}")
            return
        topic, number, offset = cast("tuple[str, int, int]", (message.topic(), message.partition(), message.offset()))
        partition = Partition(topic, number)
        if partition not in open_:
            return
        # The end of a partition is that of the replica which was read: it may be lower than the leader's.
        if offset >= ends[partition] - (error is None):
            open_.discard(partition)
        if error is None and offset < ends[partition]:
            key, value, sent_ms = message.key(), message.value(), message.timestamp()[1]
            records.append(Record(partition, offset, key, value, headers_of(message), sent_ms, NoFence()))

    def _look(self, silent_s: float, patience_s: float) -> None:
        """Raise errors that waiting does not cure, and a silence that lasts too long."""
        for error in self.errors:
            if cure_of(error) is Cure.PERSON:
                raise faults.as_source_error(error, f"reading letters at {self.where}")
        if silent_s > patience_s:
            met = f" ({self.errors[-1].str()})" if self.errors else ""
            raise SourceUnavailable(f"reading letters at {self.where}: nothing came in {patience_s:g} s{met}")

    def send(self, letters: Sequence[Outgoing], deadline: Deadline) -> Sequence[DeadLetterError | None]:
        """Produce, and wait for every answer. Raises SettingError: librdkafka refuses the configuration."""
        answers = self._produce(letters, deadline)
        # The broker's limit is for the client's batch: one letter that is too large makes its neighbours fail, and
        # small letters together may exceed a low limit. Refused letters are not written, so each is sent again alone. A
        # letter that is too large alone may have been compressed when its record was first sent, and its topic has
        # taken the record without the headers that a letter adds.
        for bare, packed in ((False, False), (False, True), (True, False), (True, True)):
            for index, answer in enumerate(answers):
                if isinstance(answer, KafkaError) and answer.code() in TOO_LARGE:
                    if len(letters) == 1 and not (bare or packed):
                        continue  # it was sent in this form already
                    letter = _bare(letters[index]) if bare else letters[index]
                    [answers[index]] = self._produce([letter], deadline, packed=packed)
        return [
            _failure(answer, letter) if isinstance(answer, KafkaError) else answer
            for answer, letter in zip(answers, letters, strict=True)
        ]

    def _produce(
        self, letters: Sequence[Outgoing], deadline: Deadline, *, packed: bool = False
    ) -> list[KafkaError | DeadLetterError | None]:
        producer = self._open(packed=packed)
        no_answer = DeadLetterError(f"not acknowledged within {deadline.budget_s:g} s; it may be there all the same")
        answers: list[KafkaError | DeadLetterError | None] = [no_answer] * len(letters)
        waiting = 0

        def told(index: int) -> Callable[[KafkaError | None, Message], None]:
            def tell(error: KafkaError | None, _: Message) -> None:
                nonlocal waiting
                waiting -= 1
                answers[index] = error

            return tell

        for index, (letter, topic, partition) in enumerate(letters):
            more: dict[str, Any] = {} if partition is None else {"partition": partition.number}
            try:
                producer.produce(
                    topic,
                    value=letter.value,
                    key=letter.key,
                    headers=list(letter.headers),
                    callback=self._shield.around(told(index), 2),
                    **more,
                )
                waiting += 1
            except KafkaException as error:
                answers[index] = error.args[0]
            except BufferError:
                answers[index] = DeadLetterError("the producer's queue is full")
        while waiting and not deadline.passed:
            producer.poll(deadline.left_s(_POLL_S))
            self._shield.raise_kept()
        return answers

    def readers(self, topic: str, deadline: Deadline) -> Sequence[str]:
        """Groups that have an offset there; those that this user may not see are left out."""
        partitions = [TopicPartition(each.topic, each.number) for each in self.partitions(topic, deadline)]
        client, timeout_s = self.admin.client, request_s(deadline)
        listed = self.admin.answer(
            client.list_consumer_groups(request_timeout=timeout_s), deadline, "asking for groups"
        )
        asked: dict[str, Any] = {}
        for group in sorted(each.group_id for each in listed.valid):
            asked |= client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=timeout_s
            )
        found = []
        for group, future in asked.items():
            try:
                reply = self.admin.answer(future, deadline, f"reading the offsets of {group}")
            except NotAuthorised:
                continue
            if any(each.offset >= 0 for each in reply.topic_partitions):
                found.append(group)
        return found

    def is_compacted(self, topic: str, deadline: Deadline) -> bool:
        """Whether a topic is compacted, by its cleanup.policy; False too if this user may not read that."""
        self.admin.reach(deadline)
        keeping = keeping_of(self.admin, [topic], deadline)[topic]
        return isinstance(keeping, Keeping) and keeping.compacted

    def _open(self, *, packed: bool) -> Producer:
        if packed not in self._producers:
            try:
                own: dict[str, Any] = {"batch.num.messages": _BATCH, "error_cb": self.errors.append}
                own["logger"] = client_log(self._conf, self._shield)
                conf = packing_conf(self._conf) if packed else producer_conf(self._conf)
                self._producers[packed] = Producer({**conf, **own})
            except KafkaException as error:
                raise refused(error) from error
        return self._producers[packed]


def _bare(letter: Outgoing) -> Outgoing:
    """Leave out the headers that the letter has added: the record as it was."""
    return letter._replace(letter=letter.letter._replace(headers=tuple(theirs(letter.letter.headers))))


def _failure(error: KafkaError, letter: Outgoing) -> DeadLetterError:
    what = f"sending letters to {letter.topic}"
    if (remedy := REFUSALS.get(error.code())) is not None:
        return DeadLetterRefused(f"{what}: {error.str()} ({error.name()}); {remedy}")
    said = str(faults.as_source_error(error, what))
    return DeadLetterRefused(said) if cure_of(error) is Cure.PERSON else DeadLetterError(said)
