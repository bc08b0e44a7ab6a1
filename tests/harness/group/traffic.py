"""Traffic: a producer that keeps sending orders at a rate, and books what the broker acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.harness.group.orders import Order, draw
from tests.harness.group.referee import Produced

if TYPE_CHECKING:
    from tests.harness.group.ground import Ground
    from tests.harness.group.ledger import Where

_TICK_S = 0.01
_FLUSH_S = 20.0


class Traffic:
    """One producer. `produced` grows as acknowledgements come; any thread may read it."""

    def __init__(self, ground: Ground, seed: int, work_ms: float) -> None:
        self._ground = ground
        self._sender = ground.sender()
        self._random = random.Random(seed)
        self._work_ms = work_ms
        self._number = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._errors: list[str] = []
        #: Topics where the broker has orders whose places it did not tell -> when.
        self._unplaced: dict[str, int] = {}
        self._recent: deque[Order] = deque(maxlen=300)
        #: Share of orders in a flow that are sent a second time, as a producer does that was not sure.
        self.duplicates = 0.0
        self.produced: list[Produced] = []
        #: Keys of orders that every member fails on, or hangs on.
        self.hopeless: set[str] = set()

    def flow(self, topics: list[str], per_second: float) -> None:
        """Send orders at that rate, to the topics in turn, until `stop`. May be called again to change that."""
        self.stop()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._flow, args=(topics, per_second), name="traffic", daemon=True)
        self._thread.start()

    def burst(self, topic: str, count: int, **changes: Any) -> None:
        """Send that many at once."""
        for _ in range(count):
            self.send(topic, self.next(**changes))
        self.flush()

    def next(self, **changes: Any) -> Order:
        """Draw an order."""
        with self._lock:
            self._number += 1
            order = draw(self._random, self._number, self._work_ms)
        return replace(order, **changes) if changes else order

    def send(self, topic: str, order: Order, partition: int | None = None) -> None:
        """Send one order; `flush` waits for its acknowledgement."""

        def placed(where: Where | None, error: str | None) -> None:
            if error is not None:
                self._errors.append(f"{order.order_id}: {error}")
            elif where is None:
                self._unplaced[topic] = time.monotonic_ns()
            else:
                self.produced.append(Produced(where, order.lane, order.order_id, time.monotonic_ns()))

        if "*" in order.fail_at or "*" in order.hang_at:
            self.hopeless.add(order.order_id)
        self._sender.send(topic, order, partition, placed)

    def flush(self) -> None:
        """Wait for all acknowledgements, as long as some come. Raises RuntimeError where one is missing: nothing could
        be judged then."""
        before, left = 0, self._sender.flush(_FLUSH_S)
        while left and left != before:
            before, left = left, self._sender.flush(_FLUSH_S)
        if left or self._errors:
            why = f"errors: {self._errors[:3]}; sent again: {self._sender.refusals}"
            msg = f"{left} orders without an acknowledgement; {why}"
            raise RuntimeError(msg)
        while self._unplaced:
            topic, at_ns = self._unplaced.popitem()
            known = {each.where for each in self.produced}
            for where, order in self._ground.read(topic):
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
        """End the flow and the producer."""
        self.stop()
        self._sender.close()

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
