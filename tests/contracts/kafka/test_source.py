"""KafkaSource under an app, on a real broker: where librdkafka has traps, one test a trap."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.dedup.none import NoSession
from holdfast.errors import SourceUnavailable
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.events import RebalanceReport, RecordsExpired
from holdfast.plugin.ports import Start
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.kafka_brokers import closed_port
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import CommitFate
    from holdfast.records import Record
    from tests.harness.servers.redis import RedisServer

__all__ = ["closed_port"]


PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    },
    "consumer": {"group.protocol": "consumer"},
}


class Running:
    """An app in a thread."""

    def __init__(self, kafka: KafkaServer, redis_url: str | None, topic: str, group: str, conf: dict[str, Any]) -> None:
        self.handled: list[tuple[int, int]] = []
        self.events: list[Event] = []
        self.error: Exception | None = None
        claims = None if redis_url is None else RedisClaims.from_url(redis_url, lease_s=2.0, timeout_s=0.5)
        startup_timeout_s = conf.pop("startup_timeout_s", 30.0)
        own = {name: conf.pop(name) for name in ("static_id", "leave") if name in conf}
        assignment = conf.pop("assignment", "keep")
        drain_timeout_s = conf.pop("drain_timeout_s", 10.0)
        conf = {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "topic.metadata.refresh.interval.ms": 500,
        } | conf
        self.source = KafkaSource(conf, assignment=assignment, **own)
        self.app = Holdfast(
            self.source,
            claims=claims,
            settings=Settings(
                commit_interval_s=0.2,
                drain_timeout_s=drain_timeout_s,
                linger_timeout_s=5,
                startup_timeout_s=startup_timeout_s,
            ),
            observers=[self],
        )
        self.app.handler(topic)(self._handle)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def phases(self) -> dict[int, str]:
        """Of each partition that is assigned."""
        return {each.partition.number: each.phase for each in self.app.snapshot().partitions}

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, *, leave: bool = False) -> None:
        self.app.stop(leave=leave)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _handle(self, record: Record) -> None:
        self.handled.append((record.partition.number, record.offset))

    def _run(self) -> None:
        try:
            self.app.run()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"source-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 2)
    return name


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(PROTOCOLS[request.param])


def produce(kafka: KafkaServer, topic: str, count: int, partition: int = 0, **conf: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **conf})
    for number in range(count):
        producer.produce(topic, f"{number}", partition=partition)
    assert producer.flush(20) == 0


def test_with_latest_the_first_start_is_remembered_though_nothing_came(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    produce(kafka, topic, 7)
    latest = {**protocol, "auto.offset.reset": "latest"}
    first = Running(kafka, redis_url, topic, topic, dict(latest))
    until(lambda: kafka.committed(topic, topic) == {0: 7, 1: 0})
    first.stop()
    produce(kafka, topic, 5)  # while nobody is there
    second = Running(kafka, redis_url, topic, topic, dict(latest))
    until(lambda: len(second.handled) >= 5)
    second.stop()
    assert first.handled == []
    assert second.handled == [(0, offset) for offset in range(7, 12)]


def test_with_latest_partitions_that_are_added_are_read_from_their_first_record(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    produce(kafka, topic, 7)
    latest = {**protocol, "auto.offset.reset": "latest", "topic.metadata.refresh.interval.ms": 60_000}
    first = Running(kafka, redis_url, topic, topic, dict(latest))
    until(lambda: kafka.committed(topic, topic) == {0: 7, 1: 0})
    kafka.add_partitions(topic, 3)
    produce(kafka, topic, 5, partition=2)  # nobody has seen it yet
    first.stop()
    kafka.add_partitions(topic, 4)
    produce(kafka, topic, 5, partition=3)  # nobody is there
    second = Running(kafka, redis_url, topic, topic, dict(latest))
    until(lambda: len(second.handled) >= 10)
    second.stop()
    assert first.handled == []
    assert sorted(second.handled) == [(number, offset) for number in (2, 3) for offset in range(5)]


def test_what_is_assigned_while_the_store_is_away_begins_where_it_has_to_when_it_is_back(
    kafka: KafkaServer, redis_server: RedisServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    produce(kafka, topic, 50)
    first = Running(kafka, redis_url, topic, topic, dict(protocol))
    until(lambda: kafka.committed(topic, topic).get(0) == 50)
    first.stop()
    produce(kafka, topic, 50)
    second = Running(kafka, redis_url, topic, topic, dict(protocol))
    until(lambda: kafka.committed(topic, topic).get(0) == 100)
    redis_server.pause()
    try:
        kafka.add_partitions(topic, 3)
        produce(kafka, topic, 50, partition=2)
        until(lambda: 2 in (phases := second.phases) and phases[2] != "owned")
        third = Running(kafka, None, topic, f"{topic}-b", dict(protocol))  # proves that the broker goes on
        until(lambda: len(third.handled) == 150)
        assert second.phases[2] != "owned"
        assert not any(number == 2 for number, _ in list(second.handled))
    finally:
        redis_server.resume()
    produce(kafka, topic, 50, partition=1)
    until(lambda: {(1, 49), (2, 49)} <= set(second.handled))
    for one in (second, third):
        one.stop()
    handled = [(0, n) for n in range(100)] + [(number, n) for number in (1, 2) for n in range(50)]
    assert sorted(first.handled + second.handled) == handled


class Holding(Running):
    """Its handlers wait until they may go on: those of records that say "hold", and all others."""

    go_on: threading.Event
    others: threading.Event

    def _handle(self, record: Record) -> None:
        (self.go_on if record.value == b"hold" else self.others).wait(PATIENCE_S)
        super()._handle(record)

    def handled_of(self, partition: int) -> int:
        return sum(number == partition for number, _ in list(self.handled))

    @property
    def draining(self) -> set[int]:
        """Partitions that are fenced, and still here."""
        return {number for number, phase in self.phases.items() if phase == Phase.FENCED.name.lower()}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[Holding]:
    """Nobody may go on yet."""
    for which in ("go_on", "others"):
        monkeypatch.setattr(Holding, which, threading.Event(), raising=False)
    return Holding


def produce_to_both(kafka: KafkaServer, topic: str, what: str, count: int) -> None:
    """So many in all, each with a key of its own."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, what, key=f"{what} {number}", partition=number % 2)
    assert producer.flush(20) == 0


@pytest.mark.parametrize("name", [pytest.param("cooperative", marks=pytest.mark.full), "consumer"])
def test_a_partition_that_stays_is_handled_on_while_another_is_drained(
    kafka: KafkaServer, redis_url: str, topic: str, name: str, held: type[Holding]
) -> None:
    """With what is in the process: inside a rebalance no client of Kafka's reads on."""
    produce_to_both(kafka, topic, "hold", 2)
    first = held(kafka, redis_url, topic, topic, dict(PROTOCOLS[name]))
    until(lambda: first.app.snapshot().load.in_flight == 2)
    produce_to_both(kafka, topic, "go", 1000)
    until(lambda: first.app.snapshot().load.in_flight == 1002)
    second = Running(kafka, redis_url, topic, topic, dict(PROTOCOLS[name]))
    until(lambda: first.draining)
    [goes] = first.draining
    held.others.set()
    until(lambda: first.handled_of(1 - goes) == 500)
    assert first.draining == {goes}
    assert first.handled_of(goes) < 50  # those that had started
    held.go_on.set()
    until(lambda: any(report.given for report in first.told(RebalanceReport)))
    [report] = [each for each in first.told(RebalanceReport) if each.given]
    until(lambda: len(first.handled) + len(second.handled) >= 1002)
    for one in (first, second):
        one.stop()
    assert [each.number for each in report.given] == [goes]
    assert report.abandoned == 0
    assert len(set(first.handled + second.handled)) == len(first.handled + second.handled)


@pytest.mark.parametrize("name", [pytest.param("cooperative", marks=pytest.mark.full), "consumer"])
def test_a_drain_ends_where_a_partition_that_stays_has_no_records_left(
    kafka: KafkaServer, redis_url: str, topic: str, name: str, held: type[Holding]
) -> None:
    """And what runs on is waited for by its new owner."""
    held.others.set()
    produce_to_both(kafka, topic, "hold", 2)
    long_drain = {"drain_timeout_s": 2 * PATIENCE_S, "max.poll.interval.ms": 600_000}
    # No fetch that is under way may tell of what comes: the client begins none in its callback.
    long_drain |= dict(PROTOCOLS[name]) | {"fetch.wait.max.ms": 10}
    first = held(kafka, redis_url, topic, topic, long_drain)
    until(lambda: first.app.snapshot().load.in_flight == 2)
    second = held(kafka, redis_url, topic, topic, dict(PROTOCOLS[name]))
    until(lambda: first.draining)
    [goes] = first.draining
    produce_to_both(kafka, topic, "go", 100)
    until(lambda: first.handled_of(1 - goes) == 50)
    until(lambda: second.handled_of(goes) == 50)
    assert (goes, 0) not in first.handled + second.handled
    held.go_on.set()
    until(lambda: len(first.handled) + len(second.handled) == 102)
    until(lambda: kafka.committed(topic, topic) == {0: 51, 1: 51})
    for one in (first, second):
        one.stop()
    assert (goes, 0) in first.handled
    assert len(set(first.handled + second.handled)) == 102
    assert [report.abandoned for report in first.told(RebalanceReport) if report.trigger == "revoked"] == [1]


def test_a_topic_made_again_under_a_living_member_is_read_from_its_start(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.partition.log_checks._REFRESH_S", 0.3)
    produce(kafka, topic, 30)
    member = Running(kafka, redis_url, topic, topic, {**protocol, "topic.metadata.refresh.interval.ms": 60_000})
    until(lambda: kafka.committed(topic, topic).get(0) == 30)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    produce(kafka, topic, 60)
    until(lambda: {(0, offset) for offset in range(30, 60)} <= set(member.handled))
    until(lambda: member.handled.count((0, 0)) == 2)
    until(
        lambda: {offset for offset in range(60) if member.handled.count((0, offset)) > (offset < 30)} == set(range(60))
    )
    member.stop()
    assert member.error is None


def test_latest_skips_nothing_of_a_topic_that_was_made_again(
    kafka: KafkaServer, redis_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is meant for what was there before the group."""
    monkeypatch.setattr("holdfast.plugin.engine.partition.log_checks._REFRESH_S", 0.3)
    produce(kafka, topic, 5)
    latest = {**PROTOCOLS["consumer"], "auto.offset.reset": "latest"}
    member = Running(kafka, redis_url, topic, topic, latest)
    until(lambda: kafka.committed(topic, topic).get(0) == 5)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    produce(kafka, topic, 20)
    until(lambda: kafka.committed(topic, topic).get(0) == 20)
    until(lambda: {(0, offset) for offset in range(20)} <= set(member.handled))
    member.stop()
    assert member.error is None


def test_what_retention_leaves_is_read_whatever_the_reset_policy(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    """By its own policy the client would go on at the log's end, and what it left out would count as a gap."""
    produce(kafka, topic, 5)
    latest = {**protocol, "auto.offset.reset": "latest"}
    first = Running(kafka, redis_url, topic, topic, protocol | {"auto.offset.reset": "earliest"})
    until(lambda: kafka.committed(topic, topic).get(0) == 5)
    first.stop()
    produce(kafka, topic, 25)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        future.result(PATIENCE_S)
    second = Running(kafka, redis_url, topic, topic, latest)
    until(lambda: len(second.handled) == 10)
    until(lambda: kafka.committed(topic, topic).get(0) == 30)
    second.stop()
    assert second.handled == [(0, offset) for offset in range(20, 30)]
    assert second.error is None
    assert not first.told(RecordsExpired)
    assert second.told(RecordsExpired) == [RecordsExpired(partition=Partition(topic, 0), first=5, next=20, records=15)]


def test_a_log_that_is_empty_before_anything_was_read_is_told_too(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    produce(kafka, topic, 5)
    first = Running(kafka, redis_url, topic, topic, dict(protocol))
    until(lambda: kafka.committed(topic, topic).get(0) == 5)
    first.stop()
    produce(kafka, topic, 25)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(PATIENCE_S)
    second = Running(kafka, redis_url, topic, topic, dict(protocol))
    until(lambda: kafka.committed(topic, topic).get(0) == 30)
    second.stop()
    assert second.handled == []
    assert second.told(RecordsExpired) == [RecordsExpired(partition=Partition(topic, 0), first=5, next=30, records=25)]


def test_a_topic_that_is_deleted_stops_nothing_of_the_others(
    kafka: KafkaServer, redis_url: str, protocol: dict[str, Any]
) -> None:
    stem = f"pattern-{uuid.uuid4().hex[:8]}"
    stays, goes = f"{stem}-stays", f"{stem}-goes"
    for each in (stays, goes):
        kafka.create_topic(each, 2)
        produce(kafka, each, 5)
    member = Running(kafka, redis_url, f"^{stem}.*", stem, protocol)
    until(lambda: len(member.handled) == 10)
    kafka.delete_topic(goes)
    seen_s = time.monotonic() + 3  # metadata is asked for each half second: the client has met it by then
    while time.monotonic() < seen_s:
        produce(kafka, stays, 1)
        time.sleep(0.2)
    assert member.alive
    ends = kafka.end_offsets(stays)[0]
    until(lambda: kafka.committed(stem, stays).get(0) == ends)
    member.stop()
    assert member.error is None


def test_transaction_markers_and_aborted_records_hold_nothing_up(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any]
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, f"{number}", partition=0)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    member = Running(kafka, redis_url, topic, topic, dict(protocol))
    until(lambda: kafka.committed(topic, topic).get(0) == kafka.end_offsets(topic)[0])
    member.stop()
    assert len(member.handled) == 15
    assert len(set(member.handled)) == 15
    assert not member.told(RecordsExpired)


@pytest.fixture(scope="module")
def classic_only() -> Iterator[KafkaServer]:
    with KafkaServer(properties={"group.coordinator.rebalance.protocols": "classic"}) as server:
        yield server


def test_a_broker_that_offers_the_consumer_protocol_and_refuses_it_is_joined_without(
    classic_only: KafkaServer, redis_url: str
) -> None:
    classic_only.create_topic("orders", 2)
    produce(classic_only, "orders", 10)
    member = Running(classic_only, redis_url, "orders", "g", {"assignment": "sticky"})
    until(lambda: len(member.handled) == 10)
    member.stop()
    assert {report.protocol for report in member.told(RebalanceReport)} == {"cooperative"}
    assert member.error is None


class _Begins:
    """A listener that lets everything begin at its start."""

    def __init__(self) -> None:
        self.assignments = 0
        #: The offsets of commits that were answered.
        self.answers: list[Mapping[Partition, int]] = []

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        self.assignments += 1
        return dict.fromkeys(partitions, Start(0, hold=False))

    def revoked(self, partitions: Sequence[Partition]) -> None: ...

    def lost(self, partitions: Sequence[Partition]) -> None: ...

    def torn(self, came: Collection[Partition], gone: Collection[Partition]) -> None: ...

    def committed(self, offsets: Mapping[Partition, int], fate: Mapping[Partition, CommitFate]) -> None:
        self.answers.append(offsets)

    def reset(self, partition: Partition, offset: int, *, cut: bool = False) -> None: ...

    def overwritten(self, partition: Partition, offset: int) -> None: ...

    store_id = ""


def test_an_assignment_brings_one_record_at_most_in_the_poll_in_which_it_comes(
    kafka: KafkaServer, topic: str, protocol: dict[str, Any]
) -> None:
    produce(kafka, topic, 500)
    source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": topic, **protocol}, assignment="keep")
    owners = {each: Ownership(each, NoSession()) for each in (Partition(topic, 0), Partition(topic, 1))}
    listener = _Begins()
    source.open([topic], listener, owners, Deadline(10))
    polled: Sequence[Record] = ()
    while not listener.assignments:
        polled = source.poll(500, 5.0).records
    assert len(polled) <= 1
    left = 500 - len(polled)
    while left:
        left -= len(source.poll(500, 5.0).records)
    source.close(Deadline(10))


def test_the_answer_to_a_move_back_is_not_told_as_that_of_a_commit(
    kafka: KafkaServer, topic: str, protocol: dict[str, Any]
) -> None:
    """Both may be of one offset: the owner commits it with its mark as soon as it has taken the partition over anew."""
    source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": topic, **protocol}, assignment="keep")
    here = Partition(topic, 0)
    owners = {each: Ownership(each, NoSession()) for each in (here, Partition(topic, 1))}
    listener = _Begins()
    source.open([topic], listener, owners, Deadline(10))
    while not listener.assignments:
        source.poll(1, 1.0)
    source.set_back(here, 3)
    source.commit({here: 4})
    while not listener.answers:
        source.poll(1, 0.1)
    assert listener.answers == [{here: 4}]  # brokers answer in order
    assert kafka.committed(topic, topic)[0] == 4
    source.close(Deadline(10))


@pytest.mark.parametrize("assignment", ["keep", "sticky"])
@pytest.mark.parametrize("dead_letter", [None, "letters"])
def test_a_start_without_a_broker_says_once_what_it_waits_for(
    closed_port: str, assignment: Any, dead_letter: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    source = KafkaSource({"bootstrap.servers": closed_port, "group.id": "waits"}, assignment=assignment)
    letters = source.dead_letters() if dead_letter else None
    app = Holdfast(source, claims=None, settings=Settings(startup_timeout_s=6.0), dead_letters=letters)

    @app.handler("orders", dead_letter=dead_letter)
    def handle(record: Record) -> None:
        pass

    with pytest.raises(SourceUnavailable, match=closed_port):
        app.run()
    [told] = [each for each in caplog.messages if "trying for another" in each]
    assert closed_port in told


def test_the_ends_of_logs_are_learnt_without_waiting(kafka: KafkaServer) -> None:
    kafka.create_topic("ends", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in (0, 0, 0, 1):
        producer.produce("ends", b"x", partition=number)
    assert producer.flush(PATIENCE_S) == 0
    source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": "ends"})
    partitions, deadline = [Partition("ends", 0), Partition("ends", 1)], Deadline(PATIENCE_S)
    while (ends := source.look_at_ends(partitions)) is None:
        assert not deadline.passed
        time.sleep(0.005)
    assert ends == {Partition("ends", 0): 3, Partition("ends", 1): 1}
