"""Dead letters to Kafka: produced, and acknowledged by all in-sync replicas, before the record counts as settled.

A worker sends them and waits (engine/record/attempts.py); after that the record is settled (settling.py).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.kafka._client import KafkaError, KafkaException, Producer
from holdfast.adapters.kafka.admin import Wait, refused
from holdfast.adapters.kafka.callbacks import ClientLog
from holdfast.adapters.kafka.faults import Cure, as_source_error, cure_of, is_about_credentials, unknown_topics
from holdfast.adapters.kafka.properties import addresses, for_helpers
from holdfast.adapters.kafka.topic_keeping import check_topics
from holdfast.errors import (
    DeadLetterError,
    DeadLetterRefused,
    LetterTooLarge,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.plugin.retrying.dead_letter import forms_of
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.kafka._client import Message
    from holdfast.plugin.retrying.dead_letter import Form, Letter
    from holdfast.records import Partition

_log = logging.getLogger("holdfast.kafka")

_OWN = {
    "acks": "all",
    # The client's retries then neither duplicate nor reorder letters.
    "enable.idempotence": True,
    # The engine sends a letter again that was given up here: the client must not hold it for 5 minutes, its default.
    "message.timeout.ms": 30_000,
    # How long a topic may be missing in metadata before the client calls it missing; 30 s by default. All brokers know
    # a new topic by then.
    "topic.metadata.propagation.max.ms": 5_000,
    # Letters are few, and a worker waits for each. Each is a batch of its own: the broker's limit is for batches, and
    # one letter that is too large would make its neighbours fail.
    "linger.ms": 0,
    "batch.num.messages": 1,
}
_UNLESS_SAID = {
    # A record that was fetched (receive.message.max.bytes) can be sent: the broker's limit decides.
    "message.max.bytes": 100_000_000,
    # Instead of librdkafka's own lines on standard error.
    "logger": ClientLog(),
}

#: For letters that are too large uncompressed. The record's own producer may have compressed it: a topic's limit is for
#: stored bytes. zstd compresses best; to brokers that do not know it (below 2.1) a client sends uncompressed.
_PACKED = {"compression.type": "zstd", "compression.level": 9}
_PACKED_ALIASES = ("compression.codec", "compression.type", "compression.level")

#: Refusals that the target repeats at each try, with a remedy; in addition to the codes whose cure is a person.
_SIZE = (
    "it was tried compressed and with fewer headers too: raise max.message.bytes of the topic (a letter is a little "
    'larger than its record, by its headers), give the handler letter_too_large="without_value", or let it deal with '
    "this record"
)
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_RECORD: "the topic does not take such a record (a compacted one takes none without a key)",
    KafkaError.POLICY_VIOLATION: "a policy of the broker refuses it",
}

_POLL_S = 0.1
_SLICE_S = 0.2
# How long a topic may be missing before it counts as missing: a broker that creates topics by itself needs a moment.
_MISSING_S = 3.0
#: How long an answer is kept: longer than the client keeps a letter (message.timeout.ms), and than the engine waits
#: between two tries. Not longer than that: a record that is replayed on purpose, and fails again, gets a letter of its
#: own.
_COUNTS_S = 60.0


def producer_conf(conf: Mapping[str, object]) -> dict[str, Any]:
    """A producer's configuration for letters, from a consumer's."""
    return {**_UNLESS_SAID, **for_helpers(conf), **_OWN}


def packing_conf(conf: Mapping[str, object]) -> dict[str, Any]:
    """The configuration of a producer that compresses letters. It takes letters of any size: the limit is for
    compressed ones."""
    plain = {name: value for name, value in producer_conf(conf).items() if name not in _PACKED_ALIASES}
    return {**plain, **_PACKED, "message.max.bytes": _UNLESS_SAID["message.max.bytes"]}


class KafkaDeadLetters:
    """Sends letters with the consumer's credentials. One producer a process, made at the first use, and a second one at
    the first letter that is too large.

    At least once: the engine sends a letter again that is not acknowledged, and it may then be there twice, if its
    answer got lost or its partition has moved meanwhile. While this client still holds a letter, it is not sent again.
    Any thread may call `send`; one thread calls `check` and `close`.

    Locks: `_lock` guards the producers; no call under it waits for a broker.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._conf = dict(conf)
        self._where = addresses(conf)
        self._lock = threading.Lock()
        #: Whether it compresses -> the producer.
        self._running: dict[bool, _Running] = {}
        self._closed = False
        #: Brokers have accepted the credentials before. A later refusal passes: a broker may be starting, or the
        #: credentials are being changed, as for the consumer.
        self._let_in = False

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Check at the start that every target exists, or that the broker creates it now (auto.create.topics.enable),
        as it would at the first letter. Only a letter can tell whether this user may write there.

        Raises UnknownTopic, NotAuthorised, SourceUnavailable; SettingError: librdkafka refuses the configuration.
        """
        running, missing, patience = self._start(), [], list[Deadline]()
        for topic in topics:  # the broker creates missing topics while the others are checked
            _topic_error(running.producer, topic, deadline.left_s(at_most=_SLICE_S))
        for topic in sorted(topics):
            try:
                self._check(running, topic, deadline, patience)
            except UnknownTopic:
                missing.append(topic)
        if missing:
            they_are = " (dead letters, and records to be tried later, go there)"
            raise unknown_topics(missing, self._where, they_are=they_are, config=" --config cleanup.policy=delete")

    def check_keeping(
        self, delays: Mapping[str, float], origins: Mapping[str, Collection[str]], deadline: Deadline
    ) -> None:
        """See `plugin.retrying.keeping.KeepsRecords`. Raises TopicUnfit, SourceUnavailable."""
        check_topics(self._conf, delays, origins, deadline)

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Return when the letter is acknowledged. A letter that is too large is sent compressed, and then with fewer
        headers.

        Raises:
            DeadLetterError: not acknowledged by the deadline; it may still arrive. Send it again.
            LetterTooLarge: it is too large in each form.
            DeadLetterRefused: the target will never take it (missing topic, no access).
        """
        what = f"dead letter of {letter.record.partition}@{letter.record.offset} to {letter.topic} at {self._where}"
        running, forms = self._start(), forms_of(letter)
        error = self._produce(running, letter, forms[0], what, deadline)
        if error is not None and error.code() in TOO_LARGE:
            running = self._start(packed=True)
            for form in forms:
                error = self._produce(running, letter, form, what, deadline)
                if error is None or error.code() not in TOO_LARGE:
                    break
        if error is not None:
            raise self._failure(error, what, running) from KafkaException(error)

    def _produce(self, running: _Running, letter: Letter, form: Form, what: str, left: Deadline) -> KafkaError | None:
        """Send a letter. Returns the error of client or broker; None = it is acknowledged. Raises DeadLetterError: no
        answer."""
        record, size = letter.record, (len(form.value or b""), len(form.headers))
        name = LetterName(letter.topic, record.partition, record.offset, size)
        answer = running.answer_to(name)
        if answer is None:
            answer = Answer()
            try:
                running.producer.produce(
                    letter.topic,
                    value=form.value,
                    key=form.key,
                    headers=form.headers,  # type: ignore[arg-type]  # its list is invariant; None values are allowed
                    on_delivery=answer.told,
                )
            except KafkaException as error:
                refusal: KafkaError = error.args[0]
                return refusal
            except BufferError as error:  # the client's queue is full
                raise DeadLetterError(f"{what}: the producer's queue is full; it is tried again") from error
        if not answer.known.wait(left.left_s()):
            running.keep(name, answer)
            # The client's last error (a closed port, a refused password) tells more than the timeout.
            met = f" ({running.met.str()})" if running.met is not None else ""
            raise DeadLetterError(f"{what}: not acknowledged within {left.budget_s:g} s{met}; it is tried again")
        self._let_in = self._let_in or answer.error is None
        return answer.error

    def close(self, deadline: Deadline) -> None:
        """Wait for letters under way, then close the connections. Idempotent; `send` raises from then on."""
        with self._lock:
            self._closed = True
            ending, self._running = list(self._running.values()), {}
        for running in ending:
            running.end(deadline)

    def _start(self, *, packed: bool = False) -> _Running:
        with self._lock:
            if self._closed:
                raise DeadLetterError("dead letters are closed: the app is leaving")
            if packed not in self._running:
                self._running[packed] = _Running((packing_conf if packed else producer_conf)(self._conf))
            return self._running[packed]

    def _failure(self, error: KafkaError, what: str, running: _Running) -> DeadLetterError:
        unsent = error.code() == KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - a public name of the binding
        if error.fatal() or unsent or cure_of(error) is Cure.REBUILD:
            # An idempotent producer that has lost its sequence is finished. One that could not send for that long may
            # have forgotten its brokers (see `forgotten`). The next letter makes another producer.
            with self._lock:
                self._running = {packed: each for packed, each in self._running.items() if each is not running}
            running.abandon()
            met = running.hopeless
            if met is not None and not (self._let_in and is_about_credentials(met)):
                return DeadLetterRefused(str(as_source_error(met, what)))  # such as IDEMPOTENT_WRITE, below 2.8
            return DeadLetterError(f"{what}: {error.str()} ({error.name()}); a new producer tries again")
        if (remedy := REFUSALS.get(error.code())) is not None:
            kind = LetterTooLarge if error.code() in TOO_LARGE else DeadLetterRefused
            return kind(f"{what}: {error.str()} ({error.name()}); {remedy}")
        said = as_source_error(error, what)
        return DeadLetterRefused(str(said)) if cure_of(error) is Cure.PERSON else DeadLetterError(str(said))

    def _check(self, running: _Running, topic: str, deadline: Deadline, patience: list[Deadline]) -> None:
        """Check one topic. Raises SourceError.

        Args:
            running: the producer.
            topic: its name.
            deadline: of the whole check.
            patience: one deadline for all missing topics, set when the first is seen to be missing.
        """
        what, slice_s = f"checking the dead letter topic {topic} at {self._where}", _SLICE_S
        wait = Wait(what, deadline, self._where)
        while True:
            error = _topic_error(running.producer, topic, deadline.left_s(at_most=slice_s))
            if error is None:
                self._let_in = True
                return
            if running.hopeless is not None:
                raise as_source_error(running.hopeless, what)
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                if not patience:
                    patience.append(Deadline(deadline.left_s(at_most=_MISSING_S)))
                if patience[0].passed:
                    raise as_source_error(error, what)
            elif cure_of(error) is Cure.PERSON:
                raise as_source_error(error, what)
            elif deadline.passed:
                raise SourceUnavailable(f"{what}: no answer within {deadline.budget_s:g} s; check the address")
            else:
                wait.log_once()
            running.pause(deadline.left_s(at_most=_SLICE_S))
            slice_s *= 2  # each call sends a new request: its timeout has to exceed the round trip to the broker


def _topic_error(producer: Producer, topic: str, timeout_s: float) -> KafkaError | None:
    error: KafkaError | None
    try:
        error = producer.list_topics(topic, timeout=timeout_s).topics[topic].error
    except KafkaException as failure:
        error = failure.args[0]
    return error


class LetterName(NamedTuple):
    """The identity of a letter over several tries. `form`: bytes of its value, and number of its headers."""

    topic: str
    origin: Partition
    offset: int
    form: tuple[int, int]


class Answer:
    """The broker's answer to one letter."""

    def __init__(self) -> None:
        self.known = threading.Event()
        self.error: KafkaError | None = None
        self.counts = Deadline(_COUNTS_S)

    def told(self, error: KafkaError | None, _: Message) -> None:
        """Note the answer. Called in the producer's thread."""
        self.error = error
        self.known.set()


class _Running:
    """A producer and the thread that serves its callbacks: answers to letters, and new OAuth tokens while idle."""

    def __init__(self, conf: dict[str, Any]) -> None:
        #: The client's latest error, and its latest error that waiting does not cure (credentials, TLS). Letters get no
        #: answer about these: librdkafka goes on trying.
        self.met: KafkaError | None = None
        self.hopeless: KafkaError | None = None
        self._lock = threading.Lock()
        #: The answers to letters that `send` has given up, and that the client may still deliver: while a topic has too
        #: few in-sync replicas, the client holds them, and would take each new try for one more letter.
        self._late: dict[LetterName, Answer] = {}
        self._ended = threading.Event()
        try:
            self.producer = Producer({**conf, "error_cb": self._told})
        except KafkaException as error:
            raise refused(error) from error
        self._thread = threading.Thread(target=self._serve, name="holdfast-dead-letters", daemon=True)
        self._thread.start()

    def keep(self, name: LetterName, answer: Answer) -> None:
        """Keep the answer of a letter for which the caller waits no more. Any thread."""
        with self._lock:
            self._late = {each: kept for each, kept in self._late.items() if not kept.counts.passed}
            self._late[name] = answer

    def answer_to(self, name: LetterName) -> Answer | None:
        """Return the answer to an earlier try, if it is outstanding or says that the letter is delivered; None = send
        the letter. Any thread; one letter is sent by one thread at a time."""
        with self._lock:
            answer = self._late.pop(name, None)
        if answer is None or answer.counts.passed or (answer.known.is_set() and answer.error is not None):
            return None
        return answer

    def pause(self, seconds: float) -> None:
        """Wait for some time; less, if the producer ends."""
        self._ended.wait(seconds)

    def abandon(self) -> None:
        """Take no more letters: the thread passes on the outstanding answers, and ends."""
        self._ended.set()

    def end(self, deadline: Deadline) -> None:
        """Send queued letters, pass on the answers, stop. The thread does it, because signals do not interrupt it: if
        callbacks ran here, the client would lose an exception of a signal's handler (see `shielding`)."""
        self._ended.set()
        self._thread.join(deadline.left_s() + _POLL_S * 2)
        if left := len(self.producer):
            _log.warning("%s dead letters were not acknowledged; their records are not settled", left)

    def _serve(self) -> None:
        # Queued letters are sent at once (linger.ms), and each ends by an answer or by message.timeout.ms. Afterwards
        # no caller waits any more.
        while not self._ended.is_set() or len(self.producer):
            try:
                self.producer.poll(_POLL_S)
            except KafkaException as error:  # in place of error_cb, if the producer has ended
                self._told(error.args[0])
            except Exception:  # noqa: BLE001 - a callback of the application (oauth_cb)
                _log.exception("a callback of the dead letters' producer failed")
                self._ended.wait(_POLL_S)

    def _told(self, error: KafkaError) -> None:
        self.met = error
        if cure_of(error) is Cure.PERSON:
            self.hopeless = error
