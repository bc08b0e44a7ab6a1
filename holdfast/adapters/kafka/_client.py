"""The one place that imports confluent-kafka, so that the error about a missing extra is one sentence; and the way
between its partitions and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka.quirks.client_version import check
from holdfast.errors import MissingExtraError
from holdfast.records import Partition

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

try:
    from confluent_kafka import AcknowledgeType, ShareConsumer
except ImportError:  # older than 2.16.1: everything but share groups works
    AcknowledgeType = ShareConsumer = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

check(*libversion())

__all__ = [
    "AcknowledgeType",
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
    "ShareConsumer",
    "TopicCollection",
    "TopicPartition",
    "ValueDeserializationError",
    "libversion",
    "partition_of",
    "partitions_of",
    "topic_partitions",
]


def partition_of(one: TopicPartition) -> Partition:
    """Convert the binding's partition to ours."""
    return Partition(one.topic, one.partition)


def partitions_of(ones: Iterable[TopicPartition]) -> list[Partition]:
    """Convert the binding's partitions to ours."""
    return [partition_of(one) for one in ones]


def topic_partitions(
    partitions: Iterable[Partition], offsets: Mapping[Partition, int] | None = None
) -> list[TopicPartition]:
    """Convert our partitions to the binding's. Args: offsets: those to put in; None = none."""
    if offsets is None:
        return [TopicPartition(one.topic, one.number) for one in partitions]
    return [TopicPartition(one.topic, one.number, offsets[one]) for one in partitions]
