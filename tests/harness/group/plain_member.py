"""A member without holdfast, for comparison: `python -m tests.harness.group.plain_member --json '<MemberConfig>'`.

"careful": what a good engineer writes by hand: batches of 100, synchronous commits of what was handled after each batch
and in on_revoke, nothing committed for partitions that were lost. "default": the loop of the tutorials with automatic
commits.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import signal
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from holdfast import LoopAudit
from holdfast.plugin.audit.schema import Outcome
from holdfast.timing import wall_ms
from tests.harness.group.config import MemberConfig
from tests.harness.group.ledger import Ledger, Where
from tests.harness.group.orders import Order, OrderFailed, work

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
        audit = config.audited()
        self._audit = LoopAudit(audit, config.group, source=config.kind) if audit is not None else None

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
        self._close()

    def run_default(self) -> None:
        callbacks = {"on_assign": self._assigned, "on_revoke": self._gone} if self._audit is not None else {}
        self._consumer.subscribe(list(self._config.topics), **callbacks)
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            where = self._where(message) if message is not None else None
            if where is not None and message is not None:
                self._handle(where, message)
                self._tell_position({where[:2]: where.offset + 1})
        self._close()

    def _close(self) -> None:
        self._consumer.close()
        if self._audit is not None:
            self._audit.stopped()

    def _handle(self, where: Where, message: Message) -> None:
        began_ms, outcome, value = wall_ms(), Outcome.HANDLED, message.value() or b""
        try:
            work(self._ledger, self._config.name, where, value, 0)
        except OrderFailed:  # a plain loop has nowhere to put such a record: it is left behind
            outcome = Outcome.FAILED
        if self._audit is not None:
            key = Order.decode(value).order_id
            self._audit.handled(*where[:3], key=f"s:{key}", began_ms=began_ms, outcome=outcome)

    def _tell_position(self, positions: dict[tuple[str, int], int]) -> None:
        if self._audit is not None:
            ends = {
                each: self._consumer.get_watermark_offsets(TopicPartition(*each), cached=True)[1] for each in positions
            }
            self._audit.committed(positions, {each: end for each, end in ends.items() if end >= 0})

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
            else:
                self._tell_position({(each.topic, each.partition): each.offset for each in offsets})

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("assigned %s", [each.partition for each in partitions])
        if self._audit is not None and partitions:
            found = self._consumer.committed(partitions, timeout=10)
            self._audit.assigned({(each.topic, each.partition): max(0, each.offset) for each in found})

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("revoked %s", [each.partition for each in partitions])
        self._commit([(each.topic, each.partition) for each in partitions])
        self._gone(self._consumer, partitions)

    def _gone(self, _: Consumer, partitions: list[TopicPartition], trigger: str = "revoked") -> None:
        if self._audit is not None:
            self._audit.revoked([(each.topic, each.partition) for each in partitions], trigger)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        _log.info("lost %s", [each.partition for each in partitions])
        for each in partitions:
            self._done.pop((each.topic, each.partition), None)
        self._gone(self._consumer, partitions, "lost")


def main() -> None:
    """Parse the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True, help="a MemberConfig")
    config = MemberConfig.from_json(parser.parse_args().json)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    member = Plain(config)
    signal.signal(signal.SIGTERM, member.stop)
    config.wait_for_go()
    (member.run_careful if config.kind == "careful" else member.run_default)()


if __name__ == "__main__":
    main()
