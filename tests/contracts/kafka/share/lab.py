"""What these tests share: a topic and a share group on the real broker, the client alone, and apps in threads."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer

from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.adapters.kafka import ShareSource
from tests.harness.running import Running
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confluent_kafka import Message

    from holdfast.dedup.claims import ClaimStore
    from holdfast.records import Record
    from tests.harness.servers.kafka import KafkaServer

_NUMBERS = itertools.count(time.time_ns() // 1_000_000)
_SEND_S = 60.0
#: Once the client has its partitions, what the group has comes at the next poll. Nothing is left if nothing comes.
_SILENT_POLLS = 10


class Field:
    """A topic, its dead letters, and a share group that begins at the first record."""

    def __init__(self, kafka: KafkaServer, *, partitions: int = 1, lock_s: float = 30.0, deliveries: int = 5) -> None:
        number = next(_NUMBERS)
        self.kafka = kafka
        self.topic, self.letters, self.group = f"jobs-{number}", f"jobs-{number}.dlq", f"share-{number}"
        kafka.create_topic(self.topic, partitions)
        kafka.create_topic(self.letters, 1)
        self.set(
            {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": str(int(lock_s * 1000)),
                "share.delivery.count.limit": str(deliveries),
            }
        )

    def set(self, settings: dict[str, str]) -> None:
        """Change settings of the group."""
        self.kafka.set_group(self.group, settings)

    @property
    def conf(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group}

    def fill(self, values: Iterable[str], *, batch: int = 1) -> None:
        """Send them, so many in each batch of the producer."""
        conf = {"bootstrap.servers": self.kafka.bootstrap, "batch.num.messages": batch, "linger.ms": 5}
        producer = Producer(conf)
        for value in values:
            producer.produce(self.topic, value.encode())
        assert producer.flush(_SEND_S) == 0

    def client(self, **conf: Any) -> Client:
        """The client alone. Close it."""
        return Client(self, **conf)

    def left(self) -> list[str]:
        """What the group still gives out."""
        client = self.client()
        with client:
            return [value for _ in range(_SILENT_POLLS) for value in client.take(once=True)]

    def dead(self, count: int = 0) -> list[Message]:
        """The dead letters, once there are so many."""
        conf = {"bootstrap.servers": self.kafka.bootstrap, "group.id": f"{self.group}-dead"}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        found: list[Message] = []
        try:
            consumer.subscribe([self.letters])
            end = self.kafka.end_offsets(self.letters)[0]
            until(lambda: self.kafka.end_offsets(self.letters)[0] >= count, lambda: found)
            end = max(end, self.kafka.end_offsets(self.letters)[0])
            while len(found) < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    found.append(message)
        finally:
            consumer.close()
        return found

    def app(self, gate: Gate, claims: ClaimStore | None = None, **given: Any) -> App:
        return App(self, gate, MemoryClaims() if claims is None else claims, **given)


class Client:
    """A `ShareConsumer` in explicit mode, that has joined when it is made."""

    def __init__(self, field: Field, **conf: Any) -> None:
        named = {name.replace("_", "."): value for name, value in conf.items()}
        self.inner = ShareConsumer({**field.conf, "share.acknowledgement.mode": "explicit", **named})
        self.inner.subscribe([field.topic])

    def poll(self) -> list[Message]:
        """The first poll that brings something."""
        return until(lambda: list(self.inner.poll(0.5)) or None)

    def take(self, *, once: bool = False) -> list[str]:
        """Poll and accept."""
        messages = list(self.inner.poll(0.5)) if once else self.poll()
        self.answer(messages)
        return [(message.value() or b"").decode() for message in messages]

    def answer(self, messages: Sequence[Message], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> list[str]:
        """Acknowledge. Returns the names of errors."""
        for message in messages:
            self.inner.acknowledge(message, kind)
        return [error.args[0].name() for error in self.inner.commit_sync(60.0).values() if error is not None]

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gate:
    """Handlers wait at it for values that are held."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._held: set[str] = set()
        self._failing: set[str] = set()
        self.started: list[str] = []
        self.ended: list[str] = []

    def hold(self, *values: str) -> None:
        self._held.update(values)

    def fail(self, *values: str) -> None:
        self._failing.update(values)

    def let_go(self) -> None:
        with self.changed:
            self._held.clear()
            self.changed.notify_all()

    def handle(self, record: Record) -> None:
        value = (record.value or b"").decode()
        with self.changed:
            self.started.append(value)
            self.changed.notify_all()
            self.changed.wait_for(lambda: value not in self._held or record.cancelled, 60.0)
            if value in self._failing:
                raise ValueError(value)
            self.ended.append(value)
            self.changed.notify_all()

    def wait(self, over: Callable[[], object]) -> None:
        until(lambda: bool(over()) or None, lambda: (self.started, self.ended), changed=self.changed)

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
        field: Field,
        gate: Gate,
        claims: ClaimStore,
        *,
        clients: int = 2,
        conf: dict[str, Any] | None = None,
        handler: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(gate.changed)
        self.source = ShareSource({**field.conf, **(conf or {})}, clients=clients)
        given = {"workers": 4, "ramp": None, "handler_timeout_s": 10.0, "handler_grace_s": 1.0, "linger_timeout_s": 5.0}
        self.app = Holdfast(self.source, claims=claims, settings=Settings(**(given | settings)), observers=[self])
        named = {"name": "handle", "dead_letter": field.letters, "dead_letter_limit": None}
        self.app.handler(field.topic, **(named | (handler or {})))(gate.handle)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
