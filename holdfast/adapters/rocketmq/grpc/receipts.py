"""A message in the process, and its receipts. State alone: `Leases` decides, under its lock.

A lease counts from when the poll was *sent*: its answer may have waited in this process, which may have been frozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.grpc.delivery import Delivery


class Taken(NamedTuple):
    """A message for the engine; the number is its own as long as it is in the process."""

    number: int
    delivery: Delivery


class Receipt:
    """One delivery, as long as anything may be asked about it."""

    __slots__ = ("again_at", "asking", "back", "delivery", "done", "doubtful", "since", "tries", "until")

    def __init__(self, delivery: Delivery, asked_at: float, lease_s: float) -> None:
        self.delivery = delivery
        #: By our clock: when the lease was asked for (it began at the broker later than that), and when it may be over.
        self.since, self.until = asked_at, asked_at + lease_s
        #: A request about it is under way.
        self.asking = False
        #: A renewal of it had no answer.
        self.doubtful = False
        #: It is to be acknowledged, or given back.
        self.done = self.back = False
        #: Acknowledgements without an answer, and when the next one is due.
        self.tries, self.again_at = 0, 0.0


class Message:
    """One message in the process, with its receipts: it came again where the lease of one had ended."""

    __slots__ = ("number", "receipts")

    def __init__(self, number: int, receipt: Receipt) -> None:
        self.number, self.receipts = number, [receipt]

    @property
    def newest(self) -> Receipt:
        """The delivery that came last."""
        return self.receipts[-1]

    def forget_over(self, now: float) -> None:
        """Leave out those whose lease is over, but for the newest."""
        if len(self.receipts) > 1:
            self.receipts = [each for each in self.receipts[:-1] if each.until > now] + self.receipts[-1:]
