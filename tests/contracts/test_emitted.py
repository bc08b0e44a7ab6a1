"""What is emitted, held against the real things: both clients of Kafka, its broker, RocketMQ's own classes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from holdfast.timing import Deadline
from holdfast.tools.advice.emit import KafkaBrokers, Sheet, Workload, for_kafka, for_rocketmq
from tests.golden.oracle import ROCKETMQ_LIB, Oracle
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.golden.java_group import JavaGroup
    from tests.harness.servers.kafka import KafkaServer

OLD, NEW = KafkaBrokers.of_version("3.9"), KafkaBrokers.of_version("4.3.1")
WORKLOADS = {
    "plain": Workload(handler_s=0.2, workers=4),
    "killed": Workload(handler_s=0.2, restarts="crash"),
    "static": Workload(handler_s=0.2, static_id="pod-3", restart_s=55),
    "slow": Workload(handler_s=600, polls_meanwhile=True, batch=50, patience_s=30),
}


def sheet(workload: str, brokers: KafkaBrokers, name: str) -> Sheet:
    return next(each for each in for_kafka(WORKLOADS[workload], brokers) if each.name == name)


@pytest.mark.parametrize("brokers", [OLD, NEW], ids=["classic", "consumer"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_confluent_kafka_joins_a_real_group_with_it(kafka: KafkaServer, workload: str, brokers: KafkaBrokers) -> None:
    topic = f"emitted-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 2)
    conf: dict[str, Any] = dict(sheet(workload, brokers, "confluent-kafka").settings)
    conf |= {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "log_level": 0}
    consumer, ends = Consumer(conf), Deadline(PATIENCE_S)
    try:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            assert not ends.passed
            message = consumer.poll(0.1)
            assert message is None, message.error()
    finally:
        consumer.close()
    described = kafka.described(topic)
    assert described.type.name == ("CONSUMER" if brokers is NEW else "CLASSIC")


@pytest.mark.parametrize("brokers", [OLD, NEW], ids=["classic", "consumer"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_javas_consumer_knows_every_key_and_has_nothing_against_it(
    java_group: JavaGroup, workload: str, brokers: KafkaBrokers
) -> None:
    base = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}
    assert java_group.check({**base, **sheet(workload, brokers, "java").settings}) == "ok"


def test_javas_consumer_would_have_said_so(java_group: JavaGroup) -> None:
    base = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}
    assert "queued.min.messages" in java_group.check({**base, "queued.min.messages": 1})
    assert "session.timeout.ms" in java_group.check({**base, "group.protocol": "consumer", "session.timeout.ms": 9000})


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_brokers_take_what_they_are_told_of_the_group(
    java_group: JavaGroup, kafka: KafkaServer, workload: str
) -> None:
    told = sheet(workload, NEW, "kafka-group").settings
    assert java_group.group(kafka.bootstrap, f"told-{workload}", told) == "ok"
    longer = {**told, "consumer.session.timeout.ms": 60_001}
    assert "consumer.session.timeout.ms" in java_group.group(kafka.bootstrap, f"told-{workload}", longer)


def test_rocketmqs_own_classes_know_what_its_broker_is_told() -> None:
    [broker] = for_rocketmq(Workload(handler_s=0.2, restarts="crash"), only="rocketmq-broker")
    with Oracle("RocketMQSetters.java", ROCKETMQ_LIB) as oracle:
        assert oracle.ask("\t".join(f"{key}={value}" for key, value in broker.settings.items())) == "ok"
        assert oracle.ask("channelExpiresTimeout=30000") == "unknown: channelExpiresTimeout"
