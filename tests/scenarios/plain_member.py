"""A member without holdfast, for comparison: `python -m tests.scenarios.plain_member --json '<MemberConfig>'`.

"careful": what a good engineer writes by hand: batches of 100, synchronous commits of what was handled after each batch
and in on_revoke, nothing committed for partitions that were lost. "default": the loop of the tutorials with automatic
commits.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import signal
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.scenarios.config import MemberConfig
from tests.scenarios.ledger import Ledger, Where
from tests.scenarios.orders import OrderFailed, work

_log = logging.getLogger(__name__)


class Plain:
    """One loop, in one thread, as the client's documentation has it."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._ledger = Ledger(Path(config.ledger), config.name)
        self._stopping = threading.Event()
        self._done: dict[tuple[str, int], int] = {}
        careful = config.kind == "careful"
        self._consumer = Consumer(config.client() | {"enable.auto.commit": not careful})

    def stop(self, *_: object) -> None:
        """Signal handler."""
        self._stopping.set()

    def run_careful(self) -> None:
        self._consumer.subscribe(
            list(self._config.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not self._stopping.is_set():
            # Callbacks run inside consume, and what it returns after them belongs to the new assignment.
            for message in self._consumer.consume(100, 0.1):
                if self._stopping.is_set():
                    break
                where = self._where(message)
                if where is not None:
                    self._handle(where, message)
                    self._done[where[:2]] = where.offset + 1
            self._commit(list(self._done))
        self._consumer.close()

    def run_default(self) -> None:
        self._consumer.subscribe(list(self._config.topics))
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            where = self._where(message) if message is not None else None
            if where is not None and message is not None:
                self._handle(where, message)
        self._consumer.close()

    def _handle(self, where: Where, message: Message) -> None:
        # A plain loop has nowhere to put a record that fails: it is logged and left behind.
        with contextlib.suppress(OrderFailed):
            work(self._ledger, self._config.name, where, message.value() or b"", 0)

    def _where(self, message: Message) -> Where | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or partition is None or offset is None:
            _log.warning("%s", message.error())
            return None
        return Where(topic, partition, offset)

    def _commit(self, which: list[tuple[str, int]]) -> None:
        offsets = [TopicPartition(*each, self._done.pop(each)) for each in which if each in self._done]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                _log.warning("commit: %s", error)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("assigned %s", [each.partition for each in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("revoked %s", [each.partition for each in partitions])
        self._commit([(each.topic, each.partition) for each in partitions])

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("lost %s", [each.partition for each in partitions])
        for each in partitions:
            self._done.pop((each.topic, each.partition), None)


def main() -> None:
    """Parse the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True, help="a MemberConfig")
    config = MemberConfig.from_json(parser.parse_args().json)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    member = Plain(config)
    signal.signal(signal.SIGTERM, member.stop)
    (member.run_careful if config.kind == "careful" else member.run_default)()


if __name__ == "__main__":
    main()
