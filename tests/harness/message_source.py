"""A `KafkaConsumer` over the broker in memory: its source gives the client's own messages."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Message, TopicPartition

from holdfast.adapters.kafka.messages import MessageRecord, UserCallbacks, _failure
from holdfast.plugin.ports import Batch
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.plugin.settings import Settings
    from holdfast.records import Record
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.timing import Deadline


class MemoryMessageSource(MemoryPartitionedSource):
    """What `KafkaConsumer` asks of a `MessageSource`, but for the client itself."""

    def __init__(
        self, broker: MemoryBroker, conf: Mapping[str, Any], *, deserialise: Callable[[Message], None] | None, **_: Any
    ) -> None:
        super().__init__(broker, conf["group.id"])
        self.callbacks = UserCallbacks(self.group, "memory")
        self.error_messages: deque[Message] = deque()
        self._deserialise = deserialise

    def check_settings(self, settings: Settings) -> None: ...

    def build(self, deadline: Deadline) -> None: ...

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        batch = super().poll(max_records, timeout_s)
        return Batch([self._message(record) for record in batch.records], batch.ends)

    def assignment(self) -> list[TopicPartition]:
        """What the loop's own callbacks have been told of."""
        return [TopicPartition(each.topic, each.number) for each in sorted(self.readers)]

    def _message(self, record: Record) -> Record:
        where = record.partition
        message = Message(where.topic, where.number, record.offset, record.key, record.value, list(record.headers))
        made = MessageRecord(where, record.offset, record.fence, message, len(message))
        if self._deserialise is not None:
            made.failure = _failure(self._deserialise, message)
        return cast("Record", made)
