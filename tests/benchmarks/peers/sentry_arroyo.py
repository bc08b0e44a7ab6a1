"""arroyo, as in its "Getting started": RunTask before CommitOffsets, with the commit policy that its page on offsets
names for those who are not sure.

python -m tests.benchmarks.peers.sentry_arroyo BOOTSTRAP TOPIC GROUP RECORDS
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask, RunTaskInThreads
from arroyo.types import Topic

from tests.benchmarks.peers.told import told

if TYPE_CHECKING:
    from collections.abc import Callable


class _Factory(ProcessingStrategyFactory):  # type: ignore[misc]  # arroyo is in another environment than mypy
    def __init__(self, handle: Callable[[Any], object], threads: int) -> None:
        self._handle, self._threads = handle, threads

    def create_with_partitions(self, commit: Any, partitions: Any) -> Any:
        end = CommitOffsets(commit)
        if self._threads == 1:
            return RunTask(self._handle, end)
        return RunTaskInThreads(self._handle, self._threads, self._threads, end)


def main(bootstrap: str, topic: str, group: str, records: int) -> None:
    """Consume that many records of a topic, and end the process."""
    consume(bootstrap, topic, group, told(records).one)


def consume(bootstrap: str, topic: str, group: str, handle: Callable[[Any], object], threads: int = 1) -> None:
    """Have each message handled, until the process ends. With several threads as many may be pending."""
    conf = build_kafka_consumer_configuration(
        default_config={}, bootstrap_servers=[bootstrap], auto_offset_reset="earliest", group_id=group
    )
    StreamProcessor(
        consumer=KafkaConsumer(conf),
        topic=Topic(topic),
        processor_factory=_Factory(handle, threads),
        commit_policy=ONCE_PER_SECOND,
    ).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
