"""Plain confluent-kafka, written with care: commits by hand, each second and whenever partitions are taken away.

Only what is handled gets committed, synchronously; a partition that is taken away in good order is committed before it
goes; one that was lost is not committed, for it belongs to somebody else already.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.lab.member import Till, assignment_from_command_line, order_in

if TYPE_CHECKING:
    from types import FrameType

_COMMIT_EVERY_S = 1.0


class Progress:
    """The next offset to read, for each partition that has handled records not yet committed."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}

    def handled(self, topic: str, partition: int, offset: int) -> None:
        """Note that this record is done."""
        self._next[topic, partition] = offset + 1

    def commit(self, consumer: Consumer, only: list[TopicPartition] | None = None) -> None:
        """Commit what is done, of all partitions or of those given; what the broker refuses stays for the next time."""
        wanted = set(self._next) if only is None else {(part.topic, part.partition) for part in only} & set(self._next)
        if not wanted:
            return
        offsets = [TopicPartition(topic, partition, self._next[topic, partition]) for topic, partition in wanted]
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            print(f"commit refused: {error}", file=sys.stderr)
            return
        for part in committed or []:
            if part.error is None:
                self._next.pop((part.topic, part.partition), None)
            else:
                print(f"commit refused for {part}: {part.error}", file=sys.stderr)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """These partitions are somebody else's now."""
        for part in partitions:
            self._next.pop((part.topic, part.partition), None)


def main() -> None:
    """Consume until SIGTERM."""
    assignment = assignment_from_command_line()
    till = Till(assignment, loop=True)
    progress = Progress()
    running = True

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        progress.commit(consumer, partitions)
        progress.forget(partitions)
        till.went(consumer, partitions)

    def on_lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        progress.forget(partitions)
        till.went(consumer, partitions)

    consumer = Consumer({**assignment.client_configuration(), "enable.auto.commit": False})
    consumer.subscribe([assignment.topic], on_assign=till.came, on_revoke=on_revoke, on_lost=on_lost)
    next_commit = time.monotonic() + _COMMIT_EVERY_S
    try:
        while running:
            message = consumer.poll(0.1)
            if time.monotonic() >= next_commit:
                progress.commit(consumer)
                next_commit = time.monotonic() + _COMMIT_EVERY_S
            if message is None:
                continue
            if message.error():
                print(message.error(), file=sys.stderr)
                continue
            partition, offset, key = order_in(message)
            till.charge(partition, offset, key)
            progress.handled(assignment.topic, partition, offset)
        progress.commit(consumer)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
