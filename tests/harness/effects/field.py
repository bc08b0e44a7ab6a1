"""A run: a producer, members that come, go, freeze and are killed, a database that ends their connections, and what SQL
says of their effects."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import Producer

from holdfast.adapters.sql.schema import Names, schema_of
from tests.harness.effects.member import KINDS, POINTS, Kind, Told
from tests.harness.processes import end, spawn, tail
from tests.harness.servers import postgres
from tests.harness.transactions.field import PROTOCOLS, SESSION_MS
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

_PARTITIONS = 4
_KEYS = 20
_EFFECTS = "CREATE TABLE effects (at bigserial PRIMARY KEY, key text NOT NULL, n int NOT NULL, member int NOT NULL)"
#: Each effect once is what SQL is asked for; no constraint helps the members.
_REPEATED = "SELECT key, n, count(*) FROM effects GROUP BY key, n HAVING count(*) > 1"
#: A handler's transaction begins after that of the record before it in its key has been committed.
_DISORDERED = (
    "SELECT key, n FROM (SELECT key, n, lag(n) OVER (PARTITION BY key ORDER BY at) AS before FROM effects) AS each "
    "WHERE before > n"
)


class Found(NamedTuple):
    """What SQL says, beside what was produced."""

    missing: list[tuple[str, int]]
    uncalled_for: list[tuple[str, int]]  #: effects of dead letters
    repeated: list[Any]
    disordered: list[Any]
    effects: int

    @property
    def is_right(self) -> bool:
        """Each effect once, and in the order of its key."""
        return not (self.missing or self.uncalled_for or self.repeated or self.disordered)


class Field:
    """One group on its own topic and its own database. Leaving it ends all members."""

    def __init__(self, kafka: KafkaServer, database: str, folder: Path, *, protocol: str, kind: Kind = "plain") -> None:
        self.kafka, self.database, self.kind = kafka, database, kind
        self.group = f"sql-{uuid.uuid4().hex[:8]}"
        self.source, self.letters = f"{self.group}.in", f"{self.group}.dlq"
        for topic in (self.source, self.letters):
            kafka.create_topic(topic, _PARTITIONS)
        postgres.ask(database, schema_of("postgresql", Names()))
        postgres.ask(database, _EFFECTS)
        self.protocol = PROTOCOLS[protocol]
        if protocol == "consumer":
            kafka.set_session(self.group, SESSION_MS)
        self.log = folder / f"{self.group}.log"
        self.log.touch()
        self.members: list[subprocess.Popen[bytes]] = []
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "log_level": 0})
        self._next = Counter[str]()
        self._expected: dict[tuple[str, int], bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for each in self.members:
            end(each, 0.0 if kind is not None else 20.0)
        if kind is not None:
            print(f"the members' log: {tail(self.log, 60)}", file=sys.stderr)

    def produce(self, count: int) -> None:
        """Write so many records, of all keys; returns when the broker has them."""
        for _ in range(count):
            key = f"k{random.randrange(_KEYS)}"
            number = self._next[key]
            self._next[key] += 1
            how = random.choices(("well", "once", "never"), (96, 2, 2))[0]
            self._expected[key, number] = how != "never"
            self._producer.produce(self.source, json.dumps({"key": key, "n": number, "how": how}).encode(), key)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def join(self, dies: tuple[str, int] | None = None) -> subprocess.Popen[bytes]:
        """Start a member. Args: dies: where, and when."""
        told = Told(
            bootstrap=self.kafka.bootstrap,
            database=self.database,
            group=self.group,
            source=self.source,
            letters=self.letters,
            kind=self.kind,
            protocol=self.protocol,
            dies=dies,
        )
        process = spawn([sys.executable, "-m", "tests.harness.effects.member", told.as_json], self.log)
        self.members.append(process)
        return process

    @property
    def killed(self) -> int:
        """Members that were killed, or have killed themselves."""
        return sum(each.poll() == -signal.SIGKILL for each in self.members)

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        """Members that run."""
        return [each for each in self.members if each.poll() is None]

    def break_connections(self, chance: random.Random) -> None:
        """Have the server end some of the members' connections."""
        some = chance.randrange(1, 6)
        postgres.ask(
            self.database,
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "  # noqa: S608 - a number of ours
            f"WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT {some}) AS each",
        )

    def await_committed(self) -> None:
        """Returns when the group has committed all that was produced."""
        ends = self.kafka.end_offsets(self.source)
        until(
            lambda: self.kafka.committed(self.group, self.source) == ends,
            lambda: f"the group has not committed {ends}; {tail(self.log, 40)}",
        )

    def found(self) -> Found:
        """Ask SQL."""
        there = {(key, n) for key, n in postgres.ask(self.database, "SELECT DISTINCT key, n FROM effects")}
        called_for = {each for each, well in self._expected.items() if well}
        return Found(
            missing=sorted(called_for - there),
            uncalled_for=sorted(there - called_for),
            repeated=postgres.ask(self.database, _REPEATED),
            disordered=postgres.ask(self.database, _DISORDERED),
            effects=len(there),
        )


class Played(NamedTuple):
    """One run."""

    kind: Kind
    faults: Counter[str]
    kills: int
    found: Found


def play(
    kafka: KafkaServer,
    database: str,
    folder: Path,
    seed: int,
    *,
    protocol: str,
    kind: Kind | None = None,
    kills: int = 10,
) -> Played:
    """One run by a seed, with so many kills, and other faults between them."""
    chance = random.Random(seed)
    chosen: Kind = chance.choice(KINDS) if kind is None else kind
    faults = Counter[str]()
    with Field(kafka, database, folder, protocol=protocol, kind=chosen) as field:
        for _ in range(2):
            field.join()
        field.produce(200)
        while field.killed < kills:
            faults[_fault(field, chance)] += 1
            field.produce(chance.randrange(20, 100))
            time.sleep(chance.uniform(0.0, 1.0))  # as much of the time as the seed says
        if not field.alive:
            field.join()
        field.await_committed()
        for each in field.members:
            end(each, 20.0)
        return Played(chosen, faults, field.killed, field.found())


def _fault(field: Field, chance: random.Random) -> str:
    what: str = chance.choice(("kill", "kill", "dies", "freeze", "connections", "connections", "stop"))
    alive = field.alive
    if len(alive) < 2:
        dies = (chance.choice(POINTS), chance.randrange(1, 40)) if what == "dies" else None
        field.join(dies)
        return "dies" if dies else "join"
    if what == "dies":
        field.join((chance.choice(POINTS), chance.randrange(1, 40)))
    elif what == "connections":
        field.break_connections(chance)
    elif what == "freeze":
        victim = chance.choice(alive)
        victim.send_signal(signal.SIGSTOP)
        field.produce(50)
        time.sleep(chance.uniform(0.5, 3 * SESSION_MS / 1000))  # others take over, or not
        victim.send_signal(signal.SIGCONT)
    elif what == "kill":
        victim = chance.choice(alive)
        victim.kill()
        victim.wait()
        field.join()
    else:
        chance.choice(alive).terminate()
        field.join()
    return what
