"""Transacting: a source's transactions, one at a time, in a thread of their own.

The thread that polls takes the offsets, what was made of the records below, and the group's metadata in one step, and
never waits for a transaction but where partitions go. (`send_offsets_to_transaction` may ignore its timeout,
librdkafka's issue 5457.)

**A transaction that does not end cleanly costs its producer.** The next one of the same name has the broker end it, one
way or the other; then the group's offsets say which.

A commit for a member that the group has removed is refused by the broker, and so by the broker alone: the metadata is
never fresher than the offsets.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import Consumer, KafkaError, KafkaException, partition_of
from holdfast.adapters.kafka.admin import refused
from holdfast.adapters.kafka.callbacks import ClientLog
from holdfast.adapters.kafka.dead_letter import REFUSALS
from holdfast.adapters.kafka.properties import addresses, for_helpers
from holdfast.adapters.kafka.transactional_producer import Ended, Ending, TransactionalProducer, Work
from holdfast.adapters.kafka.transactions import TIMEOUT_MS
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.plugin.ports import CommitFate
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.kafka._client import TopicPartition
    from holdfast.plugin.engine.partition.made import Made
    from holdfast.records import Partition

_log = logging.getLogger("holdfast.kafka")

#: How long a producer works at one transaction, and how long it takes to begin; the broker waits no longer either.
_BUDGET_S = TIMEOUT_MS / 1000
#: After one that has failed for another reason than that the group has moved on: the first wait, and the longest.
_WAIT_S, _MOST_S = 0.2, 5.0
#: How often callbacks of a client without work are served.
_SERVE_S = 1.0
_READ_S = 5.0

#: The group has moved on, with the member or without it: what it still owns is committed with its next metadata.
_MOVED_ON = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
#: A member's metadata, as `Consumer.consumer_group_metadata` writes it: this, its generation, the group, its member id.
_METADATA = b"CGMDv2:"


class Job(NamedTuple):
    """One transaction, as the thread that polls has taken it."""

    work: Work
    offsets: Mapping[Partition, int]
    #: Whose outputs below these offsets it writes.
    made: Mapping[Partition, Made]


class Told(NamedTuple):
    """The outcome of a job."""

    job: Job
    fates: Mapping[Partition, CommitFate]


class Transacting:
    """Begun, waited for and told by the thread that polls; the transactions run in a thread of this object.

    Args:
        producer: the producer's configuration.
        consumer: the consumer's, of which a reader of the group's offsets is made.
    """

    def __init__(self, producer: Mapping[str, Any], consumer: Mapping[str, object]) -> None:
        self._conf, self._where = dict(producer), addresses(consumer)
        self._reader_conf = {
            "logger": ClientLog(),
            **for_helpers(consumer),
            "group.id": consumer["group.id"],
            "enable.auto.commit": False,
            "isolation.level": "read_committed",  # else the client does not wait for offsets of open transactions
        }
        self._producer: TransactionalProducer | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._job: Job | None = None
        self._told: Told | None = None
        self._closed = False
        #: An output that no broker will ever take: there is no further transaction.
        self._hopeless = False
        self._trouble: SourceError | None = None
        self._failures = 0
        self._not_before = 0.0

    # ---- the thread that polls
    def open(self, deadline: Deadline) -> None:
        """Make the producer. Raises SourceError: the broker refuses it, or does not answer."""
        what = f"beginning transactions as {self._conf['transactional.id']} at {self._where}"
        try:
            producer = TransactionalProducer(self._conf)
        except KafkaException as error:
            raise refused(error) from error
        try:
            producer.begin(deadline)
        except KafkaException as error:
            met = producer.met if producer.met is not None and faults.is_about_rights(producer.met) else error.args[0]
            raise faults.as_source_error(met, what) from error
        self._producer = producer
        self._thread = threading.Thread(target=self._serve, name="holdfast-kafka-transactions", daemon=True)
        self._thread.start()

    @property
    def may_begin(self) -> bool:
        """Whether a transaction may begin now."""
        with self._changed:
            free = self._job is None and self._told is None and not self._hopeless and not self._closed
            return free and self._thread is not None and SYSTEM_CLOCK.now() >= self._not_before

    def begin(self, job: Job) -> None:
        """Begin a transaction. `may_begin` holds."""
        with self._changed:
            self._job = job
            self._changed.notify_all()

    def wait(self, deadline: Deadline) -> bool:
        """Wait for the transaction that is under way. Returns: whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._job is None, deadline.left_s())

    def take_told(self) -> Told | None:
        """Return the outcome of the last one, once."""
        if self._told is None:
            return None
        with self._changed:
            told, self._told = self._told, None
            return told

    def take_trouble(self) -> SourceError | None:
        """The error to raise, once."""
        if self._trouble is None:
            return None
        with self._changed:
            trouble, self._trouble = self._trouble, None
            return trouble

    def close(self, deadline: Deadline) -> None:
        """End when the transaction under way has ended; idempotent. One that does not end by the deadline is aborted by
        the broker."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(deadline.left_s())
            if self._thread.is_alive():
                _log.warning("leaving in the middle of a transaction: the broker aborts it after %g s", _BUDGET_S)

    # ---- its own thread
    def _serve(self) -> None:
        while (job := self._next()) is not None:
            try:
                fates = self._run(job)
            except Exception as error:  # noqa: BLE001 - who polls waits for this thread
                self._give_up(SourceError(f"a transaction at {self._where} failed in the client: {error!r}"))
                fates = dict.fromkeys(job.offsets, CommitFate.AGAIN)
            with self._changed:
                self._told, self._job = Told(job, fates), None
                self._changed.notify_all()
        self._producer = None

    def _next(self) -> Job | None:
        """Wait for a job; None: there will be none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._closed, _SERVE_S)
                if self._job is not None or self._closed:
                    return self._job
            if self._producer is not None:
                self._producer.serve()

    def _run(self, job: Job) -> Mapping[Partition, CommitFate]:
        again = dict.fromkeys(job.offsets, CommitFate.AGAIN)
        producer = self._ready()
        if producer is None:
            return again
        ended = producer.run(job.work, Deadline(_BUDGET_S))
        if ended.how is Ending.COMMITTED:
            self._failures = 0
            return dict.fromkeys(job.offsets, CommitFate.DONE)
        self._note(ended)
        if ended.how is Ending.ABORTED or self._ready() is None:
            return again
        there = self._read_back(job.work.offsets)
        return again | {each: CommitFate.DONE for each, offset in job.offsets.items() if there.get(each) == offset}

    def _ready(self) -> TransactionalProducer | None:
        """The producer; another one if it is finished. None: the source was closed meanwhile."""
        while self._producer is None or self._producer.finished:
            _let_go([self._producer])
            self._producer = None
            try:
                following = TransactionalProducer(self._conf)
                following.begin(Deadline(_BUDGET_S))
                self._producer = following
            except KafkaException as error:
                what = f"beginning transactions anew at {self._where}"
                if not self._pause(SourceUnavailable(f"{what}: {error.args[0].str()} ({error.args[0].name()})")):
                    return None
        return self._producer

    def _read_back(self, offsets: Sequence[TopicPartition]) -> Mapping[Partition, int]:
        """The group's offsets with our mark, of those that a transaction was to commit. Its end is known: the producer
        that has begun after it has waited for that."""
        marks = {partition_of(each): each.metadata for each in offsets}
        while True:
            what = f"reading what a transaction has committed at {self._where}"
            reader = Consumer(self._reader_conf)
            try:
                replies = reader.committed(list(offsets), timeout=_READ_S)
                errors = [each.error for each in replies if each.error is not None]
            except KafkaException as error:
                replies, errors = [], [error.args[0]]
            finally:
                reader.close()
            if not errors:
                found = {partition_of(each): each for each in replies}
                return {each: reply.offset for each, reply in found.items() if reply.metadata == marks[each]}
            if not self._pause(SourceUnavailable(f"{what}: {errors[0].str()} ({errors[0].name()})")):
                return {}

    def _note(self, ended: Ended) -> None:
        """Say why a transaction was not committed, and when the next may begin."""
        error = ended.error
        if error is None or error.code() in _MOVED_ON:
            _log.debug("a transaction was aborted, since the group has moved on: %s", error)
            return
        what = f"a transaction at {self._where} was not committed, and is tried again: {error.str()} ({error.name()})"
        if ended.topic is not None and (why := _refusal(error, ended.topic, self._where)) is not None:
            self._give_up(why)
            return
        self._failures += 1
        with self._changed:
            self._trouble = SourceUnavailable(what)
            self._not_before = SYSTEM_CLOCK.now() + min(_WAIT_S * 2**self._failures, _MOST_S)

    def _give_up(self, why: SourceError) -> None:
        with self._changed:
            self._hopeless, self._trouble = True, why

    def _pause(self, trouble: SourceError) -> bool:
        """Wait before a broker is asked again. Returns: False = the source was closed."""
        self._failures += 1
        with self._changed:
            self._trouble = trouble
            return not self._changed.wait_for(lambda: self._closed, min(_WAIT_S * 2**self._failures, _MOST_S))


def names_member(metadata: object) -> bool:
    """Whether a group's metadata names a member: with those of a client that was removed, and has not joined again, the
    broker would check nothing."""
    if not isinstance(metadata, bytes) or not metadata.startswith(_METADATA):
        return True  # of a later client
    rest = metadata[len(_METADATA) :]
    generation, names = int.from_bytes(rest[:4], "little", signed=True), rest[4:].split(b"\0")
    return generation > 0 and len(names) > 1 and names[1] != b""


def _refusal(error: KafkaError, topic: str, where: str) -> SourceError | None:
    """The error about an output that is refused for good; None: it may be taken later."""
    what = f"writing an output to {topic} at {where}"
    if (remedy := REFUSALS.get(error.code())) is not None:
        return SourceError(f"{what}: {error.str()} ({error.name()}); {remedy}")
    return faults.as_source_error(error, what) if faults.cure_of(error) is faults.Cure.PERSON else None


def _let_go(held: list[TransactionalProducer | None]) -> None:
    """Have another thread drop what is held: the client's end waits for its connections."""
    threading.Thread(target=held.clear, name="holdfast-kafka-close", daemon=True).start()
