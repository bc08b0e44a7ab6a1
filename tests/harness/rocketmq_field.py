"""A topic and a group of their own on the real broker, and apps in threads that consume it."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq.remoting import BrokerRefused, Credentials, RemotingClient
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.remoting.sending import Message, Sender
from holdfast.adapters.rocketmq.source import RocketMQSource
from holdfast.timing import Deadline
from tests.harness.running import Running
from tests.harness.waiting import until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Iterable, Mapping

    from holdfast.plugin.events import Event
    from holdfast.records import Partition, Record
    from tests.harness.servers.rocketmq import RocketMQServer

E = TypeVar("E")

PATIENCE_S = 90.0
#: POP_MESSAGE, and its answers where there is nothing: POLLING_FULL, POLLING_TIMEOUT, and that no poll is wanted.
_POP, _NOTHING = 200050, (209, 210, 19)
QUICK = Settings(workers=4, commit_interval_s=0.05, ramp=None)


def client_of(
    namesrv: str, *, access_key: str | None = None, secret_key: str | None = None, tls: ssl.SSLContext | None = None
) -> RemotingClient:
    """By what a source is told too."""
    credentials = None
    if access_key is not None and secret_key is not None:
        credentials = Credentials(access_key=access_key, secret_key=secret_key)
    return RemotingClient(namesrv, credentials=credentials, tls=tls)


class App(Running):
    """One member."""

    def __init__(self, field: Field, source: RocketMQSource, app: Holdfast, store: RedisClaims) -> None:
        super().__init__(field.changed, patience_s=PATIENCE_S)
        self.field, self.source, self.app, self.store = field, source, app, store

    @property
    def owns(self) -> set[Partition]:
        """Queues that it may work on, without the retry topic's."""
        return {queue for queue in super().owns if not queue.topic.startswith("%")}


class Field:
    """One test's topic, group, members and ledger."""

    def __init__(
        self,
        server: RocketMQServer,
        redis_url: str,
        *,
        queues: int = 4,
        login: Mapping[str, Any] | None = None,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Args:
        queues: of the topic, on each broker.
        login: access_key, secret_key, tls.
        brokers: with that topic; None = all.
        """
        self.server, self.url, self.login = server, redis_url, dict(login or {})
        name = secrets.token_hex(4)
        self.topic, self.group = f"orders-{name}", f"billing-{name}"
        self.changed = threading.Condition()
        self.handled: list[tuple[str, Partition, int]] = []
        self.records: list[Record] = []
        self.do: Callable[[Record], None] = lambda _: None
        self.apps: list[App] = []
        self._sent: dict[Partition, int] = {}
        self._stack = ExitStack()
        self.client = self._stack.enter_context(client_of(server.namesrv, **self.login))
        self.admin, self.sender = Admin(self.client), Sender(self.client)
        self.create(self.topic, queues, brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for app in self.apps:
            app.app.stop()
            if kind is not None:
                app.app.stop()
        for app in self.apps:
            app.over.wait(PATIENCE_S)
        try:
            if kind is None:
                for app in self.apps:
                    app.join()
        finally:
            for app in self.apps:
                app.store.close()
            self._stack.close()

    # ---- the broker
    def create(self, topic: str, queues: int, brokers: Collection[str] | None = None) -> None:
        self.admin.create_topic(topic, Deadline(PATIENCE_S), queues=queues, brokers=brokers)

    def queues(self, topic: str | None = None) -> list[Partition]:
        route = self.client.route(topic or self.topic, Deadline(PATIENCE_S), fresh=True)
        return list(route.queues(read=True))

    def produce(self, *values: str, queue: int | None = None, topic: str | None = None, **named: Any) -> None:
        """By turns to all queues, or to one."""
        queues = self.queues(topic)
        for number, value in enumerate(values):
            where = queues[number % len(queues)] if queue is None else queues[queue]
            message = Message(topic or self.topic, value.encode(), **named)
            sent = self.sender.send(where, message, Deadline(PATIENCE_S))
            self._sent[where] = sent.offset + 1

    def produce_many(self, queue: int | Partition, values: Iterable[str]) -> None:
        where = self.queues()[queue] if isinstance(queue, int) else queue
        messages = [Message(self.topic, value.encode()) for value in values]
        for start in range(0, len(messages), 500):
            batch = messages[start : start + 500]
            self._sent[where] = self.sender.send_batch(where, batch, Deadline(PATIENCE_S)).offset + len(batch)

    def fill(self, prefix: str, count: int) -> list[str]:
        """So many in each queue, in one go each; their values."""
        values = []
        for queue in self.queues():
            some = numbered(f"{prefix}{queue.number}-", count)
            self.produce_many(queue, some)
            values += some
        return values

    def committed(self, topic: str | None = None, group: str | None = None) -> Mapping[Partition, int | None]:
        return {
            queue: self.client.query_offset(queue, group or self.group, Deadline(PATIENCE_S))
            for queue in self.queues(topic)
        }

    def ends(self, topic: str | None = None) -> Mapping[Partition, int]:
        """Also with what a broker has acknowledged, and its queue has a moment later."""
        return {
            queue: max(self.client.max_offset(queue, Deadline(PATIENCE_S)), self._sent.get(queue, 0))
            for queue in self.queues(topic)
        }

    def pop(self) -> int:
        """As a proxy asks for a client over gRPC, for 10 s; how many bytes came. They are not acknowledged."""
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": time.time_ns() // 1_000_000,
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": False,
        }
        self.queues()
        try:
            return len(self.client.ask("broker-a", _POP, fields, Deadline(PATIENCE_S)).body)
        except BrokerRefused as error:
            if error.code not in _NOTHING:
                raise
            return 0

    # ---- members
    def app(
        self,
        name: str = "a",
        *,
        topics: Any = None,
        settings: Settings = QUICK,
        handler: Callable[[Record], None] | None = None,
        handling: Mapping[str, Any] | None = None,
        start: bool = True,
        **named: Any,
    ) -> App:
        store = RedisClaims.from_url(self.url)
        named.setdefault("poll_name_server_interval_s", 0.2)
        named.setdefault("lease_s", 3.0)
        namesrv = named.pop("namesrv", self.server.namesrv)
        options = {**self.login, **named}
        source = RocketMQSource(namesrv, self.group, coordinator=RedisCoordinator(store), **options)
        seen: list[App] = []

        class Tell:
            def on_event(self, event: Event) -> None:
                seen[0].on_event(event)

        app = Holdfast(source, claims=store, settings=settings, observers=[Tell()])
        app.handler(topics or self.topic, name="handle", **(handling or {}))(
            handler or (lambda record: self._handle(name, record))
        )
        member = App(self, source, app, store)
        seen.append(member)
        self.apps.append(member)
        return member.start() if start else member

    def _handle(self, name: str, record: Record) -> None:
        self.do(record)
        with self.changed:
            self.handled.append((name, record.partition, record.offset))
            self.records.append(record)
            self.changed.notify_all()

    def values(self) -> list[str]:
        with self.changed:
            return [(record.value or b"").decode() for record in self.records]

    # ---- waiting
    def wait(self, over: Callable[[], object], what: str | Callable[[], str] = "") -> None:
        def look() -> object:
            for app in self.apps:
                if app.over.is_set() and app.error is not None:
                    app.join()
            return over()

        until(look, what or (lambda: f"it has not come true: {self.state()}"), changed=self.changed)

    def wait_handled(self, *values: str) -> None:
        self.wait(lambda: set(values) <= set(self.values()))

    def wait_committed(self, topic: str | None = None) -> None:
        """All that is in the logs."""
        self.wait(
            lambda: self.committed(topic) == self.ends(topic),
            lambda: f"{self.committed(topic)} of {self.ends(topic)}; {self.state()}",
        )

    def state(self) -> str:
        return f"{len(self.handled)} handled, {[(sorted(app.owns), app.events[-3:]) for app in self.apps]}"


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]
