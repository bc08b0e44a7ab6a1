"""Kafka by confluent-kafka: `pip install 'holdfast-mq[kafka]'`."""

from holdfast.adapters.kafka.aio_consumer import AIOKafkaConsumer
from holdfast.adapters.kafka.consumer import KafkaConsumer
from holdfast.adapters.kafka.deserializing import DeserializingKafkaConsumer
from holdfast.adapters.kafka.events import KafkaEvents
from holdfast.adapters.kafka.schemas import Avro, JsonSchema, Protobuf
from holdfast.adapters.kafka.share.source import ShareSource
from holdfast.adapters.kafka.source import KafkaSource
from holdfast.adapters.kafka.transactions import Transactions

__all__ = [
    "AIOKafkaConsumer",
    "Avro",
    "DeserializingKafkaConsumer",
    "JsonSchema",
    "KafkaConsumer",
    "KafkaEvents",
    "KafkaSource",
    "Protobuf",
    "ShareSource",
    "Transactions",
]
