"""RocketMQ 5's proxy in memory: messages that are handed out one by one, each under a receipt.

What it does was seen on 5.5.0, and scripts are played on both (`tests/contracts/rocketmq/grpc/test_twins.py`):

- A delivery hides its message for a while. When that is over, and nobody has acknowledged it, it comes again.
- A renewal gives another receipt. By the old one an acknowledgement is accepted and has no effect, and a second renewal
  is accepted too: then the message comes twice.
- Nothing is accepted by a receipt whose time is over.
- What is given back is visible again after a while, which the broker cannot make shorter.
- After so many deliveries a message is handed out no more.
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

#: How long it takes at least until what was given back comes again.
_BACK_S = 4.0


@dataclass(slots=True, eq=False)
class Message:
    """A message that a producer has sent."""

    topic: str
    #: UNIQ_KEY: a copy of it, which a producer's retry has stored, has the same.
    name: str
    value: bytes
    key: bytes | None = None


@dataclass(slots=True, eq=False)
class Copy:
    """A message as the broker hands it out: until it is acknowledged, it comes again and again."""

    message: Message
    deliveries: int = 0
    #: By which it is hidden; None: it is not.
    lease: Lease | None = None
    #: It is acknowledged, or was handed out too often.
    over: bool = False


@dataclass(slots=True, eq=False)
class Lease:
    """The delivery that a receipt stands for."""

    copy: Copy
    until: float
    #: Who has it; None: it was given back.
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
    #: Who waits, in the order in which they have asked.
    polls: list[_Poll] = field(default_factory=list)


class Proxy:
    """All topics of one group. Called in the hub, or where nobody is overtaken.

    Args:
        scheduler: whose time it is.
        deliveries: so many of one message at most.
        back_s: how long it takes at least until what was given back comes again.
    """

    def __init__(self, scheduler: Scheduler, *, deliveries: float = 17, back_s: float = _BACK_S) -> None:
        self._scheduler, self._most, self._back_s = scheduler, deliveries, back_s
        self._topics: dict[str, _Topic] = defaultdict(_Topic)
        self._leases: dict[str, Lease] = {}
        self._numbers = count(1)
        #: What may come again, and what does not any more.
        self.open: dict[Copy, None] = {}
        self.ended = 0

    # ---- producers
    def store(self, message: Message) -> None:
        """Also a copy of one that is there."""
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
        """A poll: answered as soon as there is something, or when the time is over."""
        poll = _Poll(topic, at_most, hidden_s, holder, answer)
        self._topics[topic].polls.append(poll)
        self._serve(topic)
        if wait_s and poll in self._topics[topic].polls:
            self._scheduler.at(self._scheduler.now + wait_s, lambda: self._in_vain(poll))
        else:
            self._in_vain(poll)

    def acknowledge(self, receipt: str) -> Verdict:
        """End the message, if that is the delivery's last receipt."""
        lease = self._leases.get(receipt)
        if lease is None or lease.until <= self._scheduler.now:
            return Verdict.OVER
        if lease.copy.lease is lease and not lease.copy.over:
            self.acknowledged(lease.copy.message, lease.holder)
            self._end(lease.copy)
        return Verdict.DONE

    def change(self, receipt: str, hidden_s: float, holder: str) -> tuple[Verdict, str]:
        """Hide it for so long from now on. Replies with the new receipt."""
        lease, now = self._leases.get(receipt), self._scheduler.now
        if lease is None or lease.until <= now:
            return Verdict.OVER, ""
        copy = lease.copy
        if copy.lease is not lease or copy.over:  # by an old receipt: it comes twice from now on
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
        """A message is about to be delivered to that member; its lease says to whom before."""

    def acknowledged(self, message: Message, holder: str | None) -> None:
        """That member says that a message is done."""

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
        """Whether its time is over."""
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
