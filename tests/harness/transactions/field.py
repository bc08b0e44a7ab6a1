"""A run: a producer, members that come, go, freeze and are killed, and what a reader finds afterwards."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
import uuid
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition

from tests.harness.processes import end, spawn, tail
from tests.harness.transactions.member import KINDS, POINTS, Kind, Told
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

SESSION_MS = 2_000
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "session.timeout.ms": SESSION_MS},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": SESSION_MS},
    "consumer": {"group.protocol": "consumer"},
}
_PARTITIONS = 6
_KEYS = 30


class Found(NamedTuple):
    """What a reader of committed records has found, beside what was produced."""

    missing: dict[tuple[str, int], str]
    repeated: dict[tuple[str, int], int]
    #: Keys whose records are not in their order.
    disordered: list[str]
    expected: int

    @property
    def is_right(self) -> bool:
        """Each output once, and in the order of its key."""
        return not (self.missing or self.repeated or self.disordered)


class Field:
    """One group on its own topics. Leaving it ends all members."""

    def __init__(self, kafka: KafkaServer, folder: Path, *, protocol: str, kind: Kind = "plain") -> None:
        self.kafka, self.folder, self.kind = kafka, folder, kind
        self.group = f"tx-{uuid.uuid4().hex[:8]}"
        self.source, self.target, self.letters = (f"{self.group}.{each}" for each in ("in", "out", "dlq"))
        for topic in (self.source, self.target, self.letters):
            kafka.create_topic(topic, _PARTITIONS)
        self.protocol = PROTOCOLS[protocol]
        if protocol == "consumer":
            kafka.set_session(self.group, SESSION_MS)
        self.log = folder / f"{self.group}.log"
        self.log.touch()
        self.members: list[subprocess.Popen[bytes]] = []
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "log_level": 0})
        self._next = Counter[str]()
        self._expected: dict[tuple[str, int], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for each in self.members:
            end(each, 0.0 if kind is not None else 20.0)
        if kind is not None:
            print(f"the members' log: {tail(self.log, 60)}", file=sys.stderr)

    # ---- what happens
    def produce(self, count: int, how: str | None = None) -> None:
        """Write so many records, of all keys; returns when the broker has them."""
        for _ in range(count):
            key = f"k{random.randrange(_KEYS)}"
            number = self._next[key]
            self._next[key] += 1
            what = how or random.choices(("well", "once", "never"), (96, 2, 2))[0]
            self._expected[key, number] = self.letters if what == "never" else self.target
            self._producer.produce(self.source, json.dumps({"key": key, "n": number, "how": what}).encode(), key)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def told(self, **how: Any) -> Told:
        """What a member is told. Args: how: its other fields."""
        return Told(
            **{
                "bootstrap": self.kafka.bootstrap,
                "group": self.group,
                "source": self.source,
                "target": self.target,
                "letters": self.letters,
                "kind": self.kind,
                "protocol": self.protocol,
            }
            | how
        )

    def join(self, **how: Any) -> subprocess.Popen[bytes]:
        """Start a member. Args: how: fields of `Told`."""
        command = [sys.executable, "-m", "tests.harness.transactions.member", self.told(**how).as_json]
        process = spawn(command, self.log)
        self.members.append(process)
        return process

    def await_committed(self, what: str = "the group") -> None:
        """Returns when the group has committed all that was produced."""
        ends = self.kafka.end_offsets(self.source)
        until(
            lambda: self.kafka.committed(self.group, self.source) == ends,
            lambda: f"{what} has not committed {ends}; {tail(self.log, 40)}",
        )

    # ---- what came of it
    def found(self) -> Found:
        """Read the outputs and the dead letters, when no transaction is open in their topics any more: behind one of a
        member that was killed nothing is read until the broker has aborted it."""
        until(lambda: not self._open_in(self.target) | self._open_in(self.letters), "transactions stay open")
        seen: Counter[tuple[str, int]] = Counter()
        where: dict[tuple[str, int], set[str]] = defaultdict(set)
        order: dict[str, list[int]] = defaultdict(list)
        for topic in (self.target, self.letters):
            for key, number in self._read(topic):
                seen[key, number] += 1
                where[key, number].add(topic)
                if topic == self.target:
                    order[key].append(number)
        missing = {each: topic for each, topic in self._expected.items() if where[each] != {topic}}
        repeated = {each: count for each, count in seen.items() if count > 1}
        disordered = [key for key, numbers in order.items() if numbers != sorted(numbers)]
        return Found(missing, repeated, disordered, len(self._expected))

    def _open_in(self, topic: str) -> set[int]:
        """The partitions that end behind what a reader of committed records gets."""
        stable = self.kafka.end_offsets(topic, isolation=IsolationLevel.READ_COMMITTED)
        return {number for number, end in self.kafka.end_offsets(topic).items() if stable[number] < end}

    def _read(self, topic: str) -> list[tuple[str, int]]:
        reader = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": f"{self.group}-reader",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found, open_ = [], set(self.kafka.partitions(topic))
        reader.assign([TopicPartition(topic, number, 0) for number in open_])
        until_s = time.monotonic() + PATIENCE_S
        with suppress(KeyboardInterrupt):
            while open_ and time.monotonic() < until_s:
                message = reader.poll(1.0)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_.discard(message.partition() or 0)
                    continue
                value = json.loads(message.value() or b"")
                found.append((value["key"], value["n"]))
        reader.close()
        assert not open_, f"{topic}: {open_} was not read to its end"
        return found


def play(
    kafka: KafkaServer, folder: Path, seed: int, *, protocol: str, kind: Kind | None = None, faults: int = 3
) -> Found:
    """One run by a seed: so many faults, some of them at a point of a transaction."""
    chance = random.Random(seed)
    chosen: Kind = chance.choice(KINDS) if kind is None else kind
    with Field(kafka, folder, protocol=protocol, kind=chosen) as field:
        names = chance.choice(((None, None), (None, None), ("first", "second")))  # static members or not
        ids = {field.join(static_id=name).pid: name for name in names}
        field.produce(200)
        for _ in range(faults):
            _fault(field, chance, ids)
            field.produce(chance.randrange(50, 200))
            time.sleep(chance.uniform(0.0, 1.0))  # as much of the time as the seed says
        field.await_committed()
        for each in field.members:
            each.send_signal(signal.SIGCONT)
            end(each, 20.0)
        return field.found()


def _fault(field: Field, chance: random.Random, ids: dict[int, str | None]) -> None:
    alive = [each for each in field.members if each.poll() is None]
    what = chance.choice(("kill", "kill", "dies", "dies", "freeze", "stop", "join"))
    if what == "join" or not alive:
        ids[field.join().pid] = None
        return
    if what == "dies":
        ids[field.join(dies=(chance.choice(POINTS), chance.randrange(1, 5))).pid] = None
        return
    victim = chance.choice(alive)
    if what == "freeze":
        victim.send_signal(signal.SIGSTOP)
        field.produce(50)
        time.sleep(chance.uniform(0.5, 3 * SESSION_MS / 1000))  # others take over, or not
        victim.send_signal(signal.SIGCONT)
        return
    if what == "kill":
        victim.kill()
        victim.wait()
    else:
        victim.terminate()
    ids[field.join(static_id=ids.get(victim.pid)).pid] = ids.get(victim.pid)
