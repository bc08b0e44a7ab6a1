"""ShareSource: consumes a Kafka share group, record by record. Joins settings, clients and dead letters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaException, ShareConsumer
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.callbacks import ClientLog
from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.adapters.kafka.share import limits as grants
from holdfast.adapters.kafka.share.config import check_share
from holdfast.adapters.kafka.share.deliveries import Deliveries
from holdfast.adapters.kafka.share.reader import Reader
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.errors import (
    ClientUnusable,
    DeadLetterError,
    DeliveriesSpent,
    NotAuthorised,
    SettingError,
    SourceError,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.plugin.folding import EVERY_S
from holdfast.plugin.ports import NOTHING, Batch
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.plugin.setting_names import known_arguments
from holdfast.plugin.settings import Settings
from holdfast.process_name import process_name
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.kafka._client import KafkaError
    from holdfast.adapters.kafka.share.deliveries import Held
    from holdfast.adapters.kafka.share.limits import Limits
    from holdfast.plugin.handlers import Handler
    from holdfast.records import Fence, Record

_log = logging.getLogger("holdfast.kafka")
#: A lock's default; until the group was asked.
_LOCK_S = 30.0
#: If the app has not polled for this long, no records are asked for: their locks would only run.
_WANTED_S = 1.0
#: For a dead letter that a client sends itself.
_LETTER_S = 5.0
_CLOSE_STEP_S = 0.05


class ShareSource:
    """Consumes a share group (KIP-932; Kafka 4.2 and later) by confluent-kafka's `ShareConsumer`, a preview.

    Any number of members work on one partition. Each record is locked for one member, and acknowledged by itself when
    its handler has ended and the store knows it. One thread owns the source: the app's; each client has its own.

    Limits of the protocol and of today's client:

    - A lock lasts as long as the group says (`share.record.lock.duration.ms`, 30 s), and the client cannot renew it.
      A handler needs a timeout that ends before it.
    - A record is delivered as often as the group says (`share.delivery.count.limit`, 5), handled or not, and is then
      archived. At its last delivery no handler gets it: it becomes a dead letter. So each handler needs a dead letter
      topic.
    - The broker gives out whole batches of the producer, whatever max.poll.records says, and a client gets no more
      before all of that is acknowledged.
    - No order, and no lag.

    Args:
        conf: as for `confluent_kafka.ShareConsumer`. max.poll.records is the number of handlers that run at a time,
            unless it is set.
        clients: share consumers of this process. While a slow record holds one up, the others go on.

    Raises:
        SettingError: names the property, its value and the remedy.
        ClientUnusable: the installed confluent-kafka has no share consumer.
    """

    @known_arguments()
    def __init__(self, conf: Mapping[str, Any], *, clients: int = 2) -> None:
        if ShareConsumer is None:
            raise ClientUnusable("this confluent-kafka has no ShareConsumer: pip install 'confluent-kafka>=2.16.1'")
        self._config = check_share(conf, clients)
        self._settings = Settings()
        self._handlers: Sequence[Handler] = ()
        self._admin = Admin(self._config.conf)
        self._ids = TopicIds(self._admin)
        self._topic_ids: Mapping[str, str] = {}
        self._limits: Limits | None = None
        self._letters: KafkaDeadLetters | None = None
        self._topics: list[str] = []
        self._readers: list[Reader] = []
        self._runtime = MACHINE
        self._deliveries: Deliveries
        self._fence: Fence
        self._wanted_at = self._told_at = -EVERY_S
        self._trouble: SourceError | None = None
        self._number: int | None = None

    def __repr__(self) -> str:
        return f"ShareSource({self._config!r})"

    # ---- read by the engine before the start
    @property
    def group(self) -> str:
        """The share group's name."""
        return self._config.group

    @property
    def lease_s(self) -> float:
        """How long a record is locked for the member that has it, in seconds."""
        return _LOCK_S if self._limits is None else self._limits.lock_s

    @property
    def spare_s(self) -> float:
        """Seconds of a lock that are kept for a dead letter, or for giving the record back."""
        return 0.0 if self._limits is None else self._limits.spare_s

    @property
    def in_group(self) -> bool:
        """Whether a client has polled without an error."""
        return any(reader.let_in for reader in self._readers)

    @property
    def member_name(self) -> str:
        """The name of this process for brokers and tools; each client has a number behind it."""
        return str(self._config.conf.get("client.id") or process_name(self._number))

    def use_process_number(self, number: int) -> None:
        """Set the number of this process among several; its name has the number."""
        self._number = number

    def check_settings(self, settings: Settings) -> None:
        """Note how many handlers run at a time, and how long they may."""
        self._settings = settings

    def check_handlers(self, handlers: Sequence[Handler], settings: Settings) -> None:
        """Check that each handler has a timeout and a dead letter topic. Raises SettingError."""
        grants.check_handlers(handlers, settings)
        self._handlers, self._settings = handlers, settings

    def check_times(self, limits: Limits) -> None:
        """Check that each handler ends, or is given up, before a lock does. Raises SettingError."""
        grants.check_times(limits, self.group, self._handlers, self._settings)

    def dead_letters(self) -> KafkaDeadLetters:
        """Make a sender of dead letters to the same brokers, with the same credentials."""
        return KafkaDeadLetters(self._config.conf)

    # ---- the start and the end
    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Reach the broker, look for the topics, and read what the group grants. Raises SourceError; UnknownTopic names
        all missing topics. Raises SettingError: a handler may take longer than a lock lasts."""
        for topic in topics:
            if topic.startswith("^"):
                raise SettingError("topics", topic, "share groups know no patterns: name the topics")
        self._admin.reach(deadline)
        self._topic_ids = self._look_for(topics, deadline)
        self._limits = grants.read(self._admin, self.group, deadline)
        self.check_times(self._limits)

    def open(self, topics: Collection[str], fence: Fence, deadline: Deadline) -> None:
        """Begin to poll. Raises SourceError, SettingError, as `reach`."""
        if self._limits is None:
            self.reach(topics, deadline)
        limits = self._limits
        if limits is None:
            raise SourceUnavailable("the group was not asked what it grants")
        if (said := grants.beginning(self.group, limits)) is not None:
            _log.warning("%s", said)
        self._topics, self._fence = list(topics), fence
        self._letters = self.dead_letters()
        self._deliveries = Deliveries(limits, self._config.clients, self._runtime)
        self._readers = [
            Reader(
                number,
                self,
                self._deliveries,
                limits=limits,
                runtime=self._runtime,
                name=f"holdfast-{self.group}-share-{number}",
            )
            for number in range(self._config.clients)
        ]

    def drain(self) -> None:
        """Ask for no more records, and give back those that wait."""
        for reader in self._readers:
            reader.stopping.set()
        if self._readers:
            self._deliveries.drain()

    def close(self, deadline: Deadline) -> None:
        """Wait until the broker was told of all that is in hand; then leave the group, which gives the rest back.
        Idempotent."""
        self.drain()
        readers, self._readers = self._readers, []
        while not deadline.passed and not all(reader.join(_CLOSE_STEP_S) for reader in readers):
            pass
        for reader in readers:
            reader.end()
        for reader in readers:
            reader.join(1.0)
        letters, self._letters = self._letters, None
        if letters is not None:
            letters.close(Deadline(1.0))
        self._admin.close()

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return the records that have come. If there are none, raises the SourceError that clients have met, every
        30 s while it lasts."""
        self._wanted_at = self._runtime.now()
        records = self._deliveries.take(max_records)
        if not records and timeout_s > 0:
            self._deliveries.wait(timeout_s)
            records = self._deliveries.take(max_records)
        if not records:
            self._tell_trouble()
            return NOTHING
        return Batch(records)

    def identity(self, record: Record) -> str:
        """The record's place in its log: the topic's id, partition and offset; and its timestamp, which another topic
        of that name would not have there."""
        topic = record.partition.topic
        where = self._topic_ids.get(topic, ""), record.partition.number, record.offset, record.timestamp_ms
        return "/".join(map(str, where))

    def left_s(self, record: Record) -> float:
        """Seconds until the record's lock ends, by our clock."""
        return self._deliveries.until(record) - self._runtime.now()

    def deliveries_left(self, record: Record) -> int:
        """How often the broker would deliver the record again."""
        return self._deliveries.deliveries_left(record)

    def refusal(self, record: Record) -> Exception | None:
        """At its last delivery, no handler gets a record."""
        return None if self._deliveries.deliveries_left(record) else self._spent(record)

    def _spent(self, record: Record) -> DeliveriesSpent:
        most = self._limits.deliveries if self._limits else 0
        return DeliveriesSpent(
            f"{record.partition}@{record.offset} was delivered {most} times, as often as the group {self.group} allows "
            "(share.delivery.count.limit): earlier deliveries failed, or their process died, or did not come to it "
            "before their lock ended. Replay this letter when the cause is mended"
        )

    def extend(self, records: Sequence[Record]) -> None:
        """Nothing: the client cannot renew a lock."""

    def acknowledge(self, records: Sequence[Record]) -> Sequence[Record]:
        """Begin to acknowledge. Returns as many records as acknowledgements came too late since the last call."""
        self._deliveries.done(records)
        return records[: self._deliveries.late(len(records))]

    def release(self, records: Iterable[Record]) -> None:
        """Begin to give records back: the broker delivers them again at once."""
        self._deliveries.back(records)

    # ---- for the readers; see `Shares`
    @property
    def fence(self) -> Fence:
        """The fence of all records."""
        return self._fence

    def wanted(self) -> bool:
        """Whether the app has polled within the last second: what comes meanwhile would only wait."""
        return self._runtime.now() - self._wanted_at <= _WANTED_S

    def connect(self, number: int) -> ShareConsumer:
        """Make a client and subscribe. Raises SourceError."""
        settings = self._settings
        is_async = any(handler.is_async for handler in self._handlers)
        conf = self._config.of_client(
            name=f"{self.member_name}-{number}",
            records=max(1, settings.workers, settings.async_workers if is_async else 0),
            lock_s=self.lease_s,
            own={"logger": ClientLog(), "error_cb": self._on_error},
        )
        try:
            client = ShareConsumer(conf)
            client.subscribe(self._topics)
        except (KafkaException, ValueError) as error:
            raise SourceError(f"librdkafka refuses this configuration: {error}") from error
        return client

    def met(self, error: SourceError) -> None:
        """Note an error: the next poll that brings nothing raises it."""
        self._trouble = error

    def rescue(self, held: Held) -> None:
        """Write a record into its dead letters: the engine has not come to it, and there is no other delivery. Raises
        DeadLetterError."""
        record, letters = held.record, self._letters
        handler = next((each for each in self._handlers if record.topic in each.topics), None)
        if letters is None or handler is None or handler.dead_letter is None:
            raise DeadLetterError(f"{record.partition}@{record.offset} has no dead letter topic")
        letter = Letter(
            record=record,
            topic=handler.dead_letter,
            handler=handler.name,
            reason=self._spent(record),
            attempts=0,
            group=self.group,
        )
        letters.send(letter, Deadline(min(_LETTER_S, max(0.1, held.until - self._runtime.now()))))
        _log.warning("a dead letter in %s, without its handler: %s", handler.dead_letter, letter.reason)

    def lost(self, record: Record) -> None:
        """Report a record that nobody gets any more: it is still in its topic, at that offset."""
        _log.error(
            "%s@%d is lost for the share group %s: it was delivered as often as the group allows, and no dead letter "
            "was acknowledged before its lock ended. Its topic still has it: read it there, and send it again",
            record.partition,
            record.offset,
            self.group,
        )

    # ---- inside
    def _on_error(self, error: KafkaError) -> None:
        self._trouble = faults.as_source_error(error, f"consuming as {self.group} at {self._config.bootstrap}")

    def _look_for(self, topics: Collection[str], deadline: Deadline) -> Mapping[str, str]:
        """The ids of the topics. Raises UnknownTopic with all that are missing: the client would wait in silence."""
        try:
            found = self._ids.of_each(topics, deadline)
        except UnknownTopic:
            found = {}
        missing = [each for each in topics if isinstance(found.get(each, UnknownTopic()), UnknownTopic)]
        if missing:
            raise faults.unknown_topics(missing, self._config.bootstrap)
        for answer in found.values():
            if isinstance(answer, SourceError):
                raise answer
        return {topic: str(answer) for topic, answer in found.items()}

    def _tell_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is None:
            return
        if not trouble.retriable and not (isinstance(trouble, NotAuthorised) and self.in_group):
            raise trouble
        now = self._runtime.now()
        if now - self._told_at >= EVERY_S:
            self._told_at = now
            raise SourceUnavailable(str(trouble)) from trouble
