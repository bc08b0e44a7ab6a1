"""Partitions that nobody owns, on a real broker: a loop of one's own joins anew too, and stays the member that it was.

A whole app, killed and started again, is in `tests/stories`. Here the killed process is a client that never returns
from its on_revoke: the broker cannot tell them apart.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from holdfast import Settings
from holdfast.adapters.kafka import KafkaConsumer
from holdfast.plugin.events import SourceTrouble
from tests.contracts.kafka.test_source import PROTOCOLS, produce
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.events import Event
    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full

_PARTITIONS = 4


class Loop:
    """A consumer that is polled in a thread of its own."""

    def __init__(self, consumer: Any, topic: str, **callbacks: Callable[..., object]) -> None:
        self.consumer, self.read, self.has = consumer, 0, set[int]()
        self._over = threading.Event()
        consumer.subscribe([topic], **callbacks)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)
        self.consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self.consumer.poll(0.05)
            self.read += message is not None and message.error() is None
            self.has = {each.partition for each in self.consumer.assignment()}


class Told:
    """An observer."""

    def __init__(self) -> None:
        self.trouble: list[str] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, SourceTrouble):
            self.trouble.append(event.error)


def test_a_loop_of_ones_own_joins_anew_and_its_on_revoke_is_called(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.kafka.quirks.unowned._FIRST_S", 0.5)
    topic = f"unowned-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, _PARTITIONS)
    plain = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    conf = plain | PROTOCOLS["cooperative"] | {"session.timeout.ms": 30_000}
    static = conf | {"group.instance.id": "one"}
    goes_on, revokes, revoked = threading.Event(), threading.Event(), list[int]()

    def block(*_: object) -> None:
        revokes.set()
        goes_on.wait(60)

    killed = Loop(Consumer(static), topic, on_revoke=block)
    until(lambda: len(killed.has) == _PARTITIONS)
    other = Loop(Consumer(conf), topic)
    until(revokes.is_set)
    told = Told()
    settings = Settings(missing_key="position", drain_timeout_s=0.5)
    again = Loop(
        KafkaConsumer(static, claims=None, settings=settings, observers=[told]),
        topic,
        on_revoke=lambda _, gone: revoked.extend(each.partition for each in gone),
    )
    until(lambda: len(again.has) == len(other.has) == _PARTITIONS / 2)
    assert len(revoked) == _PARTITIONS / 2
    [line] = told.trouble
    assert "no member owns" in line
    before = other.read + again.read
    for partition in range(_PARTITIONS):
        produce(kafka, topic, 10, partition)
    until(lambda: other.read + again.read == before + 10 * _PARTITIONS)
    again.end()
    # Who comes back is still a member: it gave its partitions up without leaving.
    found = kafka.described(topic)
    assert sorted(str(member.group_instance_id) for member in found.members) == ["None", "one"]
    other.end()
    goes_on.set()
    killed.end()
