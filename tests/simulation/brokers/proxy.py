"""RocketMQ 5's proxy in memory: it delivers messages one by one, each with a receipt.

Its behaviour was seen on 5.5.0; the same scripts are played on both (`tests/contracts/rocketmq/grpc/test_twins.py`):

- A delivery hides its message for a while. Without an acknowledgement in that time the message is delivered again.
- A renewal gives a new receipt. An acknowledgement by the old receipt is accepted and has no effect. A second renewal
  by the old receipt is accepted too, and then the message is delivered twice.
- A receipt whose time is over is refused.
- A message that is given back becomes visible after a while, which the broker cannot make shorter.
- A message is delivered at most so many times.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.grpc.delivery import Delivery, Verdict
from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.scheduler import Scheduler

#: The least time until a message that was given back becomes visible.
_BACK_S = 4.0


@dataclass(slots=True, eq=False)
class Message:
    """A message from a producer."""

    topic: str
    #: UNIQ_KEY. A copy that a producer's retry has stored has the same.
    name: str
    value: bytes
    key: bytes | None = None


@dataclass(slots=True, eq=False)
class Copy:
    """One stored message. Without an acknowledgement it is delivered again and again."""

    message: Message
    deliveries: int = 0
    #: The delivery that hides it; None = it is visible.
    lease: Lease | None = None
    #: It is acknowledged, or was delivered as often as allowed.
    over: bool = False


@dataclass(slots=True, eq=False)
class Lease:
    """The delivery of a receipt."""

    copy: Copy
    until: float
    #: The member that has it; None = it was given back.
    holder: str | None


class _Poll(NamedTuple):
    topic: str
    at_most: int
    hidden_s: float
    holder: str
    answer: Callable[[list[Delivery]], None]


@dataclass(slots=True)
class _Topic:
    visible: deque[Copy] = field(default_factory=deque)
    #: Polls that wait, in the order of their arrival.
    polls: list[_Poll] = field(default_factory=list)


class Proxy:
    """All topics of one group. Called in the hub, or by a process that is not preempted.

    Args:
        scheduler: of the world.
        deliveries: the most deliveries of one message.
        back_s: the least time until a message that was given back becomes visible.
    """

    def __init__(self, scheduler: Scheduler, *, deliveries: float = 17, back_s: float = _BACK_S) -> None:
        self._scheduler, self._most, self._back_s = scheduler, deliveries, back_s
        self._topics: dict[str, _Topic] = defaultdict(_Topic)
        self._leases: dict[str, Lease] = {}
        self._numbers = count(1)
        #: Messages that may be delivered again; and those that may not.
        self.open: dict[Copy, None] = {}
        self.ended = 0

    # ---- producers
    def store(self, message: Message) -> None:
        """Store a message, or a copy of one."""
        copy = Copy(message)
        self.open[copy] = None
        self._show(copy)

    # ---- consumers
    def receive(
        self,
        topic: str,
        at_most: int,
        hidden_s: float,
        *,
        wait_s: float,
        holder: str,
        answer: Callable[[list[Delivery]], None],
    ) -> None:
        """A poll. It is answered as soon as a message is visible, or when its time is over."""
        poll = _Poll(topic, at_most, hidden_s, holder, answer)
        self._topics[topic].polls.append(poll)
        self._serve(topic)
        if wait_s and poll in self._topics[topic].polls:
            self._scheduler.at(self._scheduler.now + wait_s, lambda: self._in_vain(poll))
        else:
            self._in_vain(poll)

    def end_polls(self, topic: str, holder: str) -> None:
        """End the polls of that member that wait."""
        for poll in [each for each in self._topics[topic].polls if each.holder == holder]:
            self._in_vain(poll)

    def acknowledge(self, receipt: str) -> Verdict:
        """Acknowledge the message, if this is the last receipt of the delivery."""
        lease = self._leases.get(receipt)
        if lease is None or lease.until <= self._scheduler.now:
            return Verdict.OVER
        if lease.copy.lease is lease and not lease.copy.over:
            self.acknowledged(lease.copy.message, lease.holder)
            self._end(lease.copy)
        return Verdict.DONE

    def change(self, receipt: str, hidden_s: float, holder: str) -> tuple[Verdict, str]:
        """Hide the message for so long from now on. Returns: the verdict, and the new receipt."""
        lease, now = self._leases.get(receipt), self._scheduler.now
        if lease is None or lease.until <= now:
            return Verdict.OVER, ""
        copy = lease.copy
        if copy.lease is not lease or copy.over:  # an old receipt: the message is delivered twice from now on
            copy = Copy(copy.message, copy.deliveries)
            self.open[copy] = None
        return Verdict.DONE, self._hide(copy, max(hidden_s, self._back_s if not hidden_s else 0.0), holder)

    def end_leases(self, holder: str) -> None:
        """End the leases of that member at once."""
        for copy in list(self.open):
            lease = copy.lease
            if lease is not None and lease.holder == holder:
                lease.until = self._scheduler.now
                self._look(lease)

    # ---- for judges
    def delivered(self, copy: Copy, holder: str) -> None:
        """A message is about to be delivered to that member; its lease has the former holder still."""

    def acknowledged(self, message: Message, holder: str | None) -> None:
        """That member acknowledges a message."""

    # ---- inside
    def _show(self, copy: Copy) -> None:
        self._topics[copy.message.topic].visible.append(copy)
        self._serve(copy.message.topic)

    def _serve(self, name: str) -> None:
        topic = self._topics[name]
        while topic.polls and topic.visible:
            poll = topic.polls.pop(0)
            some = [topic.visible.popleft() for _ in range(min(poll.at_most, len(topic.visible)))]
            poll.answer([self._deliver(copy, poll) for copy in some])

    def _in_vain(self, poll: _Poll) -> None:
        polls = self._topics[poll.topic].polls
        if poll in polls:
            polls.remove(poll)
            poll.answer([])

    def _deliver(self, copy: Copy, poll: _Poll) -> Delivery:
        self.delivered(copy, poll.holder)
        copy.deliveries += 1
        message = copy.message
        return Delivery(
            topic=message.topic,
            message_id=message.name,
            receipt=self._hide(copy, poll.hidden_s, poll.holder),
            endpoints=None,
            body=message.value,
            key=message.key,
            headers=((UNIQUE_KEY, message.name.encode()),),
            born_ms=0,
            attempt=copy.deliveries,
        )

    def _hide(self, copy: Copy, hidden_s: float, holder: str | None) -> str:
        receipt = f"r{next(self._numbers)}"
        lease = copy.lease = self._leases[receipt] = Lease(copy, self._scheduler.now + hidden_s, holder)
        self._scheduler.at(lease.until, lambda: self._look(lease))
        return receipt

    def _look(self, lease: Lease) -> None:
        """Make the message visible if the lease has ended."""
        copy = lease.copy
        if copy.over or copy.lease is not lease or lease.until > self._scheduler.now:
            return
        if copy.deliveries >= self._most:
            self._end(copy)
            return
        self._show(copy)

    def _end(self, copy: Copy) -> None:
        copy.over = True
        self.open.pop(copy, None)
        self.ended += 1
