"""Messages in the process and their receipts. Only state: `Leases` changes it, under its lock.

A lease counts from the time at which the poll was *sent*: the answer may have waited in this process, which may have
been stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.grpc.delivery import Delivery


class Taken(NamedTuple):
    """A message for the engine. The number identifies it as long as it is in the process."""

    number: int
    delivery: Delivery


class Receipt:
    """One delivery, with the state of its lease and of the request under way."""

    __slots__ = ("again_at", "asking", "back", "delivery", "done", "doubtful", "since", "tries", "until")

    def __init__(self, delivery: Delivery, asked_at: float, lease_s: float) -> None:
        self.delivery = delivery
        #: By our clock: when the lease was requested (it begins at the broker later), and when it may have ended.
        self.since, self.until = asked_at, asked_at + lease_s
        #: A request with this receipt is under way.
        self.asking = False
        #: A renewal has got no answer.
        self.doubtful = False
        #: The receipt is to be acknowledged; to be given back.
        self.done = self.back = False
        #: The number of acknowledgements without an answer, and the time of the next one.
        self.tries, self.again_at = 0, 0.0


class Message:
    """One message in the process, with its receipts: several if it was delivered again after its lease had ended."""

    __slots__ = ("number", "receipts")

    def __init__(self, number: int, receipt: Receipt) -> None:
        self.number, self.receipts = number, [receipt]

    @property
    def newest(self) -> Receipt:
        """The receipt of the last delivery."""
        return self.receipts[-1]

    def forget_over(self, now: float) -> None:
        """Drop receipts whose lease has ended, except the newest."""
        if len(self.receipts) > 1:
            self.receipts = [each for each in self.receipts[:-1] if each.until > now] + self.receipts[-1:]
