"""Traffic: a producer that keeps sending orders at a rate, and books what the broker acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.scenarios.ledger import Where
from tests.scenarios.log import read_log
from tests.scenarios.orders import Order, draw
from tests.scenarios.referee import Produced

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_TICK_S = 0.01
_FLUSH_S = 20.0


class Traffic:
    """One producer. `produced` grows as acknowledgements come; any thread may read it."""

    def __init__(self, bootstrap: str, seed: int, work_ms: float) -> None:
        self._bootstrap = bootstrap
        # Idempotent: a retry inside the client must not look like two orders.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1_000,  # partitions that are added get their share
            }
        )
        self._random = random.Random(seed)
        self._work_ms = work_ms
        self._number = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._errors: list[str] = []
        #: Topics where a batch was acknowledged in a retry: the broker then does not tell its offsets. -> when.
        self._unplaced: dict[str, int] = {}
        self._recent: deque[Order] = deque(maxlen=300)
        #: Share of orders in a flow that are sent a second time, as a producer does that was not sure.
        self.duplicates = 0.0
        self.produced: list[Produced] = []
        #: Keys of orders that every member fails on.
        self.hopeless: set[str] = set()

    def flow(self, topics: list[str], per_second: float) -> None:
        """Send orders at that rate, to the topics in turn, until `stop`. May be called again to change that."""
        self.stop()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._flow, args=(topics, per_second), name="traffic", daemon=True)
        self._thread.start()

    def burst(self, topic: str, count: int, work_ms: float | None = None) -> None:
        """Send that many at once."""
        for _ in range(count):
            self.send(topic, self.next(work_ms=work_ms))
        self.flush()

    def next(self, *, work_ms: float | None = None, fail_at: tuple[str, ...] = ()) -> Order:
        """Draw an order."""
        with self._lock:
            self._number += 1
            order = draw(self._random, self._number, self._work_ms)
        if work_ms is None and not fail_at:
            return order
        return Order(
            order_id=order.order_id,
            lane=order.lane,
            work_ms=order.work_ms if work_ms is None else work_ms,
            fail_at=fail_at,
        )

    def send(self, topic: str, order: Order, partition: int = -1) -> None:
        """Send one order; `flush` waits for its acknowledgement."""

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            number, offset = message.partition(), message.offset()
            if error is not None:
                self._errors.append(f"{order.order_id}: {error}")
            elif number is None or offset is None:
                self._unplaced[topic] = time.monotonic_ns()
            else:
                where = Where(topic, number, offset)
                self.produced.append(Produced(where, order.lane, order.order_id, time.monotonic_ns()))

        if "*" in order.fail_at:
            self.hopeless.add(order.order_id)
        self._producer.produce(topic, order.encode(), order.lane, partition=partition, on_delivery=acknowledged)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait for all acknowledgements. Raises RuntimeError where one is missing: nothing could be judged then."""
        left = self._producer.flush(_FLUSH_S)
        if left or self._errors:
            msg = f"{left} orders without an acknowledgement; errors: {self._errors[:3]}"
            raise RuntimeError(msg)
        while self._unplaced:
            topic, at_ns = self._unplaced.popitem()
            known = {each.where for each in self.produced}
            for where, order in read_log(self._bootstrap, topic):
                if where not in known:
                    self.produced.append(Produced(where, order.lane, order.order_id, at_ns))

    def stop(self) -> None:
        """End the flow and flush. Idempotent."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None
            self.flush()

    def close(self) -> None:
        """End the flow and the client."""
        self.stop()
        self._producer.close()

    def _flow(self, topics: list[str], per_second: float) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopping.wait(_TICK_S):
            due = int((time.monotonic() - began) * per_second)
            for _ in range(due - sent):
                if self._recent and self._random.random() < self.duplicates:
                    order = self._random.choice(self._recent)
                else:
                    order = self.next()
                    self._recent.append(order)
                self.send(topics[sent % len(topics)], order)
                sent += 1
