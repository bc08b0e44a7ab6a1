"""Scenarios on Kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.group.ground import Commit
from tests.harness.group.ledger import Where
from tests.harness.group.orders import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

    from tests.harness.group.ground import Placed
    from tests.harness.servers.kafka import KafkaServer

_WATCH_S = 5.0
_READ_S = 15.0


class KafkaGround:
    """One broker, or several."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server

    @property
    def address(self) -> str:
        return self.server.bootstrap

    @property
    def log(self) -> str:
        return self.server.log

    def create_topic(self, name: str, partitions: int) -> None:
        self.server.create_topic(name, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self.server.add_partitions(topic, partitions)

    def partitions(self, topic: str) -> list[int]:
        return self.server.partitions(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self.server.end_offsets(topic)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return self.server.committed(group, topic)

    def read(self, topic: str) -> Iterator[tuple[Where, Order]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "holdfast-tests-log",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            numbers = consumer.list_topics(topic, timeout=_READ_S).topics[topic].partitions
            ranges = {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=_READ_S) for each in numbers
            }
            consumer.assign([TopicPartition(topic, each, low) for each, (low, _) in ranges.items()])
            left = sum(high - low for low, high in ranges.values())
            end_at = time.monotonic() + _READ_S
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

    def sender(self) -> KafkaSender:
        return KafkaSender(self.address)

    def watch(self, group: str) -> KafkaWatch:
        return KafkaWatch(self.address, group)

    def close(self) -> None:
        pass


class KafkaSender:
    """An idempotent producer: a retry inside the client must not look like two orders."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1_000,  # partitions that are added get their share
            }
        )

    def send(self, topic: str, order: Order, partition: int | None, placed: Placed) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            number, offset = message.partition(), message.offset()
            if error is not None:
                placed(None, str(error))
            elif number is None or offset is None:  # a batch that was acknowledged in a retry
                placed(None, None)
            else:
                placed(Where(topic, number, offset), None)

        number = -1 if partition is None else partition
        self._producer.produce(topic, order.encode(), order.lane, partition=number, on_delivery=acknowledged)
        self._producer.poll(0)

    def flush(self, within_s: float) -> int:
        return self._producer.flush(within_s)

    @property
    def refusals(self) -> dict[str, int]:
        return {}  # the client tries again by itself

    def close(self) -> None:
        self._producer.close()


class KafkaWatch:
    """A client of its own, which never joins the group."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )

    def committed(self, topic: str, partitions: Sequence[int]) -> dict[int, Commit] | None:
        try:
            found = self._consumer.committed([TopicPartition(topic, each) for each in partitions], timeout=_WATCH_S)
        except KafkaException:
            return None
        return {each.partition: Commit(each.offset, each.metadata) for each in found if each.offset >= 0}

    def close(self) -> None:
        self._consumer.close()
