"""Leases: the messages in this process, their receipts, and the requests that are due for each. No I/O.

A message is *waiting* (received), then *out* (with the engine), then acknowledged or given back, if the broker answers.
Each delivery has a receipt. RocketMQ 5.5.0 behaves so (measured):

- It accepts two renewals with the same receipt, and then delivers the message twice. Therefore a receipt has at most
  one request under way, and after a renewal without an answer it is not renewed again. Its lease ends, and the next
  delivery is recognised as the same message: here by its name, at another member by its claim.
- A renewal gives a new receipt. An acknowledgement with the old one is accepted and has no effect.
- An acknowledgement may be repeated: it is accepted again, or refused because the lease has ended.
- A message that is done stays in `Leases._book` until the broker has confirmed it without doubt. If it is delivered
  again, the new receipt is acknowledged. A dead letter gives its claim back, so only the book would know it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import count, groupby
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.grpc.delivery import Verdict
from holdfast.adapters.rocketmq.grpc.receipts import Message, Receipt, Taken
from holdfast.plugin.retrying.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.adapters.rocketmq.grpc.delivery import Asks, Delivery
    from holdfast.runtime import Runtime

    Name = tuple[str, str, int]

#: When an acknowledgement without an answer is repeated.
_AGAIN = Retry(attempts=1_000_000_000, wait_initial_s=0.2, wait_max_s=5.0, jitter_s=0.2)
_UNANSWERED = RuntimeError("no answer")
#: How many messages are remembered that are done and may be delivered again.
_REMEMBERED = 10_000
#: The most messages in one acknowledgement.
_TOGETHER = 32


class Leases:
    """The state of all leases. Any thread: the loop's, those that receive, and the client's, which brings answers."""

    def __init__(self, asks: Asks, lease_s: int, runtime: Runtime) -> None:
        self._asks, self._lease_s, self._clock, self._chance = asks, lease_s, runtime, runtime.random
        #: Guards the fields below. No request is sent while it is held.
        self.changed = runtime.condition()
        self._numbers = count(1)
        self._waiting: deque[Message] = deque()
        self._by_number: dict[int, Message] = {}
        self._by_name: dict[Name, Message] = {}
        #: Messages that are done here, and maybe not at the broker -> acknowledgements that are not answered; newest
        #: last. Further deliveries of them are acknowledged.
        self._book: OrderedDict[Name, int] = OrderedDict()
        #: Receipts to acknowledge, in order, and those that are being given back.
        self._owed: dict[Receipt, None] = {}
        self._returning: set[Receipt] = set()
        self._draining = False
        #: Messages whose acknowledgement came too late, until `late` returns them.
        self._late = 0
        #: Since the start: deliveries acknowledged without the engine, and leases that ended before their message was
        #: taken.
        self.repeated = self.lapsed = 0

    @property
    def load(self) -> int:
        """The number of messages in the process, and of acknowledgements without an answer."""
        return len(self._by_name) + len(self._owed)

    @property
    def size(self) -> int:
        """Bytes of the bodies of messages in the process, as received."""
        with self.changed:
            return sum(len(message.newest.delivery.body) for message in self._by_name.values())

    @property
    def settled(self) -> bool:
        """Whether the broker has answered all acknowledgements and returns."""
        return not self._owed and not self._returning

    # ---- messages
    def arrived(self, deliveries: Iterable[Delivery], asked_at: float) -> None:
        """Take received deliveries. `asked_at`: when the poll was sent, by our clock; their leases began later."""
        back, done = [], []
        with self.changed:
            for delivery in deliveries:
                receipt = Receipt(delivery, asked_at, self._lease_s)
                message = self._by_name.get(delivery.name)
                if delivery.name in self._book:
                    self.repeated += 1
                    receipt.done = True
                    self._book[delivery.name] += 1
                    self._owed[receipt] = None
                    done.append(receipt)
                elif message is not None:
                    message.receipts.append(receipt)
                elif self._draining:
                    back.append(receipt)
                else:
                    message = self._by_name[delivery.name] = Message(next(self._numbers), receipt)
                    self._waiting.append(message)
            self.changed.notify_all()
        self._acknowledge(done)
        self._return(back)

    def take(self, at_most: int) -> list[Taken]:
        """The next messages for the engine, without those whose lease has ended or is about to."""
        found: list[Taken] = []
        back: list[Receipt] = []
        with self.changed:
            now = self._clock.now()
            while self._waiting and len(found) < at_most:
                message = self._waiting.popleft()
                if message.newest.until - now > self._lease_s / 4:
                    self._by_number[message.number] = message
                    found.append(Taken(message.number, message.newest.delivery))
                else:
                    self.lapsed += 1
                    del self._by_name[message.newest.delivery.name]
                    back += message.receipts
        self._return(back)
        return found

    # ---- requests
    def renew(self, numbers: Iterable[int]) -> None:
        """Renew the leases of these messages and of the waiting ones, once 0.3 of the lease has passed."""
        with self.changed:
            now = self._clock.now()
            messages = [self._by_number[number] for number in numbers if number in self._by_number]
            due = []
            for message in (*messages, *self._waiting):
                message.forget_over(now)
                for receipt in message.receipts:
                    old = now - receipt.since >= 0.3 * self._lease_s
                    if old and not receipt.asking and not receipt.doubtful and receipt.until > now:
                        receipt.asking = True
                        due.append(receipt)
        for receipt in due:
            self._renew(receipt)

    def done(self, numbers: Iterable[int]) -> None:
        """Acknowledge these messages, and further deliveries of them."""
        ask = []
        with self.changed:
            for number in numbers:
                message = self._by_number.pop(number, None)
                if message is None:
                    continue
                name = message.newest.delivery.name
                del self._by_name[name]
                self._book[name] = len(message.receipts)
                self._book.move_to_end(name)
                for receipt in message.receipts:
                    receipt.done = True
                    self._owed[receipt] = None
                    ask.append(receipt)
        self._acknowledge(ask)

    def back(self, numbers: Iterable[int]) -> None:
        """Give these messages back, so that another member may get them."""
        receipts: list[Receipt] = []
        with self.changed:
            for number in numbers:
                message = self._by_number.pop(number, None)
                if message is not None:
                    del self._by_name[message.newest.delivery.name]
                    receipts += message.receipts
        self._return(receipts)

    def drain(self) -> None:
        """Take no more messages: give back the waiting ones, and those that polls under way still bring."""
        with self.changed:
            self._draining = True
            receipts = [receipt for message in self._waiting for receipt in message.receipts]
            for message in self._waiting:
                del self._by_name[message.newest.delivery.name]
            self._waiting.clear()
            self.changed.notify_all()
        self._return(receipts)

    def repeat(self) -> None:
        """Repeat acknowledgements without an answer, when they are due."""
        with self.changed:
            now = self._clock.now()
            due = [each for each in self._owed if each.again_at <= now]
        self._acknowledge(due)

    def wait(self, timeout_s: float) -> None:
        """Wait until a message or an answer has come."""
        with self.changed:
            if not self._waiting:
                self.changed.wait(timeout_s)

    def late(self, at_most: int) -> int:
        """How many acknowledgements came after their lease had ended; each is counted in one call."""
        with self.changed:
            late = min(self._late, at_most)
            self._late -= late
        return late

    # ---- inside
    def _renew(self, receipt: Receipt) -> None:
        sent = self._clock.now()

        def answer(verdict: Verdict, renewed: str) -> None:
            back = False
            with self.changed:
                receipt.asking = False
                if verdict is Verdict.DONE:
                    receipt.delivery = receipt.delivery._replace(receipt=renewed)
                    receipt.since, receipt.until = sent, sent + self._lease_s
                elif verdict is Verdict.OVER:
                    receipt.until = sent
                else:
                    receipt.doubtful = True
                back = receipt.back
            if receipt.done:
                self._acknowledge([receipt])
            elif back:
                self._return([receipt])

        self._asks.begin_change(receipt.delivery, self._lease_s, answer)

    def _return(self, receipts: Iterable[Receipt]) -> None:
        """Give back, once, best effort. A receipt in doubt is left out: it would be a second renewal."""
        ask = []
        with self.changed:
            now = self._clock.now()
            for receipt in receipts:
                receipt.back = True
                if not receipt.asking and not receipt.doubtful and receipt.until > now:
                    receipt.asking = True
                    self._returning.add(receipt)
                    ask.append(receipt)
        for receipt in ask:
            self._asks.begin_change(receipt.delivery, 0, self._returned(receipt))

    def _returned(self, receipt: Receipt) -> Callable[[Verdict, str], None]:
        def answer(verdict: Verdict, renewed: str) -> None:  # noqa: ARG001 - best effort
            with self.changed:
                self._returning.discard(receipt)
                self.changed.notify_all()

        return answer

    def _acknowledge(self, receipts: Iterable[Receipt]) -> None:
        """Acknowledge now, or once the request under way is answered. Receipts that another thread has acknowledged are
        left out."""
        with self.changed:
            ask = [each for each in receipts if each in self._owed and not each.asking]
            for receipt in ask:
                receipt.asking = True
        ask.sort(key=_topic_and_endpoints)
        for _, each in groupby(ask, _topic_and_endpoints):
            group = list(each)
            for at in range(0, len(group), _TOGETHER):
                some = group[at : at + _TOGETHER]
                self._asks.begin_acknowledge([receipt.delivery for receipt in some], self._acknowledged(some))

    def _acknowledged(self, receipts: Sequence[Receipt]) -> Callable[[Sequence[Verdict]], None]:
        def answer(verdicts: Sequence[Verdict]) -> None:
            with self.changed:
                for receipt, verdict in zip(receipts, verdicts, strict=True):
                    receipt.asking = False
                    if verdict is Verdict.UNKNOWN:
                        receipt.tries += 1
                        wait_s = _AGAIN.wait_s(receipt.tries, _UNANSWERED, self._chance)
                        receipt.again_at = self._clock.now() + (wait_s or 0.0)
                    else:
                        self._note_acknowledgement(receipt, verdict)
                self.changed.notify_all()

        return answer

    def _note_acknowledgement(self, receipt: Receipt, verdict: Verdict) -> None:
        """Note the broker's answer to an acknowledgement. The message is remembered if it may be delivered again."""
        self._owed.pop(receipt, None)
        name = receipt.delivery.name
        self._book[name] -= 1
        if verdict is Verdict.OVER:
            self._late += 1
        elif not receipt.doubtful and self._book[name] == 0:
            del self._book[name]
        while len(self._book) > _REMEMBERED and not next(iter(self._book.values())):
            self._book.popitem(last=False)


def _topic_and_endpoints(receipt: Receipt) -> tuple[str, str]:
    return receipt.delivery.topic, str(receipt.delivery.endpoints)
