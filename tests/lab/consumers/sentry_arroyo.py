"""arroyo, as in its "Getting started": RunTask before CommitOffsets, with the commit policy that its page on offsets
names for those who are not sure, and SIGTERM asking the processor to shut down."""

from __future__ import annotations

import signal
from typing import Any

from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask
from arroyo.types import Topic

from tests.lab.consumers.member import Work, told


class _Factory(ProcessingStrategyFactory):  # type: ignore[misc]  # arroyo is in another environment than mypy
    def __init__(self, work: Work) -> None:
        self._work = work

    def create_with_partitions(self, commit: Any, partitions: Any) -> Any:
        return RunTask(self._handle, CommitOffsets(commit))

    def _handle(self, message: Any) -> Any:
        self._work.do(message.value.partition.index, message.value.offset, message.payload.value)
        return message.payload


def main() -> None:
    """Consume until SIGTERM."""
    member = told()
    conf = build_kafka_consumer_configuration(
        default_config={},
        bootstrap_servers=[member.bootstrap],
        auto_offset_reset="earliest",
        group_id=member.group,
        override_params={"client.id": member.name, **member.timeouts},
    )
    processor = StreamProcessor(
        consumer=KafkaConsumer(conf),
        topic=Topic(member.topic),
        processor_factory=_Factory(Work(member)),
        commit_policy=ONCE_PER_SECOND,
    )
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()


if __name__ == "__main__":
    main()
