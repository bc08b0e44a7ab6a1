"""Whether a client has forgotten its brokers, and how it is given up."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.adapters.kafka.callbacks import Callbacks
from holdfast.adapters.kafka.quirks import forgotten
from holdfast.adapters.kafka.quirks.forgotten import Brokers, give_up
from holdfast.errors import SourceUnavailable
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.admin import Admin
    from holdfast.plugin.ports import RebalanceListener


class World:
    """A client, another one, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.client_has = self.others_have = True
        self.asked = 0
        monkeypatch.setattr(forgotten, "SYSTEM_CLOCK", self)
        self.brokers = Brokers(cast("Admin", self), {"bootstrap.servers": "b:1", "reconnect.backoff.max.ms": "10000"})

    def now(self) -> float:
        return self.time

    def list_topics(self, _: str, timeout: float) -> None:
        self.asked += 1
        if not self.client_has:
            self.time += timeout
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def reach(self, _: Deadline) -> str:
        if not self.others_have:
            raise SourceUnavailable("nobody there")
        return "cluster"

    def passes(self, seconds: int) -> bool:
        """Whether the client counts as one that has forgotten its brokers before that time is over."""
        for _ in range(seconds):
            self.time += 1
            if self.brokers.forgotten(cast("Consumer", self)):
                return True
        return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_client_that_is_silent_and_alone_without_an_answer_has_forgotten_them(world: World) -> None:
    world.client_has = False
    assert world.passes(60)
    assert world.asked == 2


def test_one_that_hears_something_is_not_asked(world: World) -> None:
    for _ in range(10):
        assert not world.passes(15)
        world.brokers.heard()
    assert world.asked == 0


def test_one_that_answers_is_only_idle(world: World) -> None:
    assert not world.passes(1_000)
    assert world.asked == 1_000 // 20


def test_where_nobody_has_brokers_none_has_forgotten_them_and_who_comes_back_in_time_has_not(world: World) -> None:
    world.client_has = world.others_have = False
    assert not world.passes(1_000)
    world.others_have = True
    assert not world.passes(15)  # its next attempt to connect is yet to come
    world.client_has = True
    assert not world.passes(1_000)


def test_who_asks_for_its_health_hears_since_when_nobody_answers(world: World) -> None:
    world.passes(19)
    assert world.brokers.silence is None
    world.client_has = False
    world.passes(2)
    assert str(world.brokers.silence) == "Kafka at b:1 has not answered this client for 23 s"
    world.client_has = True
    world.passes(20)
    assert world.brokers.silence is None


def test_what_a_client_calls_that_was_given_up_does_not_count() -> None:
    callbacks = Callbacks("g", "b")
    callbacks.listener = cast("RebalanceListener", SimpleNamespace(lost=lambda _: None))
    seen: list[int] = []
    callbacks.clients += 1
    first = callbacks.of_this_client(seen.append, 1)
    first(1)
    callbacks.given_up()
    first(2)
    callbacks.of_this_client(seen.append, 1)(3)
    assert seen == [1, 3]


class Hanging:
    """A client whose `close` does not return before it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.closed = threading.Event()

    def close(self) -> None:
        self.may.wait(60)
        self.closed.set()


def test_nobody_waits_for_a_client_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    hanging = Hanging()
    give_up(cast("Consumer", hanging), Deadline(0.05))
    assert not hanging.closed.is_set()
    assert "did not close in time" in caplog.text
    hanging.may.set()
    assert hanging.closed.wait(60)
