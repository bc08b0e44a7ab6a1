"""The one place that imports confluent-kafka, so that a missing extra is said in one sentence."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
        TopicPartition,
        libversion,
    )
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":  # it is there and lacks something of its own: that message is better
        raise
    raise MissingExtraError("confluent-kafka", "kafka") from error

__all__ = [
    "AdminClient",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "TopicCollection",
    "TopicPartition",
    "libversion",
]
