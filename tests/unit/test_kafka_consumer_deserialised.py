"""DeserializingKafkaConsumer's `key=`, over a broker in memory: what it is about, and what goes wrong with it."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.error import ValueDeserializationError

from holdfast import MemoryClaims, Settings
from holdfast.adapters.kafka import DeserializingKafkaConsumer, consumer
from holdfast.errors import KeyMissing
from holdfast.testing.brokers.kafka import MemoryBroker
from tests.harness.message_source import MemoryMessageSource

if TYPE_CHECKING:
    from collections.abc import Iterator

CONF = {"group.id": "g", "value.deserializer": lambda raw, _: json.loads(raw)}
NOT_JSON, NO_ID = "not json", '{"no": 1}'


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker(orders=1)
    monkeypatch.setattr(consumer, "MessageSource", functools.partial(MemoryMessageSource, made))
    return made


def polled(loop: DeserializingKafkaConsumer, most: int) -> Iterator[Any]:
    """Values, and what was raised instead of one."""
    for _ in range(most):
        try:
            message = loop.poll(0.2)
        except (ValueDeserializationError, KeyMissing) as error:
            yield type(error)
        else:
            yield message and message.value()


def test_a_field_of_the_deserialised_value_is_the_key(broker: MemoryBroker) -> None:
    broker.produce("orders", 0, *(json.dumps({"id": number}) for number in (7, 8, 7)), NO_ID)
    with DeserializingKafkaConsumer(CONF, claims=MemoryClaims(), key="id") as loop:
        loop.subscribe(["orders"])
        assert list(filter(None, polled(loop, 8))) == [{"id": 7}, {"id": 8}, {"no": 1}]


@pytest.mark.parametrize("key", ["id", lambda record: record.value["id"]])
def test_what_cannot_be_deserialised_is_the_clients_error_and_not_a_missing_key(broker: MemoryBroker, key: Any) -> None:
    broker.produce("orders", 0, '{"id": 7}', NOT_JSON, '{"id": 8}', NO_ID)
    settings = Settings(missing_key="error")
    loop = DeserializingKafkaConsumer(CONF, claims=MemoryClaims(), key=key, settings=settings)
    loop.subscribe(["orders"])
    assert list(filter(None, polled(loop, 8))) == [{"id": 7}, ValueDeserializationError, {"id": 8}, KeyMissing]
    loop.close()
