"""confluent-kafka written with care: cooperative, or with the last word "kip-848" by the consumer protocol. Nothing is
committed automatically: what is handled is committed synchronously, once a second and before partitions are given up;
of partitions that were lost nothing is committed."""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.lab.consumers.member import Work, place, told, until_terminated

_COMMIT_EACH_S = 1.0


class Careful:
    """One loop, in one thread."""

    def __init__(self) -> None:
        self._member, self._stopping = told(), until_terminated()
        self._work = Work(self._member)
        #: Partition -> next offset, where it is handled and not committed.
        self._handled: dict[int, int] = {}
        cooperative = self._member.classic | {"partition.assignment.strategy": "cooperative-sticky"}
        conf = self._member.kip848 if "kip-848" in sys.argv else cooperative
        self._consumer = Consumer(conf | {"enable.auto.commit": False})

    def run(self) -> None:
        """Consume until SIGTERM."""
        self._consumer.subscribe([self._member.topic], on_revoke=self._revoked, on_lost=self._lost)
        commit_at = time.monotonic()
        try:
            while not self._stopping.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and (found := place(message)) is not None:
                    self._work.do(*found)
                    self._handled[found[0]] = found[1] + 1
                if time.monotonic() > commit_at:
                    commit_at = time.monotonic() + _COMMIT_EACH_S
                    self._commit(list(self._handled))
            self._commit(list(self._handled))
        finally:
            self._consumer.close()

    def _commit(self, partitions: list[int]) -> None:
        """What the broker does not take stays for the next time."""
        topic = self._member.topic
        offsets = [TopicPartition(topic, each, self._handled[each]) for each in partitions if each in self._handled]
        if not offsets:
            return
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            print(f"commit: {error}", file=sys.stderr)
            return
        for each in committed:
            if each.error is None and self._handled.get(each.partition) == each.offset:
                del self._handled[each.partition]

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit([each.partition for each in partitions])
        self._lost(_, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._handled.pop(each.partition, None)


if __name__ == "__main__":
    Careful().run()
