"""Kafka by confluent-kafka: `pip install 'holdfast[kafka]'`."""

from holdfast.adapters.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
