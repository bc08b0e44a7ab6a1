"""What the command line's tools ask of a broker: offsets of a group that nobody consumes, letters in a topic."""

from __future__ import annotations

import contextlib
import random
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool
from holdfast.adapters.kafka.tools.offsets import KafkaOffsetTool
from holdfast.errors import DeadLetterRefused, GroupActive, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import Committed
from holdfast.records import Partition
from holdfast.timing import Deadline
from holdfast.tools.ports import Outgoing
from tests.harness.kafka_brokers import all_of, closed_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.kafka.tools.topics import TopicView
    from tests.harness.servers.kafka import KafkaServer

__all__ = ["closed_port"]

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000


def now() -> Deadline:
    return Deadline(20)


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """Two partitions; the first has ten records, one an hour from noon on."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 2, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for hour in range(10):
        producer.produce(name, value=str(hour), partition=0, timestamp=NOON_MS + hour * HOUR_MS)
    assert producer.flush(20) == 0
    return name


@pytest.fixture
def tool(kafka: KafkaServer) -> Iterator[KafkaOffsetTool]:
    conf = {"bootstrap.servers": kafka.bootstrap, "session.timeout.ms": 6_000}  # as a consumer's may be
    with contextlib.closing(KafkaOffsetTool(conf, f"group-{uuid.uuid4().hex[:8]}")) as made:
        yield made


@pytest.fixture
def box(kafka: KafkaServer) -> Iterator[KafkaDeadLetterTool]:
    with contextlib.closing(KafkaDeadLetterTool({"bootstrap.servers": kafka.bootstrap})) as made:
        yield made


def test_offsets_of_a_log_are_found_by_its_ends_and_by_time(tool: KafkaOffsetTool, topic: str) -> None:
    full, empty = tool.partitions(topic, now())
    assert tool.first_offsets([full, empty], now()) == {full: 0, empty: 0}
    assert tool.last_offsets([full, empty], now()) == {full: 10, empty: 0}
    for when_ms, offset in (
        (0, 0),
        (NOON_MS, 0),
        (NOON_MS + 1, 1),
        (NOON_MS + 9 * HOUR_MS, 9),
        (NOON_MS + 10 * HOUR_MS, 10),
    ):
        assert tool.offsets_at([full, empty], when_ms, now()) == {full: offset, empty: 0}


def test_offsets_that_are_set_are_read_back_and_are_not_taken_for_the_apps_own(
    tool: KafkaOffsetTool, topic: str, kafka: KafkaServer
) -> None:
    full, empty = tool.partitions(topic, now())
    assert tool.committed([full, empty], now()) == {full: None, empty: None}
    assert tool.members([], now()) == []
    tool.set({full: 7}, now())
    assert tool.committed([full, empty], now()) == {full: Committed(7, ours=False), empty: None}
    [set_by, _] = kafka.committed_raw(tool.group, topic)
    assert not (set_by.metadata or "").startswith("holdfast:")


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_a_group_that_has_members_is_told_and_cannot_be_set(
    tool: KafkaOffsetTool, topic: str, kafka: KafkaServer, protocol: str
) -> None:
    own = {
        "eager": {"partition.assignment.strategy": "range"},
        "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
        "consumer": {"group.protocol": "consumer"},
    }[protocol]
    partitions = tool.partitions(topic, now())
    member = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": tool.group,
            "client.id": "till",
            "enable.auto.commit": False,
            "log_level": 0,
            **own,
        }
    )
    with contextlib.closing(member):
        member.subscribe([topic])
        until = now()
        while not member.assignment():
            member.poll(0.1)
            assert not until.passed
        [found] = tool.members([], now())
        assert (found.client, found.partitions) == ("till", tuple(partitions))
        with pytest.raises(GroupActive, match=tool.group):
            tool.set({partitions[0]: 7}, now())
    assert tool.committed(partitions, now())[partitions[0]] is None


def test_a_topic_that_is_missing_is_told_and_not_made(tool: KafkaOffsetTool, kafka: KafkaServer) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        tool.partitions("no-such-topic", now())
    assert kafka.partitions("no-such-topic") == []


def test_no_answer_is_told_in_time(closed_port: str) -> None:
    view: TopicView
    for view in (
        KafkaOffsetTool({"bootstrap.servers": closed_port}, "g"),
        KafkaDeadLetterTool({"bootstrap.servers": closed_port}),
    ):
        with contextlib.closing(view), pytest.raises(SourceUnavailable, match=closed_port):
            view.partitions("t", Deadline(0.5))


def test_a_log_is_read_from_start_to_end_and_no_further(box: KafkaDeadLetterTool, topic: str) -> None:
    full, empty = box.partitions(topic, now())
    starts, ends = {full: 2, empty: 0}, {full: 6, empty: 0}
    assert [record.offset for batch in box.read(starts, ends, 20) for record in batch] == [2, 3, 4, 5]
    assert list(box.read(ends, ends, 20)) == []
    assert [record.value for batch in box.read({full: 9}, {full: 10}, 20) for record in batch] == [b"9"]


def test_letters_that_a_replica_does_not_have_yet_are_waited_for(
    box: KafkaDeadLetterTool, topic: str, kafka: KafkaServer
) -> None:
    """As from a follower, or a leader that is new: the log ends there before the end that the leader has told."""
    full = Partition(topic, 0)
    found: list[int] = []
    with pytest.raises(SourceUnavailable, match="nothing came"):
        found += [record.offset for batch in box.read({full: 8}, {full: 11}, 1) for record in batch]
    reading = box.read({full: 8}, {full: 11}, 20)
    while not found:
        found += [record.offset for record in next(reading)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value="late", partition=0)
    assert producer.flush(20) == 0
    found += [record.offset for batch in reading for record in batch]
    assert found == [8, 9, 10]


def test_a_log_that_ends_with_a_transactions_marker_is_read_to_its_end(
    box: KafkaDeadLetterTool, kafka: KafkaServer
) -> None:
    topic = f"tools-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "enable.idempotence": True, "log_level": 0}
    )
    producer.init_transactions(20)
    for committed in (True, False):
        producer.begin_transaction()
        producer.produce(topic, value=str(committed))
        producer.flush(20)
        (producer.commit_transaction if committed else producer.abort_transaction)(20)
    partitions = box.partitions(topic, now())
    firsts, ends, patience = box.first_offsets(partitions, now()), box.last_offsets(partitions, now()), now()
    while list(ends.values()) != [4]:  # who aborts is answered before the log has the marker
        assert not patience.passed, ends
        ends = box.last_offsets(partitions, now())
    assert [record.value for batch in box.read(firsts, ends, 20) for record in batch] == [b"True"]


def test_each_letter_has_its_own_answer(box: KafkaDeadLetterTool, topic: str, kafka: KafkaServer) -> None:
    target = f"small-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(target, 3, {"max.message.bytes": "2000"})
    [first, second, third, *_] = [
        record for batch in box.read({Partition(topic, 0): 0}, {Partition(topic, 0): 10}, 20) for record in batch
    ]
    large = second._replace(value=random.Random(7).randbytes(5_000))  # which no compression makes small
    letters = [
        Outgoing(first, target, Partition(target, 2)),
        Outgoing(large, target, None),
        Outgoing(third, target, Partition(target, 1)),
    ]
    none, refused, also_none = box.send(letters, Deadline(40))
    assert (none, also_none) == (None, None)
    assert isinstance(refused, DeadLetterRefused)
    assert "max.message.bytes" in str(refused)
    assert kafka.end_offsets(target) == {0: 0, 1: 1, 2: 1}
    assert {copy.value() for copy in all_of(kafka.bootstrap, target, 2)} == {b"0", b"2"}
