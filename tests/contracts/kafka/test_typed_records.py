"""Handlers with `value=` on a real Kafka: a record in the middle that cannot be decoded is a dead letter with its raw
bytes, and all others are handled."""

from __future__ import annotations

import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pydantic import BaseModel

from holdfast import Holdfast, Record, RedisClaims, Settings, record_key
from holdfast.adapters.kafka import Avro, KafkaSource
from tests.harness.kafka_brokers import all_of
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "order_id", "type": "long"}]})
#: In the middle of the others. It names schema 1, and is too short for it.
RAW = b"\0\0\0\0\1\xff"


class Order(BaseModel):
    order_id: int


def as_json(topic: str) -> tuple[Any, list[bytes]]:
    return Order, [b'{"order_id": %d}' % number for number in range(6)]


def as_avro(topic: str) -> tuple[Any, list[bytes]]:
    pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - of an extra
    from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - as above
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415 - as above

    client = SchemaRegistryClient.new_client({"url": "mock://"})
    serialise, context = AvroSerializer(client, AVRO), SerializationContext(topic, MessageField.VALUE)
    values = [serialise({"order_id": number}, context) or b"" for number in range(6)]
    return Avro(client, from_dict=Order.model_validate), values


@pytest.mark.parametrize("form", [as_json, as_avro])
@pytest.mark.parametrize("is_async", [False, True])
def test_one_in_the_middle_is_a_letter_with_its_raw_bytes_and_the_others_are_handled(
    kafka: KafkaServer, redis_url: str, form: Any, is_async: bool
) -> None:
    name = uuid.uuid4().hex[:8]
    topic, letters, group = f"orders-{name}", f"letters-{name}", f"group-{name}"
    kafka.create_topic(topic, 1)
    kafka.create_topic(letters, 1)
    value, values = form(topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, each in enumerate([*values[:3], RAW, *values[3:]]):
        producer.produce(topic, each, key=b"key %d" % number, headers=[("number", str(number))])
    assert producer.flush(PATIENCE_S) == 0

    handled: dict[int, int | None] = {}
    all_handled = threading.Event()

    def plain(order: Order, record: Record) -> None:
        handled[order.order_id] = record.header("number", int)
        if len(handled) == len(values):
            all_handled.set()

    async def coroutine(order: Order, record: Record) -> None:
        plain(order, record)

    claims = RedisClaims.from_url(redis_url, namespace=group)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    member = Running(threading.Condition())
    app = member.app = Holdfast(
        KafkaSource(conf, assignment="sticky"), claims=claims, settings=Settings(ramp=None), observers=[member]
    )
    app.handler(topic, value=value, key=record_key(), dead_letter=letters)(coroutine if is_async else plain)
    member.start()
    assert all_handled.wait(PATIENCE_S)
    [letter] = all_of(kafka.bootstrap, letters, 1)
    member.stop()  # drains, and commits
    claims.close()

    assert handled == {0: 0, 1: 1, 2: 2, 3: 4, 4: 5, 5: 6}
    assert kafka.committed(group, topic) == {0: 7}
    said = dict(letter.headers() or ())
    assert (letter.value(), letter.key(), said["number"]) == (RAW, b"key 3", b"3")
    assert said["holdfast-error-type"] == b"holdfast.errors.RecordUnreadable"
    assert said["holdfast-attempts"] == b"1"
    assert b"offset 3 cannot be decoded by" in (said["holdfast-error-message"] or b"")
    assert said.get("holdfast-schema-id") == (b"1" if form is as_avro else None)
