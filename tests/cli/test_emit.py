"""`holdfast emit` as a user runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.cli import main
from tests.cli.bench import holdfast, lines
from tests.harness.kafka_brokers import closed_port

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

__all__ = ["closed_port"]

WORK = ("--handler", "0.2", "--workers", "4")


def test_a_live_cluster_is_asked_and_each_place_gets_its_lines(kafka: KafkaServer) -> None:
    told = holdfast("emit", "--bootstrap", kafka.bootstrap, *WORK, "--static-id", "${POD_NAME}").stdout
    assert '    "group.protocol": "consumer",' in told
    assert "group.protocol=consumer" in told.splitlines()
    assert "consumer.session.timeout.ms=45000" in told.splitlines()
    assert '    "group.instance.id": "${POD_NAME}",' in told


def test_a_live_rocketmq_is_asked_too(rocketmq: RocketMQServer) -> None:
    found = lines(holdfast("emit", "--namesrv", rocketmq.namesrv, *WORK, "--json"))
    assert [each["name"] for each in found] == [
        "rocketmq-python",
        "rocketmq-grpc-simple",
        "rocketmq-grpc-push",
    ]
    for each in found:
        assert each["type"] == "settings"
        assert each["settings"].keys() == each["reasons"].keys()


def test_a_version_will_do_and_one_place_may_be_enough() -> None:
    told = holdfast("emit", "--kafka", "3.9", *WORK, "--only", "confluent-kafka", "--format", "properties").stdout
    settings = [line for line in told.splitlines() if not line.startswith("#")]
    assert settings[0] == "partition.assignment.strategy=cooperative-sticky"
    assert all("=" in line for line in settings)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kafka", "4.1", "--handler", "20"), "take at most 14 records a poll"),
        (("--kafka", "4.1", *WORK, "--static-id", "a", "--restart", "90"), "group.consumer.max.session.timeout.ms"),
        (("--kafka", "3.9", *WORK, "--only", "kafka-group"), "no settings are known for it"),
        (("--kafka", "3.9", *WORK, "--protocol", "consumer"), "came with 4.0"),
        (("--kafka", "new", *WORK), "write it as 3.9"),
        (("--rocketmq", "5.5", *WORK, "--protocol", "consumer"), "only for Kafka"),
        (("--rocketmq", "5.5", *WORK, "--workers", "1001"), "1000 at most"),
        (WORK, "name the brokers once"),
        (("--kafka", "4.1", "--rocketmq", "5.5", *WORK), "name the brokers once"),
        (("--kafka", "4.1", *WORK, "--patience", "0"), "--patience=0.0: "),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert len(told.err.splitlines()) == 1


def test_brokers_that_do_not_answer_are_named(closed_port: str) -> None:
    for way in ("--bootstrap", "--namesrv"):
        told = holdfast("emit", way, closed_port, *WORK, "--timeout", "1", code=3).stderr
        assert closed_port in told
        assert "; trying for another 1 s" in told
        assert len(told.splitlines()) == 2
