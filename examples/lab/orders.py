"""The orders: a backlog at first, then a steady stream, the same for every consumer that is compared."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The id of the one order that takes longer than a plain loop may be away from `poll()`.
SLOW_ORDER = "slow-order"


@dataclass(frozen=True, slots=True)
class Produced:
    """One order that the broker has acknowledged."""

    at: float
    partition: int
    offset: int


class OrderStream:
    """Produces the same orders to several topics, on a thread of its own, until `stop()`.

    What the broker acknowledged is what consumers have to handle: `produced[topic]` is the judge's list.
    """

    def __init__(self, bootstrap_servers: str, topics: Sequence[str], *, per_second: float, backlog: int) -> None:
        self._producer = Producer(
            # Idempotent: what is sent again because an answer was late must not be there twice.
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
        )
        self._topics = tuple(topics)
        self._per_second = per_second
        self._backlog = backlog
        self._random = random.Random(7)  # the same orders in every run
        self._stop, self._slow = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._number = 0
        self.produced: dict[str, list[Produced]] = {topic: [] for topic in topics}
        self.failure: str | None = None

    def start(self) -> None:
        """Produce the backlog, wait until the broker has it, and begin with the steady stream."""
        for _ in range(self._backlog):
            self._produce()
        self._producer.flush(10)
        self._thread.start()

    def slow(self) -> None:
        """Ask for the slow order: the next one of the steady stream."""
        self._slow.set()

    def stop(self) -> None:
        """End the stream; returns when the broker has acknowledged all of it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        # By the clock and not by a pause after each order, so that the rate holds on a busy machine too.
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - began) * self._per_second)
            for _ in range(due - sent):
                self._produce()
            sent = max(sent, due)
            if self._slow.is_set():
                self._slow.clear()
                self._produce(SLOW_ORDER)
            self._producer.poll(0)

    def _produce(self, order_id: str = "") -> None:
        self._number += 1
        order_id = order_id or f"order-{self._number}"
        order = json.dumps({"order_id": order_id, "amount": round(self._random.uniform(5, 500), 2)})
        for topic in self._topics:
            self._producer.produce(topic, key=order_id, value=order, on_delivery=self._note(topic, time.monotonic()))

    def _note(self, topic: str, at: float) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                self.failure = f"the broker did not take an order: {error}"
            else:
                self.produced[topic].append(Produced(at, partition, offset))

        return note
