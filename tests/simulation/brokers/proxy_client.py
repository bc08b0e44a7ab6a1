"""ProxyClient: a member's client of RocketMQ's proxy, over a line with faults. It stands for the gRPC client."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.rocketmq.grpc.delivery import PollTarget, Verdict
from holdfast.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.adapters.rocketmq.grpc.delivery import Delivery
    from holdfast.runtime import Queue
    from holdfast.testing.brokers.agenda import Line
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.tasks import Waiter
    from holdfast.timing import Deadline
    from tests.simulation.brokers.proxy import Proxy

T = TypeVar("T")

#: The longest time of one way without faults.
_WAY_S = 1e-3
#: Time between two tries to connect.
_AGAIN_S = 0.3


class ProxyClient:
    """Implements `holdfast.adapters.rocketmq.grpc.client.Client`.

    Args:
        proxy: the proxy.
        scheduler: of the world.
        process: of the member.
        line: between the two.
        topics: the subscription.
        invisible_s: how long a delivery hides its message.
        request_timeout_s: how long the client waits for an answer.
        poll_s: how long a poll waits at the proxy.
    """

    def __init__(
        self,
        proxy: Proxy,
        scheduler: Scheduler,
        process: Process,
        line: Line,
        topics: Collection[str],
        *,
        invisible_s: float,
        request_timeout_s: float,
        poll_s: float,
    ) -> None:
        self._proxy, self._scheduler, self._process, self._line = proxy, scheduler, process, line
        self._topics, self._invisible_s = sorted(topics), invisible_s
        self._timeout_s, self._poll_s = request_timeout_s, poll_s
        self._chance = Random(f"{scheduler.seed} {process.number} proxy")
        self._answers: Queue[Callable[[], None]] = process.runtime.queue()
        self._polling: dict[object, list[Waiter]] = {}
        self._closed = False
        process.spawn(self._tell, f"{process.name} answers")

    # ---- as the client's
    def open(self, deadline: Deadline) -> None:
        """Implements `Proxy.open`."""
        while True:
            try:
                self.renew()
            except SourceUnavailable:
                if deadline.passed:
                    raise
                self._process.runtime.sleep(deadline.left_s(_AGAIN_S))
            else:
                return

    def renew(self) -> None:
        """Implements `Proxy.renew`."""
        self._wait_for(lambda answer: answer([]), self._timeout_s, "connecting", object())

    def places(self) -> Sequence[PollTarget]:
        """Implements `Proxy.places`."""
        return [PollTarget(topic, "broker-a") for topic in self._topics]

    def receive(self, place: PollTarget, at_most: int) -> Sequence[Delivery]:
        """Implements `Proxy.receive`."""

        def request(answer: Callable[[list[Delivery]], None]) -> None:
            self._proxy.receive(
                place.topic,
                at_most,
                self._invisible_s,
                wait_s=self._poll_s,
                holder=self._process.name,
                answer=answer,
            )

        return self._wait_for(request, self._poll_s + self._timeout_s, f"receiving from {place.topic}", place)

    def end_poll(self, place: PollTarget) -> None:
        """Implements `Proxy.end_poll`. Where that does not get through, the proxy goes on with the poll."""
        if (waiters := self._polling.get(place)) is not None:
            self._scheduler.tell(waiters)
            self._send(lambda _: self._proxy.end_polls(place.topic, self._process.name), lambda _: None)

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        """Implements `Asks.begin_acknowledge`."""
        receipts = [each.receipt for each in deliveries]
        self._begin(
            lambda: [self._proxy.acknowledge(each) for each in receipts], answer, [Verdict.UNKNOWN] * len(receipts)
        )

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        """Implements `Asks.begin_change`."""
        self._begin(
            lambda: self._proxy.change(delivery.receipt, hidden_s, self._process.name),
            lambda each: answer(*each),
            (Verdict.UNKNOWN, ""),
        )

    def close(self) -> None:
        """Implements `Proxy.close`."""
        self._closed = True
        for waiters in self._polling.values():
            self._scheduler.tell(waiters)

    # ---- inside
    def _begin(self, request: Callable[[], T], answer: Callable[[T], None], unknown: T) -> None:
        """Send a request. `answer` is called once, with the answer or, without one, with `unknown`."""
        if self._closed:
            answer(unknown)
            return
        told = False

        def tell(what: T) -> None:
            nonlocal told
            if not told:
                told = True
                self._answers.put(lambda: answer(what))

        def arrives(reply: Callable[[T], None]) -> None:
            if self._line.twice_s is not None:
                self._later(self._line.twice_s, lambda: _once_more(request))
            reply(request())

        self._send(arrives, tell)
        self._later(self._real_s(self._timeout_s), lambda: tell(unknown))

    def _wait_for(
        self, request: Callable[[Callable[[list[Delivery]], None]], None], seconds: float, what: str, name: object
    ) -> Sequence[Delivery]:
        waiters: list[Waiter] = []
        found: list[list[Delivery]] = []

        def tell(reply: list[Delivery]) -> None:
            found.append(reply)
            self._scheduler.tell(waiters)

        if not self._closed:
            self._send(request, tell)
            self._polling[name] = waiters
            try:
                self._scheduler.wait_among(waiters, self._real_s(seconds))
            finally:
                del self._polling[name]
        if not found:
            raise SourceUnavailable(f"{what}: {'the client is closed' if self._closed else 'no answer'}")
        return found[0]

    def _send(self, request: Callable[[Callable[[T], None]], None], tell: Callable[[T], None]) -> None:
        line = self._line

        def comes_back(reply: T) -> None:
            if line.speaks:
                self._later(line.delay_s + self._chance.random() * _WAY_S, lambda: tell(reply))

        def arrives() -> None:
            if line.hears:
                request(comes_back)

        self._later(line.delay_s + self._chance.random() * _WAY_S, arrives)

    def _tell(self) -> None:
        """The thread of the client that calls back with answers."""
        while True:
            self._answers.get()()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._scheduler.at(self._scheduler.now + seconds, call)

    def _real_s(self, seconds: float) -> float:
        return seconds / self._process.clock_rate


def _once_more(request: Callable[[], object]) -> None:
    request()
