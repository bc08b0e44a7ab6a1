"""examples/fences: a process stands still at the worst moment, another takes over and writes, and the first one wakes
up. Whatever it still writes is refused."""

from __future__ import annotations

import json
import signal
import uuid
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from confluent_kafka import Producer

from examples.rocketmq.shop import make_topic
from holdfast.adapters.rocketmq import RocketMQProducer
from tests.examples.fence_bench import Member
from tests.harness.servers.rocketmq import RocketMQServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.postgres import PostgresServer
    from tests.harness.servers.redis import RedisServer

#: Of each order come so many statuses, one after the other, in one partition.
STATUSES = 5
ORDERS = tuple(f"order-{number}" for number in range(6))
PARTITIONS = 2


class OnKafka:
    """Where a story is played."""

    def __init__(self, server: KafkaServer, topic: str, *, strategy: str = "cooperative-sticky") -> None:
        self._server, self._topic = server, topic
        self.given = {"bootstrap": server.bootstrap, "strategy": strategy}
        server.create_topic(topic, PARTITIONS)

    def send(self, values: range) -> None:
        """The next statuses of each order, in their order."""
        producer = Producer({"bootstrap.servers": self._server.bootstrap})
        for cents in values:
            for number, order_id in enumerate(ORDERS):
                producer.produce(self._topic, _status(order_id, cents), partition=number % PARTITIONS)
        assert producer.flush(30) == 0


class OnRocketMQ:
    """The same."""

    def __init__(self, server: RocketMQServer, topic: str) -> None:
        self._topic = topic
        self.given = {"namesrv": server.namesrv}
        make_topic(server.namesrv, topic, queues=PARTITIONS)

    def send(self, values: range) -> None:
        with RocketMQProducer(self.given["namesrv"]) as producer:
            for cents in values:
                for order_id in ORDERS:
                    producer.send(self._topic, _status(order_id, cents).encode(), sharding_key=order_id)


def _status(order_id: str, cents: int) -> str:
    return json.dumps({"order_id": order_id, "customer": "c", "cents": cents})


def a_topic() -> str:
    return f"fences-{uuid.uuid4().hex[:8]}"


class Tried(NamedTuple):
    """What was seen of one play."""

    #: What the one that stood still was refused.
    refused: list[dict[str, Any]]
    #: Of the record before which it stood still: the order, and its status in the sink when that write had ended.
    order: str
    status: int


def play(
    server: KafkaServer | RocketMQServer,
    store: str,
    home: Path,
    seed: int,
    *,
    kind: str,
    sink: str,
    look: Callable[[], dict[str, int]],
    fenced: bool = True,
) -> Tried:
    """The story, to its end."""
    chance, topic = Random(seed), a_topic()
    moment = chance.choice(["read", "held"]) if kind == "postgres" else "read"
    order = chance.choice(ORDERS)
    ground = (
        OnRocketMQ(server, topic)
        if isinstance(server, RocketMQServer)
        else OnKafka(server, topic, strategy=chance.choice(["range", "cooperative-sticky"]))
    )
    given: dict[str, Any] = {"redis": store, "topic": topic, "kind": kind, "sink": sink, "fenced": fenced}
    given |= ground.given
    with Member(home, "a", **given, moment=moment, order=order) as a:
        ground.send(range(STATUSES))
        until(lambda: a.said("stops") and a.stopped, lambda: f"a stands still: {a.out.read_text()}{a.log.read_text()}")
        with Member(home, "b", **given) as b:
            until(lambda: look() == dict.fromkeys(ORDERS, STATUSES - 1), lambda: f"b writes the rest: {look()}")
            a.process.send_signal(signal.SIGCONT)
            until(lambda: ended(a, order), lambda: f"what a holds comes to its end: {a.out.read_text()}")
            tried = Tried(a.said("refused"), order, look()[order])
            assert b.said("refused") == []
            ground.send(range(STATUSES, STATUSES + 2))
            every = dict.fromkeys(ORDERS, STATUSES + 1)
            until(lambda: look() == every, lambda: f"the group goes on: {look()}")
            for member in (a, b):
                member.stop()  # it lives: a refusal is no reason to stop
            return tried


def ended(member: Member, order: str) -> bool:
    """Whether the write that it stood still before has come to its end."""
    [stop] = member.said("stops")
    tried = [*member.said("wrote"), *member.said("refused")]
    return any(each["epoch"] == stop["epoch"] and (each.get("wrote") or each.get("refused")) == order for each in tried)


def check(tried: Tried, *by: str) -> None:
    assert {each["by"] for each in tried.refused} <= set(by)
    assert {each["refused"] for each in tried.refused} >= {tried.order}
    assert tried.status == STATUSES - 1


class TestRedis:
    @pytest.mark.parametrize("seed", range(2))
    def test_what_a_zombie_writes_is_refused_and_the_group_goes_on(
        self, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, seed: int
    ) -> None:
        check(self.play(kafka, redis_server, tmp_path, seed), "FormerOwner")

    @pytest.mark.full
    @pytest.mark.parametrize("seed", range(2, 20))
    def test_so_it_is_for_other_seeds(
        self, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, seed: int
    ) -> None:
        check(self.play(kafka, redis_server, tmp_path, seed), "FormerOwner")

    @pytest.mark.full
    @pytest.mark.parametrize("seed", range(3))
    def test_so_it_is_for_queues_of_rocketmq(
        self, rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, seed: int
    ) -> None:
        check(self.play(rocketmq, redis_server, tmp_path, seed), "FormerOwner")

    @pytest.mark.full
    def test_without_the_fence_it_brings_an_old_status_back(
        self, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
    ) -> None:
        """What the others are about: else they would show nothing."""
        tried = self.play(kafka, redis_server, tmp_path, 0, fenced=False)
        assert (tried.refused, tried.status) == ([], 0)

    def play(
        self, broker: KafkaServer | RocketMQServer, server: RedisServer, home: Path, seed: int, *, fenced: bool = True
    ) -> Tried:
        with server.client() as client:
            client.flushdb()
        look = partial(self.look, server)
        return play(broker, server.url, home, seed, kind="redis", sink=server.url, look=look, fenced=fenced)

    @staticmethod
    def look(server: RedisServer) -> dict[str, int]:
        with server.client() as client:
            found = {each: client.get(f"sink:{each}") for each in ORDERS}
        return {each: int(value) for each, value in found.items() if value is not None}


class TestPostgres:
    @pytest.mark.parametrize("seed", range(20))
    def test_what_a_zombie_writes_is_refused_and_the_group_goes_on(
        self, kafka: KafkaServer, redis_server: RedisServer, postgres: PostgresServer, tmp_path: Path, seed: int
    ) -> None:
        """Also where it stood still inside of its transaction, with the lock on the fence: the server ends that."""
        database = postgres.database()

        def look() -> dict[str, int]:
            try:
                with psycopg.connect(database) as connection:
                    return dict(connection.execute("SELECT order_id, cents FROM orders").fetchall())
            except psycopg.errors.UndefinedTable:
                return {}

        tried = play(kafka, redis_server.url, tmp_path, seed, kind="postgres", sink=database, look=look)
        check(tried, "FormerOwner", "IdleInTransactionSessionTimeout", "OperationalError")

    @pytest.mark.parametrize(
        ("moment", "end"), [("written", signal.SIGKILL), ("written", signal.SIGSTOP), ("read", signal.SIGSTOP)]
    )
    def test_a_mark_in_the_transaction_makes_an_effect_happen_once_whenever_its_process_ends(
        self,
        kafka: KafkaServer,
        redis_server: RedisServer,
        postgres: PostgresServer,
        tmp_path: Path,
        moment: str,
        end: signal.Signals,
    ) -> None:
        """`written`: between the commit and holdfast's mark, where no middleware can help."""
        database = postgres.database()
        topic = a_topic()
        ground = OnKafka(kafka, topic)
        given: dict[str, Any] = {"redis": redis_server.url, "topic": topic, "kind": "once", "sink": database}
        given |= {"fenced": False, **ground.given}
        values = range(1, STATUSES + 1)  # none of them is 0: adding that twice would not be seen
        every = sum(values) * len(ORDERS)

        def booked() -> tuple[int, int]:
            with psycopg.connect(database) as connection:
                [(cents,)] = connection.execute("SELECT coalesce(sum(cents), 0) FROM revenue").fetchall()
                [(records,)] = connection.execute("SELECT count(*) FROM done").fetchall()
            return int(cents), records

        with Member(tmp_path, "a", **given, moment=moment, order="order-3") as a:
            ground.send(values)
            until(
                lambda: a.said("stops") and a.stopped, lambda: f"a stands still: {a.out.read_text()}{a.log.read_text()}"
            )
            if end is signal.SIGKILL:
                a.process.kill()
            with Member(tmp_path, "b", **given) as b:
                until(lambda: len(b.said("wrote")) and booked() == (every, STATUSES * len(ORDERS)), "b books the rest")
                if moment == "written":
                    until(
                        lambda: [each["known"] for each in b.said("known")].count("order-3") == 1, "the window was hit"
                    )
                if end is signal.SIGSTOP:
                    a.process.send_signal(signal.SIGCONT)
                    until(lambda: ended(a, "order-3"), "what a holds comes to its end")
                    # Its other worker may have been stopped with another order in its hands.
                    assert [each["known"] for each in a.said("known")].count("order-3") == (moment == "read")
                    a.stop()
                b.stop()
            assert booked() == (every, STATUSES * len(ORDERS))
