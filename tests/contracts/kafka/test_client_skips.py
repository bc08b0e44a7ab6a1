"""A client that leaves records out, and logs that have holes of their own, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import Producer

from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaConsumer, joining
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.events import ClientSkipped
from tests.contracts.kafka.test_source import PROTOCOLS, Running, produce
from tests.contracts.kafka.test_source import protocol as protocol  # noqa: PLC0414 - a fixture
from tests.contracts.kafka.test_source import topic as topic  # noqa: PLC0414 - a fixture
from tests.harness.audit_events import MemoryEvents, once
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message, TopicPartition

    from tests.harness.servers.kafka import KafkaServer


class Skipping(confluent_kafka.Consumer):
    """Leaves out what a test says, the first time that it has it; and counts seeks after the first record."""

    left_out: ClassVar[set[tuple[int, int]]] = set()
    made: ClassVar[list[Skipping]] = []

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.seeks: list[tuple[int, int]] = []
        self.has_read = False
        self.made.append(self)

    def poll(self, timeout: float = -1) -> Message | None:
        found = super().poll(timeout)
        return next(iter(self._given([found])), None) if found is not None else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return self._given(super().consume(num_messages, timeout))

    def seek(self, partition: TopicPartition) -> None:
        super().seek(partition)
        if self.has_read:
            self.seeks.append((partition.partition, partition.offset))

    def _given(self, messages: list[Message]) -> list[Message]:
        given = []
        for message in messages:
            at = (message.partition() or 0, message.offset() or 0)
            self.has_read = self.has_read or message.error() is None
            if message.error() is None and at in self.left_out:
                self.left_out.discard(at)
                continue
            given.append(message)
        return given


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> type[Skipping]:
    monkeypatch.setattr(Skipping, "left_out", set())
    monkeypatch.setattr(Skipping, "made", [])
    monkeypatch.setattr(joining, "Consumer", Skipping)
    return Skipping


def skipped(*members: Running) -> set[tuple[int, int]]:
    told = [each for member in members for each in member.told(ClientSkipped)]
    return {(each.partition.number, offset) for each in told for offset in range(each.first, each.next)}


def test_what_the_client_leaves_out_is_handled_in_its_order(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any], client: type[Skipping]
) -> None:
    """The first record, one in the midst, the last one (before the client tells the end), and one behind that."""
    client.left_out |= {(0, 0), (1, 29)}
    produce(kafka, topic, 30)
    produce(kafka, topic, 30, partition=1)
    member = Running(kafka, redis_url, topic, topic, protocol | {"auto.offset.reset": "earliest"})
    until(lambda: kafka.committed(topic, topic) == {0: 30, 1: 30})
    client.left_out |= {(0, 37), (1, 30)}
    produce(kafka, topic, 10)
    produce(kafka, topic, 1, partition=1)
    until(lambda: kafka.committed(topic, topic) == {0: 40, 1: 31})
    member.stop()
    assert member.error is None
    assert sorted(member.handled) == [(0, offset) for offset in range(40)] + [(1, offset) for offset in range(31)]
    assert skipped(member) == {(0, 0), (1, 29), (0, 37), (1, 30)}


def test_what_it_leaves_out_at_a_hand_over_is_handled(
    kafka: KafkaServer, redis_url: str, topic: str, protocol: dict[str, Any], client: type[Skipping]
) -> None:
    """As librdkafka did: of the member that stays, or that comes, the first record after the rebalance."""
    produce(kafka, topic, 10)
    produce(kafka, topic, 10, partition=1)
    first = Running(kafka, redis_url, topic, topic, protocol | {"auto.offset.reset": "earliest"})
    until(lambda: kafka.committed(topic, topic) == {0: 10, 1: 10})
    client.left_out |= {(0, 10), (1, 10)}
    second = Running(kafka, redis_url, topic, topic, protocol | {"auto.offset.reset": "earliest"})
    until(
        lambda: all(
            member.app.snapshot().lag == 0 and len(member.app.snapshot().partitions) == 1 for member in (first, second)
        )
    )
    produce(kafka, topic, 5)
    produce(kafka, topic, 5, partition=1)
    until(lambda: kafka.committed(topic, topic) == {0: 15, 1: 15})
    client.left_out |= {(0, 15), (1, 15)}
    first.stop()
    produce(kafka, topic, 5)
    produce(kafka, topic, 5, partition=1)
    until(lambda: kafka.committed(topic, topic) == {0: 20, 1: 20})
    second.stop()
    assert sorted(first.handled + second.handled) == [(at, offset) for at in (0, 1) for offset in range(20)]
    # What was left out right before its partition went is read by its next owner, to whom it is nothing new.
    assert {(0, 10), (1, 10)} <= skipped(first, second) <= {(0, 10), (1, 10), (0, 15), (1, 15)}


def test_a_loop_of_ones_own_gets_it_too(kafka: KafkaServer, topic: str, client: type[Skipping]) -> None:
    client.left_out |= {(0, 3)}
    produce(kafka, topic, 10)
    told = MemoryEvents()
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = KafkaConsumer(conf, claims=MemoryClaims(), audit=told.audit())
    consumer.subscribe([topic])
    got: list[int] = []

    def ten() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            got.append(message.offset() or 0)
        return len(got) == 10

    until(ten)
    consumer.done()
    consumer.close()
    assert got == list(range(10))
    assert told.offsets(Outcome.CLIENT_SKIPPED) == once(3)
    assert told.offsets(Outcome.HANDLED) == once(*range(10))
    assert not told.offsets(Outcome.ABSENT)


def transactions(kafka: KafkaServer, topic: str, count: int, each: int, *, abort: Callable[[int], bool]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    for number in range(count):
        producer.begin_transaction()
        for at in range(each):
            producer.produce(topic, f"{number}-{at}", partition=0)
        producer.flush(PATIENCE_S)  # what has not been sent would be no hole when it is aborted
        (producer.abort_transaction if abort(number) else producer.commit_transaction)(PATIENCE_S)


def test_transactions_cost_one_look_and_are_committed_to_the_end(
    kafka: KafkaServer, redis_url: str, topic: str, client: type[Skipping]
) -> None:
    """Each has a marker behind it; and of those that were aborted nothing is given."""
    transactions(kafka, topic, 100, 4, abort=lambda number: number % 3 == 0)
    member = Running(kafka, redis_url, topic, topic, PROTOCOLS["consumer"] | {"auto.offset.reset": "earliest"})
    until(lambda: kafka.committed(topic, topic).get(0) == 500)
    transactions(kafka, topic, 20, 4, abort=lambda _: False)
    until(lambda: kafka.committed(topic, topic).get(0) == 600)
    member.stop()
    committed = [5 * number + at for number in range(120) for at in range(4) if number % 3 or number >= 100]
    assert sorted(member.handled) == [(0, offset) for offset in committed]
    [made] = client.made
    assert [number for number, _ in made.seeks] == [0]
    assert not skipped(member)


def test_among_transactions_what_is_left_out_at_a_hand_over_is_handled(
    kafka: KafkaServer, redis_url: str, topic: str, client: type[Skipping]
) -> None:
    transactions(kafka, topic, 10, 4, abort=lambda _: False)
    conf = PROTOCOLS["cooperative"] | {"auto.offset.reset": "earliest"}
    first = Running(kafka, redis_url, topic, topic, dict(conf))
    second = Running(kafka, redis_url, topic, topic, dict(conf))
    until(lambda: kafka.committed(topic, topic).get(0) == 50)
    until(lambda: all(len(member.app.snapshot().partitions) == 1 for member in (first, second)))
    stays, goes = (first, second) if first.app.snapshot().partitions[0].partition.number == 0 else (second, first)
    goes.stop()
    until(lambda: len(stays.app.snapshot().partitions) == 2)
    client.left_out |= {(0, 50)}
    transactions(kafka, topic, 5, 4, abort=lambda _: False)
    until(lambda: kafka.committed(topic, topic).get(0) == 75)
    stays.stop()
    assert {offset for number, offset in first.handled + second.handled if number == 0} == {
        offset for offset in range(75) if offset % 5 != 4
    }
    assert skipped(stays) == {(0, 50)}


@pytest.mark.full
def test_a_compacted_log_costs_one_look(kafka: KafkaServer, redis_url: str, topic: str, client: type[Skipping]) -> None:
    name = f"{topic}-compacted"
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0001"}
    kafka.create_topic(name, 1, settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    for number in range(400):
        producer.produce(name, str(number), key=f"k{number if number % 2 else 0}")
        producer.flush(PATIENCE_S)

    def offsets() -> list[int]:
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": f"{name}-look", "enable.partition.eof": True}
        )
        reader.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        found: list[int] = []
        while (message := reader.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(message.offset() or 0)
        reader.close()
        return found

    def is_compacted() -> bool:
        producer.produce(name, "more", key="more")  # a segment is rolled when something comes
        producer.flush(PATIENCE_S)
        return len(offsets()) < 300

    until(is_compacted)
    there = offsets()
    member = Running(kafka, redis_url, name, name, PROTOCOLS["consumer"] | {"auto.offset.reset": "earliest"})
    until(lambda: kafka.committed(name, name).get(0) == there[-1] + 1)
    member.stop()
    assert {offset for _, offset in member.handled} >= set(there)
    [made] = client.made
    assert len(made.seeks) == 1
    assert not skipped(member)
