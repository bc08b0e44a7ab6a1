"""What these tests share: topics and messages on the real broker, and apps on them in threads."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.rocketmq import LeasedSource
from holdfast.adapters.rocketmq.grpc.client import Client
from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
from holdfast.adapters.rocketmq.remoting import Admin, BrokerBusy, Message, RemotingClient, Sender
from holdfast.timing import SYSTEM_CLOCK, Deadline
from tests.harness.running import Running
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin import ports
    from holdfast.records import Record
    from tests.harness.servers.rocketmq import RocketMQServer

PATIENCE_S = 240.0
#: The shortest lease that the proxy gives, and after how long at the latest what was not acknowledged came again.
LEASE_S, AGAIN_S = 10, 16.0
_CREATE_GROUP = 200
_NUMBERS = itertools.count(time.time_ns() // 1_000_000)


def new_name(kind: str = "orders") -> str:
    """A topic or a group that nobody else uses."""
    return f"{kind}-{next(_NUMBERS)}"


def create_topic(server: RocketMQServer, topic: str, *, queues: int = 4) -> str:
    """On all brokers. Replies with the name."""
    with RemotingClient(server.namesrv) as client:
        Admin(client).create_topic(topic, Deadline(PATIENCE_S), queues=queues)
    return topic


class Server:
    """What tests ask of the brokers by the remoting protocol. Close it."""

    def __init__(self, server: RocketMQServer) -> None:
        self.server = server
        self.client = RemotingClient(server.namesrv)
        self.admin, self._sender = Admin(self.client), Sender(self.client)

    def topic(self, *, queues: int = 4, broker: str | None = None, kind: str = "NORMAL") -> str:
        """A new one; replies with its name."""
        topic = new_name("orders")
        brokers = [broker or "broker-a"]
        self.admin.create_topic(
            topic, Deadline(PATIENCE_S), queues=queues, brokers=brokers, attributes=f"+message.type={kind}"
        )
        return topic

    def group(self, *, retries: int = 16) -> str:
        """A new one, for messages without an order."""
        group = new_name("group")
        self.admin.create_group(group, Deadline(PATIENCE_S), retry_max_times=retries)
        return group

    def fifo_group(self) -> str:
        """A new one that gets the messages of a message group one after the other."""
        group, deadline = new_name("fifo"), Deadline(PATIENCE_S)
        self.client.route("TBW102", deadline)
        body = {"groupName": group, "consumeEnable": True, "consumeMessageOrderly": True, "retryMaxTimes": 16}
        for broker in self.server.brokers:
            self.client.ask(broker, _CREATE_GROUP, {}, deadline, json.dumps(body).encode())
        return group

    def fill(self, topic: str, values: Sequence[str], **given: Any) -> None:
        """Send them in batches of 100, queue after queue."""
        deadline = Deadline(PATIENCE_S)
        queues = self.client.route(topic, deadline).queues(read=False)
        for number, at in enumerate(range(0, len(values), 100)):
            messages = [Message(topic, value.encode(), **given) for value in values[at : at + 100]]
            while True:
                try:
                    self._sender.send_batch(queues[number % len(queues)], messages, deadline)
                    break
                except BrokerBusy:  # other stories are loud
                    assert not deadline.passed

    def send(self, topic: str, value: str, **given: Any) -> str:
        """Replies with the message's UNIQ_KEY."""
        deadline = Deadline(PATIENCE_S)
        queue = self.client.route(topic, deadline).queues(read=False)[0]
        return self._sender.send(queue, Message(topic, value.encode(), **given), deadline).unique_key

    def messages(self, topic: str) -> int:
        """How many are stored."""
        found = self.admin.topic_stats(topic, Deadline(PATIENCE_S))
        return sum(each.max_offset - each.min_offset for each in found.values())

    def lag(self, group: str, topic: str) -> int:
        """By the broker's offsets."""
        found = self.admin.lag(group, topic, Deadline(PATIENCE_S))
        return sum(each.broker_offset - each.consumer_offset for each in found.values())

    def close(self) -> None:
        self.client.close()


class Lab:
    """One server, one Redis, and a topic, a group and a namespace for each story."""

    def __init__(self, server: RocketMQServer, redis_url: str, folder: Path) -> None:
        self.server, self.redis_url, self.folder = server, redis_url, folder
        self.endpoints = server.endpoints
        self.ask = Server(server)

    def field(self, **topic: Any) -> Field:
        """For one story."""
        return Field(self, self.ask.topic(**topic), self.ask.group())

    def close(self) -> None:
        self.ask.close()


class Field:
    """A topic, a group, a store, and a gate for handlers."""

    def __init__(self, lab: Lab, topic: str, group: str) -> None:
        self.lab, self.topic, self.group = lab, topic, group
        self.gate = Gate()

    def source(self, **given: Any) -> LeasedSource:
        return LeasedSource(self.lab.endpoints, self.group, **{"invisible_s": LEASE_S} | given)

    def app(self, source: LeasedSource | None = None, *, claims: bool = True, **given: Any) -> App:
        store = RedisClaims.from_url(self.lab.redis_url, namespace=self.group) if claims else None
        return App(source or self.source(), [self.topic], self.gate, store, **given)

    def fill(self, *values: str, **given: Any) -> None:
        self.lab.ask.fill(self.topic, values, **given)

    def client(self, invisible_s: int = 300) -> Client:
        """The client alone. Close it."""
        config = GrpcConfig(
            endpoints=self.lab.endpoints, group=self.group, invisible_s=invisible_s, request_timeout_s=invisible_s // 3
        )
        client = Client(config, [self.topic], SYSTEM_CLOCK)
        client.open(Deadline(PATIENCE_S))
        return client


class Gate:
    """Handlers wait at it for values that are held."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._held: set[str] = set()
        self._failing: set[str] = set()
        self.started: list[str] = []
        self.ended: list[str] = []
        self.records: dict[str, Record] = {}

    def hold(self, *values: str) -> None:
        self._held.update(values)

    def fail(self, *values: str) -> None:
        self._failing.update(values)

    def let_go(self, *values: str) -> None:
        with self.changed:
            self._held.difference_update(values or tuple(self._held))
            self.changed.notify_all()

    def handle(self, record: Record) -> None:
        value = (record.value or b"").decode()
        with self.changed:
            self.started.append(value)
            self.records[value] = record
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: value not in self._held, 2 * PATIENCE_S)
            if value in self._failing:
                raise ValueError(value)
            self.ended.append(value)
            self.changed.notify_all()

    def wait(self, over: Callable[[], bool]) -> None:
        until(over, lambda: (self.started, self.ended), patience_s=PATIENCE_S, changed=self.changed)

    def wait_for(self, values: Iterable[str]) -> None:
        """Until these have ended."""
        wanted = set(values)
        self.wait(lambda: wanted <= set(self.ended))

    @property
    def twice(self) -> list[str]:
        """What was started more than once."""
        return sorted(value for value, times in Counter(self.started).items() if times > 1)


class App(Running):
    """The end of the block stops it, and raises what it raised."""

    def __init__(
        self,
        source: ports.LeasedSource,
        topics: Iterable[str],
        gate: Gate,
        claims: ClaimStore | None,
        *,
        key: Any = None,
        handler: dict[str, Any] | None = None,
        dead_letters: Any = None,
        **settings: Any,
    ) -> None:
        super().__init__(gate.changed, patience_s=PATIENCE_S)
        self.source, self.gate = source, gate
        self.app = Holdfast(
            source,
            claims=claims,
            settings=Settings(**{"workers": 8, "ramp": None, "startup_timeout_s": PATIENCE_S} | settings),
            observers=[self],
            dead_letters=dead_letters,
        )
        self.app.handler(list(topics), key=key, name="handle", **(handler or {}))(gate.handle)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.gate.let_go()
            self.app.stop()
            self.over.wait(PATIENCE_S)
            return
        self.stop()
