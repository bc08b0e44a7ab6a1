"""A shop in a test's hands: a real app in a thread, topics on the real broker, and the command in a subprocess."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer

from holdfast import Holdfast, RedisClaims, Settings, Unretriable
from holdfast.adapters.kafka import KafkaSource
from tests.harness import forks
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Sequence

    from holdfast.records import Record
    from tests.harness.servers.kafka import KafkaServer

ROOT = Path(__file__).parents[2]


def lay_out(redis_url: str) -> None:
    """What the first start of an app does to its namespace."""
    store = RedisClaims.from_url(redis_url)
    store.connect()
    store.close()


class Declined(Exception):
    pass


def holdfast(*arguments: object, code: int | Sequence[int] = 0) -> subprocess.CompletedProcess[str]:
    """Run the command and expect its exit code."""
    ran = forks.run("holdfast", *map(str, arguments), timeout_s=PATIENCE_S * 2)
    assert ran.returncode in ([code] if isinstance(code, int) else code), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def lines(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What a command said with --json."""
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Shop:
    """A group that bills orders; those in `declined` fail for good."""

    def __init__(
        self, kafka: KafkaServer, redis_url: str, *, partitions: int = 2, key: str | None = "order_id"
    ) -> None:
        self.kafka, self.redis_url, self._key = kafka, redis_url, key
        name = uuid.uuid4().hex[:8]
        self.group, self.topic, self.dlq = f"billing-{name}", f"orders-{name}", f"orders-{name}.dlq"
        kafka.create_topic(self.topic, partitions)
        kafka.create_topic(self.dlq, 2)
        self.declined: set[int] = set()
        self._ended = threading.Condition()
        self.billed: Counter[int] = Counter()

    @property
    def both(self) -> list[str]:
        """The addresses, for a command."""
        return ["--bootstrap", self.kafka.bootstrap, "--redis", self.redis_url]

    def send(self, orders: Iterable[int], partitioner: str = "consistent_random") -> None:
        """Produce, and wait for the broker."""
        conf = {"bootstrap.servers": self.kafka.bootstrap, "log_level": 0, "partitioner": partitioner}
        producer = Producer(conf)
        for order in orders:
            producer.produce(self.topic, key=f"customer-{order % 7}", value=json.dumps({"order_id": order}))
        assert producer.flush(20) == 0

    def app(self) -> Member:
        """A member that is not started yet."""
        source = KafkaSource(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": self.group,
                "client.id": "till",
                "auto.offset.reset": "earliest",
            },
            assignment="sticky",
        )
        claims = RedisClaims.from_url(self.redis_url, lease_s=5.0)
        app = Holdfast(source, claims=claims, settings=Settings(linger_timeout_s=0.0))
        app.handler(self.topic, name="shop.bill", key=self._key, dead_letter=self.dlq)(self._bill)
        return Member(app, claims)

    def _bill(self, record: Record) -> None:
        order = json.loads(record.value or b"{}")["order_id"]
        with self._ended:
            fails = order in self.declined
            if not fails:
                self.billed[order] += 1
                self._ended.notify_all()
        if fails:
            raise Unretriable(f"no money for {order}") from Declined()

    def until(self, *, billed: int) -> None:
        """Until so many orders were billed."""
        until(lambda: self.billed.total() >= billed, self.billed, changed=self._ended)

    def until_letters(self, count: int) -> None:
        """Until so many letters are acknowledged."""
        until(lambda: sum(self.kafka.end_offsets(self.dlq).values()) >= count, lambda: self.kafka.end_offsets(self.dlq))


class Member:
    """An app in a thread, as a context."""

    def __init__(self, app: Holdfast, claims: RedisClaims) -> None:
        self._app, self._claims = app, claims
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._app.run(install_signal_handlers=False)
        except Exception as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it in good order: everything is committed."""
        self._app.stop()
        self._thread.join(PATIENCE_S)
        self._claims.close()
        if self._error is not None:
            raise self._error
        assert not self._thread.is_alive()
