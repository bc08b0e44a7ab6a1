"""The one place that imports confluent-kafka, so that the error about a missing extra is one sentence."""

from __future__ import annotations

from holdfast.adapters.kafka.quirks.client_version import check
from holdfast.errors import MissingExtraError

try:
    from confluent_kafka import (
        Consumer,
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
        TopicPartition,
        libversion,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # not in its __all__
    from confluent_kafka.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
    from confluent_kafka.serialization import MessageField, SerializationContext
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":  # confluent-kafka is installed, and lacks a package of its own
        raise
    raise MissingExtraError("confluent-kafka", "kafka") from error

check(*libversion())

__all__ = [
    "AdminClient",
    "ConfigResource",
    "ConsumeError",
    "Consumer",
    "ConsumerGroupTopicPartitions",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "Message",
    "MessageField",
    "OffsetSpec",
    "Producer",
    "ResourceType",
    "SerializationContext",
    "TopicCollection",
    "TopicPartition",
    "ValueDeserializationError",
    "libversion",
]
