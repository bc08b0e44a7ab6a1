"""What a new user reads: brokers that are away, topics that are missing."""

from __future__ import annotations

import logging
import os
import re
import socket
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast import Holdfast, MemoryClaims, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.adapters.kafka.callbacks import Callbacks, ClientLog
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.plugin.events import Assigned
from tests.contracts.kafka.test_source import Running
from tests.harness.processes import free_ports
from tests.harness.waiting import until

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer


def app_of(bootstrap: str, redis_url: str, *, startup_timeout_s: float = 30.0) -> Holdfast:
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "billing"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(startup_timeout_s=startup_timeout_s),
    )

    @app.handler(["orders-x", "refunds-x"], retry=Retry(topics=["10s"]), dead_letter="orders-x.dlq")
    def handle(record: object) -> None:
        """Never called."""

    return app


def test_brokers_that_are_away_are_told_in_one_sentence_and_no_topic_is_blamed(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    [port] = free_ports(1)
    caplog.set_level(logging.INFO)
    with pytest.raises(SourceUnavailable) as raised:
        app_of(f"127.0.0.1:{port}", redis_url, startup_timeout_s=6.0).run()
    said = f"127.0.0.1:{port} refuses connections: nothing listens there"
    assert str(raised.value) == f"{said}: check the address, and that the server runs"
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    lines = [each.getMessage() for each in caplog.records if str(port) in each.getMessage()]
    assert [line.partition("; trying for another ")[0] for line in lines] == [
        said,
        f"stopping: {said}: check the address, and that the server runs",
    ]


def test_so_are_they_by_a_consumer_for_a_loop_of_ones_own() -> None:
    [port] = free_ports(1)
    conf = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "billing"}
    with pytest.raises(KafkaException, match="refuses connections: nothing listens there: check the address"):
        KafkaConsumer(conf, claims=None, assignment="sticky", settings=Settings(startup_timeout_s=0.5))


def test_a_loop_that_passes_over_errors_hears_of_a_topic_that_is_missing(
    kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"gone-{uuid.uuid4().hex[:8]}"
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": missing, "error_cb": lambda _: None}
    with KafkaConsumer(conf, claims=MemoryClaims()) as loop:
        loop.subscribe([missing])

        def told() -> list[str]:
            loop.poll(0.1)  # what carries an error is passed over
            said = [each for each in caplog.records if "create the topic, or correct its name" in each.getMessage()]
            return [each.levelname for each in said]

        until(told)
        assert told() == ["WARNING"]  # once; and then each 30 s


def test_all_topics_that_are_missing_are_told_together_with_the_commands_that_make_them(
    kafka: KafkaServer, redis_url: str
) -> None:
    near = f"orders-y-{uuid.uuid4().hex[:4]}"
    kafka.create_topic(near, 1)
    app = app_of(kafka.bootstrap, redis_url)
    app.handler(near[:-1])(lambda record: None)
    with pytest.raises(UnknownTopic) as raised:
        app.run()
    said = str(raised.value)
    for topic in ("orders-x", "refunds-x", "orders-x.dlq", "orders-x.billing.retry.10s", near[:-1]):
        assert f"kafka-topics.sh --bootstrap-server {kafka.bootstrap} --create --topic {topic} " in said
    assert said.count("--topic orders-x.billing.retry.10s ") == 1
    assert f"did you mean {near} for {near[:-1]}?" in said


def test_brokers_that_go_away_in_mid_run_are_told_once_in_a_while() -> None:
    [port] = free_ports(1)
    callbacks = Callbacks("billing", f"127.0.0.1:{port}")
    down, broken = KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._TRANSPORT)
    for _ in range(100):
        callbacks.on_error(down)
        callbacks.on_error(broken)
    told = callbacks.take_trouble()
    assert isinstance(told, SourceUnavailable)
    assert "refuses connections: nothing listens there" in str(told)
    for _ in range(100):
        callbacks.on_error(down)
    assert callbacks.take_trouble() is None


def test_a_member_is_known_by_its_host_and_process_or_as_its_configuration_says(
    kafka: KafkaServer, redis_url: str
) -> None:
    topic = f"names-{uuid.uuid4().hex[:6]}"
    kafka.create_topic(topic, 2)
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0])
    members = [Running(kafka, redis_url, topic, topic, dict(own)) for own in ({}, {"client.id": "mine"})]
    until(lambda: all(each.told(Assigned) for each in members))
    until(lambda: len(kafka.described(topic).members) == 2)
    names = sorted(each.client_id for each in kafka.described(topic).members)
    assert names == sorted([f"{host}-{os.getpid()}", "mine"])
    for member, name in zip(members, (f"{host}-{os.getpid()}", "mine"), strict=True):
        assert member.told(Assigned)[0].member == member.app.snapshot().member == name
        assert f" member={name} " in str(member.told(Assigned)[0])
    for member in members:
        member.stop()


def test_one_of_several_processes_has_its_number_in_its_name() -> None:
    source = KafkaSource({"bootstrap.servers": "a:1", "group.id": "g"}, assignment="sticky")
    source.use_process_number(3)
    assert source.member_name.endswith(f"-{os.getpid()}-3")


def test_what_the_client_writes_with_a_percent_sign_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ClientLog().log(logging.ERROR, "100% of it")
    ClientLog().log(logging.ERROR, "%s of it", "all")
    assert [each.getMessage() for each in caplog.records] == ["100% of it", "all of it"]
