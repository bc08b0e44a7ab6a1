"""Avro, JSON Schema and Protobuf by a real schema registry, on a real Kafka: what others have written is decoded, what
cannot be is a dead letter, and while the registry is away records wait."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from holdfast import Holdfast, Record, RedisClaims, Retry, Settings, record_key
from holdfast.adapters.kafka import Avro, JsonSchema, KafkaSource, Protobuf
from holdfast.plugin.events import RecordFailed
from tests.harness.kafka_brokers import all_of
from tests.harness.protobuf_order import order_class
from tests.harness.running import Running
from tests.harness.servers.schema_registry import SchemaRegistry
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.kafka import KafkaServer

pytestmark = pytest.mark.full

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "order_id", "type": "long"}]})
SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"order_id": {"type": "integer"}},
    }
)
MESSAGE = order_class()


class Order(BaseModel):
    order_id: int


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[Callable[..., Any]]:
    """Makes clients of the registry."""
    with ExitStack() as stack:

        def make(**conf: Any) -> Any:
            made = SchemaRegistryClient({"url": registry.url, **conf})
            stack.callback(made.close)
            return made

        yield make


def as_avro(client: Callable[..., Any], **conf: Any) -> tuple[Any, Callable[..., Any]]:
    serialise = AvroSerializer(client(), AVRO)
    value = Avro(client(**conf), from_dict=Order.model_validate)
    return value, lambda number, at: serialise({"order_id": number}, at)


def as_json(client: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    serialise = JSONSerializer(SCHEMA, client())
    value = JsonSchema(client(), from_dict=Order.model_validate)
    return value, lambda number, at: serialise({"order_id": number}, at)


def as_protobuf(client: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    serialise = ProtobufSerializer(MESSAGE, client(), {"use.deprecated.format": False})
    return Protobuf(MESSAGE, client()), lambda number, at: serialise(MESSAGE(order_id=number), at)


class Shop:
    """An app that handles a topic's orders, and what it has handled."""

    def __init__(self, kafka: KafkaServer, redis_url: str, value: Any, **handling: Any) -> None:
        name = uuid.uuid4().hex[:8]
        self.kafka, self.topic, self.letters = kafka, f"orders-{name}", f"letters-{name}"
        kafka.create_topic(self.topic, 1)
        kafka.create_topic(self.letters, 1)
        self.handled: list[int] = []
        self._claims = RedisClaims.from_url(redis_url, namespace=name)
        self._member = Running(threading.Condition())
        conf = {"bootstrap.servers": kafka.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
        source, observers = KafkaSource(conf, assignment="sticky"), [self._member]
        app = Holdfast(source, claims=self._claims, settings=Settings(ramp=None), observers=observers)
        self._member.app = app

        def bill(order: Any, record: Record) -> None:
            self.handled.append(order.order_id)

        app.handler(self.topic, value=value, key=record_key(), dead_letter=self.letters, **handling)(bill)

    def produce(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for number, each in enumerate(values):
            producer.produce(self.topic, each, key=b"key %d" % number)
        assert producer.flush(PATIENCE_S) == 0

    @property
    def failed(self) -> list[str]:
        return [each.error for each in self._member.told(RecordFailed)]

    def __enter__(self) -> Self:
        self._member.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._member.stop()
        self._claims.close()


@pytest.mark.parametrize("form", [as_avro, as_json, as_protobuf])
def test_what_a_registrys_serialiser_has_written_is_decoded_and_an_unknown_schema_is_a_letter(
    kafka: KafkaServer, redis_url: str, client: Callable[..., Any], form: Any
) -> None:
    value, serialise = form(client)
    shop = Shop(kafka, redis_url, value)
    at = SerializationContext(shop.topic, MessageField.VALUE)
    values = [serialise(number, at) for number in range(4)]
    unknown = b"\0" + (999_999).to_bytes(4, "big") + values[0][5:]
    with shop:
        shop.produce(values[0], unknown, *values[1:])
        until(lambda: len(shop.handled) == len(values), lambda: f"{shop.handled}, {shop.failed}")
        [letter] = all_of(kafka.bootstrap, shop.letters, 1)
    assert sorted(shop.handled) == [0, 1, 2, 3]
    said = dict(letter.headers() or ())
    assert (letter.value(), said["holdfast-schema-id"]) == (unknown, b"999999")
    # At the first attempt: the registry has answered that it does not know it.
    assert (said["holdfast-error-type"], said["holdfast-attempts"]) == (b"holdfast.errors.RecordUnreadable", b"1")


def test_while_the_registry_does_not_answer_records_are_tried_again_and_then_handled(
    kafka: KafkaServer, redis_url: str, registry: SchemaRegistry, client: Callable[..., Any]
) -> None:
    value, serialise = as_avro(client, **{"timeout": 1, "max.retries": 0})
    shop = Shop(kafka, redis_url, value, retry=Retry(attempts=1_000, wait_max_s=0.1))
    written = serialise(7, SerializationContext(shop.topic, MessageField.VALUE))
    registry.pause()
    try:
        with shop:
            shop.produce(written)
            until(lambda: bool(shop.failed), lambda: "it has not failed")
            assert not shop.handled
            registry.resume()
            until(lambda: shop.handled == [7], lambda: f"{shop.handled}, {shop.failed}")
    finally:
        registry.resume()
    assert all("RegistryUnavailable" in each for each in shop.failed)
    assert kafka.end_offsets(shop.letters) == {0: 0}
