"""Delivery: sends one message or a batch until a broker acknowledges it; repeats, and tries other brokers.

The queue is chosen in turn, or by a key so that messages of equal keys stay in order.
"""

from __future__ import annotations

import itertools
import random
import threading
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import BrokerRefused, Sender, codes
from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic
from holdfast.plugin.assign.java import java_hash
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Message, RemotingClient, Route, Sent
    from holdfast.timing import Clock

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
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


class NotAcknowledged(SourceUnavailable):
    """No broker has acknowledged a message in time. It may be stored all the same.

    Attributes:
        unique_keys: the UNIQ_KEY of each message. Send it again with `unique_key=`, so that consumers recognise a copy.
    """

    def __init__(self, message: str, unique_keys: Sequence[str]) -> None:
        super().__init__(message)
        self.unique_keys = tuple(unique_keys)


class Delivery:
    """Sends messages. Any thread.

    Args:
        client: used by this object only; the caller closes it.
        group: the producer group's name.
        attempt_timeout_s: seconds for one try.
    """

    def __init__(self, client: RemotingClient, group: str, attempt_timeout_s: float) -> None:
        self._client, self._attempt_s = client, attempt_timeout_s
        self._sender = Sender(client, group=group)
        self._rotation = Rotation()

    def send(
        self,
        messages: Sequence[Message],
        deadline: Deadline,
        *,
        batch: bool = False,
        sharding_key: str | None = None,
        queue: Partition | None = None,
    ) -> Sent:
        """Send messages; return when a broker has acknowledged them. Each has its UNIQ_KEY, so that consumers recognise
        a copy.

        Args:
            messages: one message, or a batch, all of one topic.
            deadline: for all tries.
            batch: send all in one request, stored together or not at all.
            sharding_key: send only to the queue of this key.
            queue: send only to this queue.

        Raises:
            NotAcknowledged: no answer in time.
            UnknownTopic, NotAuthorised, BrokerRefused: the broker refuses it.
        """
        topic, to_any = messages[0].topic, sharding_key is None and queue is None
        refusals: dict[str, SourceError] = {}
        pause_s, tries = _FIRST_PAUSE_S, 0
        while True:
            target = None
            try:
                target = queue or self._choose(topic, sharding_key, refusals, deadline)
                tries += 1
                return self._attempt(target, messages, deadline, batch=batch)
            except SourceUnavailable as failure:
                error = failure
            except (NotAuthorised, UnknownTopic, BrokerRefused) as refusal:
                # Another broker may accept it: this one may have lost the topic, or be closed to writing.
                if target is None or not to_any or target.broker in refusals or _is_for_all(refusal):
                    raise
                refusals[target.broker] = refusal
                continue
            if deadline.passed:
                raise self._given_up(messages, deadline, tries, error) from error
            SYSTEM_CLOCK.sleep(deadline.left_s(at_most=pause_s * random.uniform(0.5, 1.0)))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _attempt(self, queue: Partition, messages: Sequence[Message], deadline: Deadline, *, batch: bool) -> Sent:
        left = Deadline(deadline.left_s(at_most=self._attempt_s))
        try:
            if batch:
                sent = self._sender.send_batch(queue, messages, left)
            else:
                sent = self._sender.send(queue, messages[0], left)
        except SourceUnavailable:
            self._rotation.silent(queue.broker)
            raise
        self._rotation.answered(queue.broker)
        return sent

    def _choose(
        self, topic: str, sharding_key: str | None, refusals: Mapping[str, SourceError], deadline: Deadline
    ) -> Partition:
        # A known route is good enough, also while no name server answers; it is refreshed in the background.
        route = self._client.known_route(topic) or self._client.route(topic, deadline)
        queues = to_write(route) if sharding_key is None else ordered(route)
        if not queues:
            raise SourceUnavailable(
                f"no broker of {topic} can be written to now: its masters are down, or the topic is closed (perm 4)"
            )
        if sharding_key is not None:
            return by_key(queues, sharding_key)
        # If all have refused, one is asked again, and its refusal is raised.
        return self._rotation.pick([queue for queue in queues if queue.broker not in refusals] or queues)

    def _given_up(
        self, messages: Sequence[Message], deadline: Deadline, tries: int, error: SourceError
    ) -> NotAcknowledged:
        keys = [message.properties[UNIQUE_KEY] for message in messages]
        return NotAcknowledged(
            f"sending to {messages[0].topic} at {self._client.namesrv}: not acknowledged within {deadline.budget_s:g} "
            f"s, after {tries} tries, lastly: {error}; it may be stored all the same: send it again with its "
            f"unique_key ({', '.join(keys[:3])}), so that consumers can skip a copy",
            keys,
        )


def _is_for_all(error: SourceError) -> bool:
    """Whether every broker would refuse it, because the message itself is wrong."""
    return isinstance(error, BrokerRefused) and error.code == codes.MESSAGE_ILLEGAL
