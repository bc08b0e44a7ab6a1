"""Ready is who is a member, as a real broker sees it: under each protocol, with partitions and without."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from tests.contracts.kafka.test_source import PROTOCOLS, Running
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"ready-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 1)
    return name


@pytest.fixture(scope="module")
def small() -> Iterator[KafkaServer]:
    """A broker whose groups are full with one member."""
    full = dict.fromkeys(("group.max.size", "group.consumer.max.size"), "1")
    with KafkaServer(properties={**full, "group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def member_is_ready(member: Running) -> Callable[[], bool]:
    return lambda: member.app.health().ready


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_a_member_that_the_group_gives_nothing_is_ready(
    kafka: KafkaServer, redis_url: str, topic: str, name: str
) -> None:
    members = [Running(kafka, redis_url, topic, topic, PROTOCOLS[name]) for _ in range(2)]
    for member in members:
        until(member_is_ready(member))
    until(lambda: sorted(len(each.source._callbacks.assigned) for each in members) == [0, 1])
    assert all(each.app.health().ready for each in members)
    for each in members:
        each.stop()


def test_a_member_whose_join_is_held_back_is_not_ready(kafka: KafkaServer, redis_url: str, topic: str) -> None:
    """A classic group waits for its members until they poll, and one is busy."""
    protocol = {"partition.assignment.strategy": "range", "session.timeout.ms": 6000}
    busy = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, **protocol})
    busy.subscribe([topic])
    until(lambda: busy.poll(0.1) is not None or busy.assignment())
    member = Running(kafka, redis_url, topic, topic, protocol)
    until(lambda: kafka.described(topic).state.name == "PREPARING_REBALANCING")
    health = member.app.health()
    assert (health.live, health.ready, health.state) == (True, False, "joining")
    until(lambda: member.app.health().ready, meanwhile=lambda: busy.poll(0.05))
    busy.close()
    member.stop()


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_a_member_that_a_full_group_refuses_is_not_ready_and_says_why(
    small: KafkaServer, redis_url: str, name: str
) -> None:
    topic = f"ready-{uuid.uuid4().hex[:8]}"
    small.create_topic(topic, 1)
    first = Running(small, redis_url, topic, topic, PROTOCOLS[name])
    until(lambda: first.app.health().ready)
    second = Running(small, redis_url, topic, topic, PROTOCOLS[name])
    refused = until(lambda: [each for each in second.app.health().reasons if "maximum size" in each])
    assert refused[0].startswith("joining: the group has not let this member in for ")
    assert not second.app.health().ready
    first.stop()
    until(lambda: second.app.health().ready)
    second.stop()


@pytest.mark.full
def test_a_static_member_whose_name_is_still_anothers_is_not_ready(
    kafka: KafkaServer, redis_url: str, topic: str
) -> None:
    protocol: dict[str, Any] = PROTOCOLS["consumer"] | {"group.instance.id": "one"}
    first = Running(kafka, redis_url, topic, topic, protocol)
    until(lambda: first.app.health().ready)
    second = Running(kafka, redis_url, topic, topic, protocol)
    until(lambda: [each for each in second.app.health().reasons if "is still another member's" in each])
    assert not second.app.health().ready
    first.stop(leave=True)
    until(lambda: second.app.health().ready)
    second.stop(leave=True)
