"""Brokers that have all gone: whoever leaves then waits for no answer of theirs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from holdfast import MemoryClaims
from holdfast.adapters.kafka import KafkaConsumer
from holdfast.adapters.kafka.quirks.forgotten import give_up
from tests.contracts.kafka.test_source import produce
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

    from holdfast.adapters.kafka.source import KafkaSource
    from holdfast.timing import Deadline

pytestmark = pytest.mark.full


@pytest.fixture
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


def test_a_loop_that_ends_while_all_brokers_are_gone_does_not_wait_for_its_last_commit(
    kafka: KafkaServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"cut-off-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    produce(kafka, topic, 1)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    loop = KafkaConsumer(conf, claims=MemoryClaims(), assignment="sticky")
    source: KafkaSource = loop._source
    loop.subscribe([topic])
    until(lambda: loop.poll(0.1))
    assert not source.cut_off()
    kafka.kill_broker()
    until(lambda: loop.poll(0.1) or source.cut_off())
    polls: list[float] = []
    poll = source.poll

    def counted(at_most: int, timeout_s: float) -> object:
        polls.append(timeout_s)
        return poll(at_most, timeout_s)

    monkeypatch.setattr(source, "poll", counted)
    caplog.clear()
    loop.close()
    assert len(polls) < 20  # for the answer to the commit there would be some hundred
    assert "its brokers do not answer; it ends with the process" in caplog.text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_of_a_loop_that_ends_while_all_brokers_are_frozen_the_commit_counts_once_they_wake_up(
    kafka: KafkaServer, protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"frozen-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    produce(kafka, topic, 3)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    loop = KafkaConsumer({**conf, "group.protocol": protocol}, claims=MemoryClaims(), assignment="keep")
    loop.subscribe([topic])
    for _ in range(3):
        until(lambda: loop.poll(0.1))
    given: list[float] = []

    def counted(consumer: Consumer, deadline: Deadline) -> None:
        given.append(deadline.left_s())
        give_up(consumer, deadline)

    monkeypatch.setattr("holdfast.adapters.kafka.source.give_up", counted)
    kafka.pause_broker()
    loop.done()
    loop.close()
    assert "its brokers do not answer; it ends with the process" in caplog.text
    assert max(given) < 1  # what is waited for is no answer of theirs
    kafka.resume_broker()
    until(lambda: kafka.committed(topic, topic) == {0: 3})
