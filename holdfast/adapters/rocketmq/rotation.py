"""Rotation: chooses the queue of a message, in turn, or by a key so that messages of equal keys stay in order."""

from __future__ import annotations

import itertools
import random
import threading
from typing import TYPE_CHECKING

from holdfast.plugin.assign.java import java_hash
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.remoting import Route
    from holdfast.timing import Clock

#: How long a broker that did not answer is left out, as long as there is another.
_LEFT_OUT_S = 10.0


class Rotation:
    """Chooses queues in turn; brokers that did not answer lately come last. Any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # A random start: else many processes that send one message each would all use the first queue.
        self._turn = itertools.count(random.randrange(1 << 16))
        self._until: dict[str, float] = {}

    def pick(self, queues: Sequence[Partition]) -> Partition:
        """Pick a queue of a broker that answers; if none does, of the one that failed longest ago."""
        now = self._clock.now()
        with self._lock:
            turn, until = next(self._turn), dict(self._until)
        if until:
            left_out = {queue.broker: max(until.get(queue.broker, now), now) for queue in queues}
            least = min(left_out.values())
            queues = [queue for queue in queues if left_out[queue.broker] == least]
        return queues[turn % len(queues)]

    def silent(self, broker: str) -> None:
        """Note that the broker has not answered."""
        with self._lock:
            self._until[broker] = self._clock.now() + _LEFT_OUT_S

    def answered(self, broker: str) -> None:
        """Note that the broker has answered."""
        if self._until:
            with self._lock:
                self._until.pop(broker, None)


def by_key(queues: Sequence[Partition], sharding_key: str) -> Partition:
    """The queue of a key, as Java's SelectMessageQueueByHash chooses it for the same text."""
    return queues[abs(java_hash(sharding_key)) % len(queues)]


def to_write(route: Route) -> list[Partition]:
    """A topic's queues in the order in which RocketMQ's producers count them."""
    return sorted(route.queues(read=False), key=lambda queue: (queue.broker, queue.number))


def ordered(route: Route) -> list[Partition]:
    """The queues among which keys are spread: fixed ones, if the name server has an order configuration for the topic
    ("broker-a:4;broker-b:4"); else those that are writable now."""
    if not route.ordered:
        return to_write(route)
    found = []
    for each in route.ordered.rstrip(";").split(";"):  # Java's split drops empty parts at the end
        broker, _, count = each.partition(":")
        found += [Partition(route.topic, number, broker) for number in range(int(count))]
    return found
