"""Spark through pyspark: `pip install 'holdfast-mq[spark]'`, Java 17 or 21."""

from holdfast.adapters.spark import writers
from holdfast.adapters.spark.marking import drop_done
from holdfast.adapters.spark.session import require_java, require_kafka
from holdfast.adapters.spark.sink import IdempotentSink, idempotent_sink
from holdfast.adapters.spark.telling import reason
from holdfast.adapters.spark.values import BatchFenced, BatchRefused, BatchReport, BatchWrite, WriteFailed

__all__ = [
    "BatchFenced",
    "BatchRefused",
    "BatchReport",
    "BatchWrite",
    "IdempotentSink",
    "WriteFailed",
    "drop_done",
    "idempotent_sink",
    "reason",
    "require_java",
    "require_kafka",
    "writers",
]
