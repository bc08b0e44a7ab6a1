"""Brokers for the contracts of the Kafka adapter: the real one, librdkafka's mock cluster, and two that are none."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.kafka import KafkaServer


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """The address of a mock cluster of one broker; it lives as long as its producer."""
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = owner.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    owner.flush(0)


@pytest.fixture(params=["mock", "real"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The same contract on both brokers."""
    if request.param == "mock":
        address: str = request.getfixturevalue("mock_cluster")
        return address
    server: KafkaServer = request.getfixturevalue("kafka")
    return server.bootstrap


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "{}:{}".format(*listening.getsockname())


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address at which nothing listens: taken, so that nobody else gets it meanwhile, and closed."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*taken.getsockname())


def all_of(address: str, topic: str, count: int) -> list[Message]:
    """The first `count` messages of a topic, of all its partitions."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    with contextlib.closing(consumer):
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        messages = consumer.consume(count, timeout=15)
    assert all(message.error() is None for message in messages)
    return messages
