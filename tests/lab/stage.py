"""A cell being played: one consumer, one fault, on servers that all cells share. What it leaves is evidence."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.adapters.sql.schema import Names, schema_of
from holdfast.errors import SourceError
from tests.harness.group.kafka_ground import KafkaGround
from tests.harness.group.ledger import Entry, Reader
from tests.harness.group.rocketmq_ground import RocketMQGround
from tests.harness.group.traffic import Traffic
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.postgres import PostgresServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.rocketmq import RocketMQServer
from tests.lab.consumers.member import HEARTBEAT_MS, SESSION_MS, Told
from tests.lab.evidence import Evidence, Line, Look, Mark, Sent
from tests.lab.faults import BURST
from tests.lab.group import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Literal

    from tests.harness.group.ground import Ground
    from tests.lab.consumers import Consumer
    from tests.lab.faults import Fault

PARTITIONS = 6
PER_S = 80.0
WORK_MS = 5.0
#: How long a group may take until each member has had a record, and until all is done when the stream is over.
_BEGINS_S = 40.0
_DRAINS_S = 9.0
_LOOK_S = 0.5
_TICK_S = 0.1
_ASK_S = 2.0


class DidNotBegin(Exception):
    """A group was not at work within the time. The message has the end of a member's log."""


class Servers:
    """Brokers and stores, started when they are first asked for. Sessions and heartbeats are the same for all."""

    def __init__(self, kafka: KafkaServer | None = None) -> None:
        """Args: kafka: a broker that somebody else ends."""
        self._stack = ExitStack()
        self._given = kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def kafka(self) -> KafkaServer:
        """One broker."""
        if self._given is not None:
            return self._given
        properties = {
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        return self._stack.enter_context(KafkaServer(properties=properties))

    @cached_property
    def rocketmq(self) -> RocketMQServer:
        """A name server, one broker and the proxy."""
        return self._stack.enter_context(RocketMQServer(proxy=True))

    @cached_property
    def redis(self) -> RedisServer:
        """One that writes to its disk, so that it has its data when it is back."""
        return self._stack.enter_context(RedisServer(aof=True))

    @cached_property
    def postgres(self) -> PostgresServer:
        """One server."""
        return self._stack.enter_context(PostgresServer())


class Stage:
    """What faults have to do with. `names` are the members at the start, the victim first."""

    def __init__(
        self, servers: Servers, consumer: Consumer, fault: Fault, seed: int, python: str, folder: Path
    ) -> None:
        self._servers, self._consumer, self._fault, self._seed = servers, consumer, fault, seed
        chance = random.Random(f"{seed} {fault.name}")
        self.names = list("abcd"[: fault.members])
        chance.shuffle(self.names)
        self._later_s = chance.random()
        self._topic = f"lab-{uuid4().hex[:8]}"
        self._ledger = folder / "ledger"
        self._reader = Reader(self._ledger)
        self._folder = folder
        self._store, self._database = "", ""
        self._marks: list[tuple[float, str, Literal["harm", "heal", "step"]]] = []
        self._looks: list[tuple[float, tuple[str, ...]]] = []
        self._origin = time.monotonic()
        module = f"tests.lab.consumers.{consumer.module}"
        self.group = Group(lambda name: [python, "-m", module, self._told(name), *consumer.words], folder)
        self._over = threading.Event()

    # -- for faults ----------------------------------------------------------------------------------------------------

    def wait_until(self, second: float) -> None:
        """Of the cell; the seed moves all of them by the same part of a second."""
        self._stay(self._origin + second + self._later_s)

    def mark(self, label: str, kind: Literal["harm", "heal", "step"] = "step") -> None:
        """Note what is done now."""
        self._marks.append((time.monotonic(), label, kind))

    def burst(self, second: float) -> None:
        """At that second: more records than the members can have done a moment later."""
        self.wait_until(second)
        self._traffic.burst(self._topic, BURST)

    def slow(self, seconds: float) -> None:
        """A record that takes so long."""
        self._traffic.burst(self._topic, 1, work_ms=seconds * 1000)

    def leave(self, name: str, kind: Literal["harm", "step"] = "step") -> None:
        """SIGTERM."""
        self.mark(f"{name} leaves", kind)
        self.group.leave(name)

    def restart_broker(self) -> None:
        """Returns when it is back."""
        if self._consumer.broker == "Kafka":
            self._servers.kafka.restart()
        else:
            self._servers.rocketmq.stop_broker()
            self._servers.rocketmq.start_broker()

    def store_away(self, seconds: float) -> None:
        """Kill the consumer's store, and start it again."""
        server = self._servers.redis if self._consumer.store == "Redis" else self._servers.postgres
        server.kill()
        self._stay(time.monotonic() + seconds)
        server.restart()

    def stream_until(self, second: float) -> None:
        """Records go on to come until then."""
        self.wait_until(second)

    def stream_for(self, seconds: float) -> None:
        """Records go on to come for so long."""
        self._stay(time.monotonic() + seconds)

    # -- the cell ------------------------------------------------------------------------------------------------------

    def play(self, versions: dict[str, str], machine: dict[str, str]) -> Evidence:
        """From an empty topic to the last member's end. Raises DidNotBegin, ServerFailed."""
        if self._consumer.broker == "Kafka":
            self._ground: Ground = KafkaGround(self._servers.kafka)
        else:
            self._ground = RocketMQGround(self._servers.rocketmq)
        self._ground.create_topic(self._topic, PARTITIONS)
        self._prepare_store()
        self._traffic = Traffic(self._ground, self._seed, WORK_MS)
        watch = threading.Thread(target=self._watch, name="watch", daemon=True)
        try:
            watch.start()
            for name in sorted(self.names):
                self.group.start(name)
            self._traffic.flow([self._topic], PER_S)
            self._begin()
            self._fault.play(self)
            self._traffic.stop()
            self._drain()
            over = time.monotonic()
            self.group.end()
        finally:
            self._over.set()
            watch.join()
            self._traffic.close()
            self.group.close()
        try:
            return self._evidence(over, versions, machine)
        finally:
            self._ground.close()

    def _prepare_store(self) -> None:
        if self._consumer.store == "Redis":
            with self._servers.redis.client() as client:
                client.flushall()
            self._store = self._servers.redis.url
        elif self._consumer.store == "PostgreSQL":
            self._store = self._servers.postgres.database()
            self._database = self._store.rpartition("/")[2]
            for each in (schema_of("postgresql", Names()), "CREATE TABLE lab_effect (topic text, part int, at bigint)"):
                self._servers.postgres.execute(each, self._database)

    def _told(self, name: str) -> str:
        return Told(
            name=name,
            bootstrap=self._ground.address,
            endpoints=self._servers.rocketmq.endpoints if self._consumer.broker == "RocketMQ" else "",
            topic=self._topic,
            group=self._topic,
            ledger=str(self._ledger),
            store=self._store,
        ).to_json()

    def _begin(self) -> None:
        """Returns when each member has had a record, and each partition; that moment is the cell's beginning."""
        ends = time.monotonic() + _BEGINS_S
        while not self._at_work():
            if time.monotonic() > ends:
                logs = [(self._folder / f"{name}.log").read_text(errors="replace")[-1_000:] for name in self.names]
                raise DidNotBegin(f"not at work after {_BEGINS_S:.0f} s: {max(logs, key=len)}")
            self._stay(time.monotonic() + _TICK_S)
        self._origin = time.monotonic()

    def _at_work(self) -> bool:
        # Records of before the group was complete tell nothing of now.
        lately = [each for each in self._entries() if each.at_ns / 1e9 > time.monotonic() - 1.0]
        return {each.member for each in lately} == set(self.names) and len(
            {each.where.partition for each in lately}
        ) == PARTITIONS

    def _entries(self) -> list[Entry]:
        """Each with the place of its order as the producer was told it: not every client tells it, and a message that
        is delivered again may have another."""
        places = {each.key: each.where for each in list(self._traffic.produced)}
        return [each._replace(where=places.get(each.key, each.where)) for each in self._reader.read()]

    def _drain(self) -> None:
        """Returns when all records are done; or when that takes so long that nobody would wait for it."""
        ends = time.monotonic() + _DRAINS_S
        while time.monotonic() < ends:
            done = {each.where for each in self._entries() if each.what == "end"}
            if len(done) >= len(self._traffic.produced):
                return
            self._stay(time.monotonic() + _TICK_S)

    def _stay(self, until: float) -> None:
        """Meanwhile who has ended by itself is started again, as supervisors do."""
        while (left := until - time.monotonic()) > 0:
            self._reader.read()  # for the watch: a member's processor time counts from its first record on
            for name, said in self.group.revive():
                self.mark(f"{name} had ended by itself ({said}), and is started again")
            time.sleep(min(left, _TICK_S))

    def _watch(self) -> None:
        """Who is in the group, says the broker; who is alive and what it uses, says the machine."""
        admin, ask_at = None, 0.0
        while not self._over.wait(_TICK_S):
            self.group.look({each.pid for each in list(self._reader.entries)})
            if time.monotonic() < ask_at or self._consumer.broker != "Kafka":
                continue
            ask_at = time.monotonic() + _LOOK_S
            # After an error another client: one whose broker was away may not find it again.
            admin = admin or AdminClient({"bootstrap.servers": self._servers.kafka.bootstrap, "log_level": 0})
            try:
                asked = admin.describe_consumer_groups([self._topic], request_timeout=_ASK_S)
                members = asked[self._topic].result(_ASK_S).members
            except (KafkaException, TimeoutError):
                admin = None
                continue
            self._looks.append((time.monotonic(), tuple(sorted(each.client_id for each in members))))

    def _evidence(self, over: float, versions: dict[str, str], machine: dict[str, str]) -> Evidence:
        at: Callable[[float], float] = lambda moment: round(moment - self._origin, 4)  # noqa: E731 - it is the clock
        effects: Sequence[tuple[int, int]] | None = None
        if self._database:
            effects = self._servers.postgres.execute("SELECT part, at FROM lab_effect", self._database)
        committed: dict[int, int] = {}
        with suppress(KafkaException, SourceError):
            if self._consumer.offsets:
                committed = self._ground.committed(self._topic, self._topic)
        return Evidence(
            consumer=self._consumer.name,
            fault=self._fault.name,
            seed=self._seed,
            versions=versions,
            sent=tuple(
                Sent(at(each.at_ns / 1e9), each.where.partition, each.where.offset) for each in self._traffic.produced
            ),
            ledger=tuple(
                Line(at(each.at_ns / 1e9), each.member, each.pid, each.what, each.where.partition, each.where.offset)
                for each in self._entries()
            ),
            lives=self.group.lives(self._origin),
            marks=tuple(Mark(at(moment), label, kind) for moment, label, kind in self._marks),
            looks=tuple(Look(at(moment), members) for moment, members in self._looks),
            committed=committed,
            over=at(over),
            effects=None if effects is None else tuple((part, offset) for part, offset in effects),
            machine=machine,
        )
