"""Clients whose brokers were fenced for a moment, on a real broker behind a wire that says so: they forget all brokers.

`metadata.recovery.strategy=none` lets one such answer do it; by default it takes some in a row, and luck.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from holdfast import Settings
from holdfast.adapters.kafka import KafkaConsumer, dead_letter
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.adapters.kafka.quirks import forgotten
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.errors import DeadLetterError, SourceUnavailable
from holdfast.plugin.events import SourceTrouble
from holdfast.timing import Deadline
from tests.contracts.kafka.test_dead_letters import letter
from tests.contracts.kafka.test_source import Running, produce
from tests.contracts.kafka.test_source import protocol as protocol  # noqa: PLC0414 - a fixture
from tests.contracts.kafka.test_unowned import Loop, Told
from tests.harness.servers.kafka import KafkaServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.kafka_wire import KafkaWire

    Forget = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.full

_PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer(lines=1) as server:
        yield server


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"forgotten-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, _PARTITIONS)
    return name


@pytest.fixture
def conf(kafka: KafkaServer) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.address(0),
        "metadata.recovery.strategy": "none",
        "topic.metadata.refresh.interval.ms": 200,
        "reconnect.backoff.max.ms": 500,
    }


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "_SILENT_S", 2.0)


@pytest.fixture
def forget(kafka: KafkaServer) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Whoever asks for metadata is told of no brokers, until a client says that it has none."""
    wire: KafkaWire
    [wire] = kafka.wires(0)

    def until_so(has_none: Callable[[], object]) -> None:
        wire.fenced.set()
        until(has_none)
        wire.fenced.clear()

    yield until_so
    wire.fenced.clear()


def test_a_member_ends_though_its_last_commit_has_no_answer(
    kafka: KafkaServer, redis_url: str, topic: str, conf: dict[str, Any], protocol: dict[str, Any]
) -> None:
    [wire] = kafka.wires(0)
    app = Running(kafka, redis_url, topic, topic, conf | protocol | {"auto.offset.reset": "earliest"})
    produce(kafka, topic, 10)
    until(lambda: kafka.committed(topic, topic) == {0: 10, 1: 0})
    wire.deaf.set()
    try:
        produce(kafka, topic, 10)
        until(lambda: len(app.handled) == 20)
        app.stop()
    finally:
        wire.deaf.clear()
    assert kafka.committed(topic, topic) == {0: 10, 1: 0}
    assert app.error is None


class Down:
    """An error_cb of the application."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self, error: KafkaError) -> None:
        self.told = self.told or error.code() == KafkaError._ALL_BROKERS_DOWN

    def is_so(self) -> bool:
        return self.told


def test_an_app_makes_a_new_client_and_goes_on_where_it_was(
    kafka: KafkaServer, redis_url: str, topic: str, conf: dict[str, Any], protocol: dict[str, Any], forget: Forget
) -> None:
    down = Down()
    app = Running(kafka, redis_url, topic, topic, conf | protocol | {"auto.offset.reset": "earliest", "error_cb": down})
    for partition in range(_PARTITIONS):
        produce(kafka, topic, 10, partition)
    until(lambda: len(app.handled) == 20)
    assert app.app.health().reasons == ()
    forget(down.is_so)
    until(lambda: any("has not answered this client" in reason for reason in app.app.health().reasons))
    for partition in range(_PARTITIONS):
        produce(kafka, topic, 10, partition)
    until(lambda: len(app.handled) == 40)
    assert len(set(app.handled)) == 40
    assert app.app.health().reasons == ()
    assert any("has forgotten its brokers" in str(event.error) for event in app.told(SourceTrouble))
    app.stop()


def test_a_loop_of_ones_own_too_and_its_on_lost_is_called(
    kafka: KafkaServer, topic: str, conf: dict[str, Any], protocol: dict[str, Any], forget: Forget
) -> None:
    told, lost, down = Told(), list[int](), Down()
    own = conf | protocol | {"group.id": topic, "auto.offset.reset": "earliest", "error_cb": down}
    loop = Loop(
        KafkaConsumer(own, claims=None, settings=Settings(missing_key="position"), observers=[told]),
        topic,
        on_lost=lambda _, gone: lost.extend(each.partition for each in gone),
    )
    produce(kafka, topic, 10)
    until(lambda: loop.read == 10)
    forget(down.is_so)
    until(lambda: any("has not answered this client" in reason for reason in loop.consumer.health().reasons))
    produce(kafka, topic, 10)
    until(lambda: loop.read == 20)
    assert sorted(lost) == [0, 1]
    assert any("has forgotten its brokers" in each for each in told.trouble)
    loop.end()


def test_a_letter_that_could_not_be_sent_for_so_long_is_sent_by_a_new_producer(
    topic: str, conf: dict[str, Any], monkeypatch: pytest.MonkeyPatch, forget: Forget
) -> None:
    monkeypatch.setitem(dead_letter._OWN, "message.timeout.ms", 2_000)
    letters = KafkaDeadLetters(conf)
    letters.send(letter(topic), Deadline(20))
    forget(lambda: letters._running and letters._running[False].met)
    with pytest.raises(DeadLetterError):
        letters.send(letter(topic, 1), Deadline(20))
    letters.send(letter(topic, 1), Deadline(20))
    letters.close(Deadline(20))


def test_questions_are_asked_by_a_new_client_after_one_without_an_answer(
    topic: str, conf: dict[str, Any], forget: Forget
) -> None:
    ids = TopicIds(Admin(conf))
    first = ids.of([topic], Deadline(20))
    forget(lambda: _fails(lambda: ids.of([topic], Deadline(0.5))))
    assert _fails(lambda: ids.of([topic], Deadline(2)))
    assert ids.of([topic], Deadline(20)) == first


def _fails(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except SourceUnavailable:
        return True
    return False
