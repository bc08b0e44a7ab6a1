"""Two clusters that have topics and groups of the same names: one Redis for both, and a group that moves."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from holdfast import Holdfast, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from tests.harness.running import Running
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.records import Record

pytestmark = pytest.mark.full

PARTITIONS = 4


class Two(NamedTuple):
    """Of each cluster its server; and the name of topic and group in both."""

    first: KafkaServer
    second: KafkaServer
    name: str


@pytest.fixture(scope="module")
def other() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


@pytest.fixture
def two(kafka: KafkaServer, other: KafkaServer) -> Two:
    name = f"two-{uuid.uuid4().hex[:8]}"
    for server in (kafka, other):
        server.create_topic(name, PARTITIONS)
    return Two(kafka, other, name)


class Member(Running):
    """An app of the group in one of the clusters; a value "bad..." fails for good."""

    def __init__(
        self,
        kafka: KafkaServer,
        redis_url: str,
        name: str,
        *,
        namespace: str = "",
        key: str | None = None,
        retry_topics: bool = False,
    ) -> None:
        super().__init__(threading.Condition(), name)
        self.handled: list[str] = []
        source = KafkaSource({"bootstrap.servers": kafka.bootstrap, "group.id": name}, assignment="sticky")
        claims = RedisClaims.from_url(redis_url, namespace=namespace or name, lease_s=5.0)
        self.app = Holdfast(source, claims=claims, settings=Settings(commit_interval_s=0.2), observers=[self])
        retry = Retry(attempts=1, topics=["1s"] if retry_topics else ())
        self.app.handler(name, key=key, retry=retry, dead_letter=f"{name}.dlq" if retry_topics else None)(self._handle)
        self.start()

    def _handle(self, record: Record) -> None:
        value = (record.value or b"").decode()
        self.handled.append(value)
        if "bad" in value:
            raise RuntimeError(value)


def produce(kafka: KafkaServer, name: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for at, value in enumerate(values):
        producer.produce(name, value, partition=at % PARTITIONS)
    assert producer.flush(30) == 0


def numbered(what: str, count: int = 40) -> list[str]:
    return [f"{what}{number}" for number in range(count)]


def test_each_cluster_has_all_of_its_partitions_read_and_what_is_done_in_one_says_nothing_in_the_other(
    two: Two, redis_url: str
) -> None:
    produce(two.first, two.name, numbered("a"))
    first = Member(two.first, redis_url, two.name)
    until(lambda: len(first.handled) == 40)
    produce(two.second, two.name, numbered("b"))
    second = Member(two.second, redis_url, two.name)  # while the first lives, at offsets that are done there
    until(lambda: len(second.handled) == 40)
    assert len(first.owns) == len(second.owns) == PARTITIONS
    for server, what in ((two.first, "c"), (two.second, "d")):
        produce(server, two.name, numbered(what))
    until(lambda: len(first.handled) == len(second.handled) == 80)
    first.stop()
    second.stop()
    assert sorted(first.handled) == sorted([*numbered("a"), *numbered("c")])
    assert sorted(second.handled) == sorted([*numbered("b"), *numbered("d")])


def test_also_of_their_retry_topics_and_dead_letters(two: Two, redis_url: str) -> None:
    for server in (two.first, two.second):
        server.create_topic(f"{two.name}.dlq", 1)
        server.create_topic(f"{two.name}.{two.name}.retry.1s", 1)
    for server, what in ((two.first, "a"), (two.second, "b")):
        member = Member(server, redis_url, two.name, retry_topics=True)
        produce(server, two.name, [f"bad-{what}1", f"bad-{what}2"])
        until(lambda at=server: at.end_offsets(f"{two.name}.dlq") == {0: 2})  # type: ignore[misc]
        member.stop()
        assert sorted(member.handled) == sorted([f"bad-{what}1", f"bad-{what}2"] * 2)


def test_business_keys_are_shared_unless_a_namespace_keeps_them_apart(two: Two, redis_url: str) -> None:
    """What a group that moves needs, and two that have nothing to do with each other must not have."""
    body = '{"id": 7}'
    produce(two.first, two.name, [body])
    first = Member(two.first, redis_url, two.name, key="id")
    until(lambda: first.handled == [body])
    produce(two.second, two.name, [body, '{"id": 8}'])
    second = Member(two.second, redis_url, two.name, key="id")
    until(lambda: sum(two.second.committed(two.name, two.name).values()) == 2)
    assert second.handled == ['{"id": 8}']
    second.stop()
    two.second.reset(two.name, [TopicPartition(two.name, 0, 0)])
    third = Member(two.second, redis_url, two.name, namespace=f"{two.name}-of-the-second", key="id")
    until(lambda: third.handled == [body])
    third.stop()
    first.stop()


@pytest.mark.parametrize("shift", [0, 3], ids=["offsets are the same", "offsets are translated"])
@pytest.mark.parametrize("redis", ["same", "new"])
def test_a_group_that_moves_goes_on_where_it_stood_though_its_offsets_were_copied_with_their_marks(
    two: Two, redis_url: str, shift: int, redis: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As MirrorMaker 2 does (sync.group.offsets)."""
    produce(two.first, two.name, numbered("a"))
    before = Member(two.first, redis_url, two.name)
    until(lambda: sum(two.first.committed(two.name, two.name).values()) == 40)
    before.stop()
    produce(two.second, two.name, [*numbered("a")[shift * PARTITIONS :], *numbered("b")])
    marked = two.first.committed_raw(two.name, two.name)
    assert all((each.metadata or "").startswith("holdfast:1:10:") for each in marked)
    two.second.reset(
        two.name, [TopicPartition(each.topic, each.partition, 10 - shift, each.metadata) for each in marked]
    )
    after = Member(two.second, redis_url, two.name, namespace=two.name if redis == "same" else f"{two.name}-new")
    until(lambda: len(after.handled) == 40)
    until(lambda: sum(two.second.committed(two.name, two.name).values()) == 80 - shift * PARTITIONS)
    after.stop()
    assert sorted(after.handled) == sorted(numbered("b"))
    lines = [line for line in caplog.messages if "it is honoured" in line]
    assert len(lines) == 1
    assert two.name in lines[0]


def test_a_loop_that_moves_goes_on_where_it_stood_too(two: Two, redis_url: str) -> None:
    def read(kafka: KafkaServer, count: int) -> list[str]:
        found: list[str] = []
        conf = {"bootstrap.servers": kafka.bootstrap, "group.id": two.name, "auto.offset.reset": "earliest"}
        claims = RedisClaims.from_url(redis_url, namespace=two.name)
        with KafkaConsumer(conf, claims=claims, assignment="sticky") as consumer:
            consumer.subscribe([two.name])
            while len(found) < count:
                message = consumer.poll(0.2)
                if message is not None and not message.error():
                    found.append((message.value() or b"").decode())
            consumer.done()
        return found

    produce(two.first, two.name, numbered("a"))
    assert sorted(read(two.first, 40)) == sorted(numbered("a"))
    produce(two.second, two.name, [*numbered("a"), *numbered("b")])
    two.second.reset(two.name, two.first.committed_raw(two.name, two.name))
    assert sorted(read(two.second, 40)) == sorted(numbered("b"))
