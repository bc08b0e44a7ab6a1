"""arroyo, as in its "Getting started": RunTask before CommitOffsets, with the commit policy that its page on offsets
names for those who are not sure.

python -m tests.benchmarks.peers.sentry_arroyo BOOTSTRAP TOPIC GROUP RECORDS
"""

from __future__ import annotations

import sys
from typing import Any

from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask
from arroyo.types import Topic

from tests.benchmarks.peers.told import told


class _Factory(ProcessingStrategyFactory):  # type: ignore[misc]  # arroyo is in another environment than mypy
    def __init__(self, records: int) -> None:
        self._count = told(records)

    def create_with_partitions(self, commit: Any, partitions: Any) -> Any:
        return RunTask(self._count.one, CommitOffsets(commit))


def main(bootstrap: str, topic: str, group: str, records: int) -> None:
    """Consume that many records of a topic, and end the process."""
    conf = build_kafka_consumer_configuration(
        default_config={}, bootstrap_servers=[bootstrap], auto_offset_reset="earliest", group_id=group
    )
    StreamProcessor(
        consumer=KafkaConsumer(conf),
        topic=Topic(topic),
        processor_factory=_Factory(records),
        commit_policy=ONCE_PER_SECOND,
    ).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
