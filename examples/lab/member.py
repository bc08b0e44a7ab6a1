"""What the three kinds of member have in common: their orders from the demo, and the handler."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from examples.lab.ledger import LedgerWriter
from examples.lab.orders import SLOW_ORDER
from holdfast import Audit, FileEvents, LoopAudit

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the demo tells a member at its start."""

    name: str
    bootstrap_servers: str
    topic: str
    group: str
    ledger: Path
    handler_ms: float
    slow_order_s: float
    workers: int
    redis_url: str
    #: A folder for what members tell of themselves; empty = they do not.
    events: str

    def audit(self) -> Audit | None:
        """How a member tells what it does, if it is to."""
        return Audit(FileEvents(self.events), member=self.name, keys="plain") if self.events else None

    def client_configuration(self) -> dict[str, str | int | float | bool]:
        """What all three give to confluent-kafka. Everything else is the consumers' own."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": self.group,
            "client.id": self.name,
            "group.protocol": "consumer",
            # The library's default, latest, would skip the backlog: every tutorial sets this one.
            "auto.offset.reset": "earliest",
            # How long a handler may keep a plain loop from polling. The default is five minutes: here they are 4 s, so
            # that you need not wait for a handler that takes longer.
            "max.poll.interval.ms": 4000,
            # The mock cluster answers a fetch only when this time is over, also when it has records by then (a real
            # broker answers at once). With the default, 500 ms, all curves would only show that.
            "fetch.wait.max.ms": 50,
        }


def assignment_from_command_line() -> Assignment:
    """Read the member's command line, and tie its life to the demo's."""
    parser = argparse.ArgumentParser()
    for name in ("name", "bootstrap-servers", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--handler-ms", type=float, required=True)
    parser.add_argument("--slow-order-s", type=float, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--redis-url", default="")
    parser.add_argument("--events", default="")
    assignment = Assignment(**vars(parser.parse_args()))
    threading.Thread(target=_die_with_the_demo, name="leash", daemon=True).start()
    return assignment


def _die_with_the_demo() -> None:
    # The demo holds the other end of our input and never writes. An end of file means that it is gone.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(3)


def order_in(message: Message) -> tuple[int, int, str]:
    """Partition, offset and order id of a message that holds no error."""
    partition, offset, key = message.partition(), message.offset(), message.key()
    if partition is None or offset is None or key is None:
        raise ValueError(f"not one of the demo's orders: {message.value()!r}")
    return partition, offset, key.decode()


class Till:
    """The work on one order: takes a few milliseconds, and leaves two lines in the ledger.

    `loop`: nobody but the handler can tell what a plain loop does.
    """

    def __init__(self, assignment: Assignment, *, loop: bool = False) -> None:
        self._ledger = LedgerWriter(assignment.ledger, assignment.name)
        self._topic = assignment.topic
        self._told: LoopAudit | None = None
        if loop and (audit := assignment.audit()) is not None:
            self._told = LoopAudit(audit, assignment.group, source="confluent-kafka")
            atexit.register(self._told.stopped)
        self._handler_s, self._slow_order_s = assignment.handler_ms / 1000, assignment.slow_order_s

    def charge(self, partition: int, offset: int, key: str) -> None:
        """Handle one order. A second call for the same order would charge the customer twice."""
        self._ledger.start(partition, offset, key)
        # Stands for a payment service's answer.
        time.sleep(self._slow_order_s if key == SLOW_ORDER else self._handler_s)
        self._ledger.end(partition, offset, key)
        if self._told is not None:
            self._told.handled(self._topic, partition, offset, key=key)
            self._told.committed({(self._topic, partition): offset + 1})

    def came(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """For a plain loop's `on_assign`."""
        if self._told is not None and partitions:
            found = consumer.committed(partitions, timeout=10)
            self._told.assigned({(each.topic, each.partition): max(each.offset, 0) for each in found})

    def went(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """For a plain loop's `on_revoke`."""
        if self._told is not None:
            self._told.revoked([(each.topic, each.partition) for each in partitions])
