"""The proxy twice: the model in virtual time, and the server of the run. A script asks both through `Consumer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.adapters.rocketmq.grpc.delivery import PollTarget, Verdict
from holdfast.runtime import MACHINE
from holdfast.testing.brokers.agenda import Line
from holdfast.timing import Deadline
from tests.contracts.rocketmq.grpc.lab import AGAIN_S, LEASE_S, PATIENCE_S, Field
from tests.harness.witness import in_no_time
from tests.simulation.brokers.proxy import Message, Proxy
from tests.simulation.brokers.proxy_client import ProxyClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.grpc.delivery import Delivery
    from holdfast.adapters.rocketmq.grpc.delivery import Proxy as Client
    from holdfast.runtime import Runtime
    from holdfast.testing.scheduler import Scheduler
    from tests.contracts.rocketmq.grpc.lab import Lab
    from tests.harness.witness import Seen

    Script = Callable[["Stage"], Seen]


class Stage(Protocol):
    """A topic, and a group."""

    def send(self, value: str, **given: Any) -> None:
        """`name`: another message's UNIQ_KEY."""
        ...

    def consumer(self) -> Consumer:
        """A member, without a source."""
        ...


class Consumer:
    """Waits for the answers that its client brings."""

    def __init__(self, client: Client, topic: str, runtime: Runtime) -> None:
        self._client, self._place, self._runtime = client, PollTarget(topic, "broker-a"), runtime

    def take(self) -> Delivery:
        """The next message, however long it takes."""
        ends = Deadline(PATIENCE_S, self._runtime)
        while not ends.passed:
            for found in self._client.receive(self._place, 1):
                return found
        raise AssertionError(self._place)

    def comes(self, seconds: float = AGAIN_S) -> list[str]:
        """What comes in that time: body and number of the delivery."""
        found: list[str] = []
        ends = Deadline(seconds, self._runtime)
        while not ends.passed:
            found += [said(each) for each in self._client.receive(self._place, 10)]
        return found

    def sleep(self, seconds: float) -> None:
        self._runtime.sleep(seconds)

    def hide(self, delivery: Delivery, hidden_s: int = LEASE_S) -> tuple[str, Delivery]:
        """Replies with the same under its new receipt."""
        answers: list[tuple[Verdict, str]] = []
        over = self._runtime.event()

        def answer(verdict: Verdict, receipt: str) -> None:
            answers.append((verdict, receipt))
            over.set()

        self._client.begin_change(delivery, hidden_s, answer)
        assert over.wait(PATIENCE_S)
        [(verdict, receipt)] = answers
        return verdict.value, delivery._replace(receipt=receipt)

    def acknowledge(self, *deliveries: Delivery) -> list[str]:
        answers: list[Verdict] = []
        over = self._runtime.event()

        def answer(verdicts: Any) -> None:
            answers.extend(verdicts)
            over.set()

        self._client.begin_acknowledge(deliveries, answer)
        assert over.wait(PATIENCE_S)
        return [each.value for each in answers]

    def close(self) -> None:
        self._client.close()


def said(delivery: Delivery) -> str:
    """What scripts compare of one."""
    return f"{delivery.body.decode()} {delivery.attempt}"


class _Model:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._proxy, self._sent = scheduler, Proxy(scheduler), 0

    def send(self, value: str, **given: Any) -> None:
        self._sent += 1
        self._proxy.store(Message("orders", given.get("name", f"u{self._sent}"), value.encode()))

    def consumer(self) -> Consumer:
        process = self._scheduler.process(f"m{self._scheduler.number()}")
        client = ProxyClient(
            self._proxy,
            self._scheduler,
            process,
            Line(),
            ["orders"],
            invisible_s=LEASE_S,
            request_timeout_s=3.0,
            poll_s=5.0,
        )
        client.open(Deadline(PATIENCE_S, process.runtime))
        return Consumer(client, "orders", process.runtime)


class _Server:
    def __init__(self, lab: Lab) -> None:
        self._lab, self._field = lab, Field(lab, lab.ask.topic(queues=1), lab.ask.group())
        self._made: list[Consumer] = []

    def send(self, value: str, **given: Any) -> None:
        properties = {"UNIQ_KEY": given["name"]} if given else {}
        self._lab.ask.send(self._field.topic, value, properties=properties)

    def consumer(self) -> Consumer:
        self._made.append(Consumer(self._field.client(LEASE_S), self._field.topic, MACHINE))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()


def on_model(script: Script) -> Seen:
    """What it sees there, in no time."""
    return in_no_time(_Model, script)


def on_server(lab: Lab, script: Script) -> Seen:
    """What it sees on a real proxy."""
    stage = _Server(lab)
    try:
        return script(stage)
    finally:
        stage.close()
