"""Reading a topic from its begin to its end, without a group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.ledger import Where
from tests.scenarios.orders import Order

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALL_S = 15.0


def read_log(bootstrap: str, topic: str) -> Iterator[tuple[Where, Order]]:
    """All orders of a topic. Raises TimeoutError where its end is not reached."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "holdfast-tests-log", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        numbers = consumer.list_topics(topic, timeout=_CALL_S).topics[topic].partitions
        ranges = {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=_CALL_S) for each in numbers
        }
        consumer.assign([TopicPartition(topic, each, low) for each, (low, _) in ranges.items()])
        left = sum(high - low for low, high in ranges.values())
        end_at = time.monotonic() + _CALL_S
        while left > 0:
            if time.monotonic() > end_at:
                msg = f"{left} records of {topic} could not be read back"
                raise TimeoutError(msg)
            for message in consumer.consume(500, 0.2):
                number, offset, value = message.partition(), message.offset(), message.value()
                if number is not None and offset is not None and value is not None and offset < ranges[number][1]:
                    left -= 1
                    yield Where(topic, number, offset), Order.decode(value)
    finally:
        consumer.close()
