"""Which queue a message goes to: in turn, or by a key so that equal keys stay in order."""

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

#: How long a broker is left out after it has not answered, while another can be asked.
_LEFT_OUT_S = 10.0


class Rotation:
    """Queues in turn; those of brokers that did not answer lately come last. Any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Not from 0 on: many processes that send one message each would all send it to the first queue.
        self._turn = itertools.count(random.randrange(1 << 16))
        self._until: dict[str, float] = {}

    def pick(self, queues: Sequence[Partition]) -> Partition:
        """One of them, of the brokers that answer; where none does, of the one that was asked longest ago."""
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
    """The queue of a key: where Java's SelectMessageQueueByHash sends that text."""
    return queues[abs(java_hash(sharding_key)) % len(queues)]


def to_write(route: Route) -> list[Partition]:
    """A topic's queues in the order in which RocketMQ's producers count them."""
    return sorted(route.queues(read=False), key=lambda queue: (queue.broker, queue.number))


def ordered(route: Route) -> list[Partition]:
    """The queues among which keys are spread. With an order configuration at the name server ("broker-a:4;broker-b:4")
    these are fixed; without, they are those that can be written to now."""
    if not route.ordered:
        return to_write(route)
    found = []
    for each in route.ordered.rstrip(";").split(";"):  # as Java's split: empty parts at the end do not count
        broker, _, count = each.partition(":")
        found += [Partition(route.topic, number, broker) for number in range(int(count))]
    return found
