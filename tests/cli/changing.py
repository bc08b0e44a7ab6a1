"""Every command that changes something, with a state that it changes: for tests that disturb it."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer

from holdfast import RedisClaims, RedisCoordinator
from holdfast.adapters.cli.replay import CHUNK
from holdfast.adapters.cli.replayed import NAMESPACE, names_of
from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool
from holdfast.adapters.kafka.tools.offsets import KafkaOffsetTool
from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.tools.dead_letters import RocketMQDeadLetterTool
from holdfast.adapters.rocketmq.tools.offsets import RocketMQOffsetTool
from holdfast.dedup.claims import Acquired, Claim, ClaimKey, LetGo, Mark, Token
from holdfast.dedup.groups import Member
from holdfast.dedup.redis_admin import KeyState, RedisAdmin
from holdfast.plugin.assign import strategy_of
from holdfast.timing import Deadline
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.verdicts import Verdict
from tests.cli.bench import lay_out
from tests.harness.kafka_brokers import all_of
from tests.harness.rocketmq_field import Field
from tests.harness.rocketmq_topics import messages_of
from tests.spark.audit.synthetic import played

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from holdfast.records import Partition
    from holdfast.tools.ports import DeadLetterTool, OffsetTool
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer


class Servers:
    """What changes are made at."""

    def __init__(self, kafka: KafkaServer, rocketmq: RocketMQServer, redis_url: str, folder: Path) -> None:
        self.kafka, self.rocketmq, self.redis_url, self.folder = kafka, rocketmq, redis_url, folder
        lay_out(redis_url)


class Change:
    """One command, and a state of its own that it changes. As a context: it lays that state."""

    #: Its words, without --json.
    command: Sequence[str]
    #: With what it ends if nothing disturbs it, and if it is run once more.
    code = code_again = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def untouched(self) -> None:
        """Assert that it has changed nothing."""

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        """Assert what is so after it was ended early. Args: told: its last line; None: it was killed before it."""

    def done(self) -> None:
        """Assert that all is done that it is for, and nothing twice that was known as done."""
        raise NotImplementedError


class _Reset(Change):
    """Two partitions that are handled to their end go back to their beginning."""

    tool: OffsetTool
    topic: str

    def lay(self, partitions: Sequence[Partition], redis_url: str) -> None:
        self.partitions = partitions
        self._ends = dict(self.tool.last_offsets(partitions, Deadline(60)))
        assert all(self._ends.values())
        self.tool.set(self._ends, Deadline(60))
        self._names = dict(self.tool.position_names(partitions, Deadline(60)))
        self.store = RedisClaims.from_url(redis_url)
        session = self.store.begin(60.0)
        marks, gone = [], []
        for partition, found in zip(partitions, session.acquire(list(self._names.values())), strict=True):
            assert isinstance(found, Acquired)
            marks.append(Mark(self._names[partition], found.epoch, self._ends[partition], ()))
            gone.append(LetGo(self._names[partition], found.epoch, ()))
        assert not any(session.mark(marks))
        session.let_go(gone)
        session.end()

    @property
    def _committed(self) -> set[int | None]:
        found = self.tool.committed(self.partitions, Deadline(60))
        return {None if each is None else each.offset for each in found.values()}

    @property
    def _watermarks(self) -> set[int]:
        admin = RedisAdmin.of(self.store)
        return {each.watermark for name in self._names.values() for each in admin.positions(name)}

    def untouched(self) -> None:
        before = set(self._ends.values())
        assert (self._committed, self._watermarks) == (before, before)

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        if told is None:
            return
        assert told["type"] == "reset"
        if told["offsets"] == "unchanged":
            self.untouched()
        if told["offsets"].startswith("set"):
            assert self._committed == {0}
        if told["offsets"] == "set":
            assert self._watermarks == {0}
        assert told["done"] <= (told["offsets"] == "set")

    def done(self) -> None:
        assert (self._committed, self._watermarks) == ({0}, {0})


class KafkaReset(_Reset):
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.topic, self.group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
        where = ("--bootstrap", servers.kafka.bootstrap, "--redis", servers.redis_url)
        self.command = ("reset", "--group", self.group, "--topic", self.topic, "--to", "earliest", "--yes", *where)

    def __enter__(self) -> Self:
        self._servers.kafka.create_topic(self.topic, 2)
        producer = Producer({"bootstrap.servers": self._servers.kafka.bootstrap, "log_level": 0})
        for number in range(10):
            producer.produce(self.topic, b"x", partition=number % 2)
        assert producer.flush(60) == 0
        self.tool = KafkaOffsetTool({"bootstrap.servers": self._servers.kafka.bootstrap}, self.group)
        self.lay(self.tool.partitions(self.topic, Deadline(60)), self._servers.redis_url)
        return self

    def __exit__(self, *_: object) -> None:
        self.tool.close()
        self.store.close()


class RocketMQReset(_Reset):
    """Its messages are known as done by their UNIQ_KEY too."""

    def __init__(self, servers: Servers) -> None:
        self._field = field = Field(servers.rocketmq, servers.redis_url, queues=2)
        where = ("--namesrv", servers.rocketmq.namesrv, "--redis", servers.redis_url)
        self.command = ("reset", "--group", field.group, "--topic", field.topic, "--to", "earliest", "--yes", *where)

    def __enter__(self) -> Self:
        field = self._field
        field.produce(*(f"order-{number}" for number in range(10)))
        assert len(messages_of(field.server.namesrv, field.topic, 10)) == 10
        self.tool = RocketMQOffsetTool(lambda: RemotingClient(field.server.namesrv), field.group)
        partitions = self.tool.partitions(field.topic, Deadline(60))
        self.lay(partitions, field.url)
        found = self.tool.identities(dict.fromkeys(partitions, 0), self.tool.last_offsets(partitions, Deadline(60)), 60)
        scope = f"{field.group}/{field.topic}"
        self._claims = [Claim(ClaimKey(scope, f"s:{each}"), Token("p", 0, 1)) for batch in found for each in batch]
        assert len(self._claims) == 10
        session = self.store.begin(60.0)
        session.claim(self._claims)
        session.finish(self._claims)
        session.end()
        return self

    def __exit__(self, *_: object) -> None:
        self.tool.close()
        self.store.close()
        self._field.__exit__(None)

    @property
    def _forgotten(self) -> int:
        shown = RedisAdmin.of(self.store).show([each.key for each in self._claims])
        return sum(each.state is KeyState.ABSENT for each in shown)

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        super().disturbed(told)
        assert told is None or told["messages_forgotten"] <= self._forgotten

    def done(self) -> None:
        super().done()
        assert self._forgotten == len(self._claims)


class _Replay(Change):
    """Letters of two partitions, of some chunks."""

    letters: int
    tool: DeadLetterTool
    topic: str
    dlq: str

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._before: Counter[str] | None = None
        self._known: set[str] = set()

    def copies(self) -> Counter[str]:
        """What has arrived."""
        raise NotImplementedError

    def _noted(self) -> set[str]:
        """Letters that the notes have for sent, which are the first ones of each partition."""
        partitions = self.tool.partitions(self.dlq, Deadline(60))
        names = names_of(self.tool.position_names(partitions, Deadline(60)), [self.topic])
        with contextlib.closing(RedisClaims.from_url(self._servers.redis_url, namespace=NAMESPACE)) as store:
            admin = RedisAdmin.of(store)
            ends = {
                target.partition: each.watermark for target, name in names.items() for each in admin.positions(name)
            }
        if not any(ends.values()):
            return set()
        firsts = dict.fromkeys(ends, 0)
        return {(each.value or b"").decode() for batch in self.tool.read(firsts, ends, 60.0) for each in batch}

    def untouched(self) -> None:
        assert not self.copies()

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        self._known, self._before = self._noted(), self.copies()
        if told is not None:
            assert told["type"] == "replay"
            sent = sum(told["sent"].values())
            assert sent <= self._before.total() <= sent + told["may_have_been_sent"]

    def done(self) -> None:
        copies = self.copies()
        assert set(copies) == {str(number) for number in range(self.letters)}, "a letter is lost"
        before = self._before or Counter()
        again = {letter: count for letter, count in copies.items() if letter in self._known and count > before[letter]}
        assert again == {}, "a letter that was known as sent was sent again"
        assert copies.total() - self.letters <= (CHUNK if self._before is not None else 0)


class KafkaReplay(_Replay):
    letters = 900

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.dlq = f"{self.topic}.dlq"
        where = ("--bootstrap", servers.kafka.bootstrap, "--redis", servers.redis_url)
        self.command = ("dead-letters", "replay", "--topic", self.dlq, "--origin", self.topic, *where)

    def __enter__(self) -> Self:
        for topic in (self.topic, self.dlq):
            self._servers.kafka.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": self._servers.kafka.bootstrap, "log_level": 0})
        for number in range(self.letters):
            headers: dict[str, str | bytes | None] = {"holdfast-origin-topic": self.topic}
            producer.produce(self.dlq, str(number), partition=number % 2, headers=headers)
        assert producer.flush(60) == 0
        self.tool = KafkaDeadLetterTool({"bootstrap.servers": self._servers.kafka.bootstrap})
        return self

    def __exit__(self, *_: object) -> None:
        self.tool.close()

    def copies(self) -> Counter[str]:
        bootstrap = self._servers.kafka.bootstrap
        count = sum(self._servers.kafka.end_offsets(self.topic).values())
        return Counter((each.value() or b"").decode() for each in all_of(bootstrap, self.topic, count))


class RocketMQReplay(_Replay):
    letters = 350

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self._field = field = Field(servers.rocketmq, servers.redis_url, queues=2)
        self.topic, self.dlq = field.topic, f"{field.topic}-dlq"
        where = ("--namesrv", servers.rocketmq.namesrv, "--redis", servers.redis_url)
        self.command = ("dead-letters", "replay", "--topic", self.dlq, "--origin", self.topic, *where)

    def __enter__(self) -> Self:
        field = self._field
        field.create(self.dlq, 2)
        origin = {"holdfast-origin-topic": self.topic}
        field.produce(*map(str, range(self.letters)), topic=self.dlq, properties=origin)
        assert len(messages_of(field.server.namesrv, self.dlq, self.letters)) == self.letters
        self.tool = RocketMQDeadLetterTool(lambda: RemotingClient(field.server.namesrv))
        return self

    def __exit__(self, *_: object) -> None:
        self.tool.close()
        self._field.__exit__(None)

    def copies(self) -> Counter[str]:
        found = messages_of(self._field.server.namesrv, self.topic, 0)
        return Counter(each.body.decode() for each in found)


class Forget(Change):
    """Keys that are done, and one in the hands of a session that lives."""

    code = code_again = 1  # the one that is kept

    def __init__(self, servers: Servers) -> None:
        self._scope = f"billing-{uuid.uuid4().hex[:8]}/orders"
        self._file = servers.folder / f"keys-{uuid.uuid4().hex}"
        self._store = RedisClaims.from_url(servers.redis_url)
        self._keys = [str(number) for number in range(2_500)]
        self.command = (
            *("claims", "forget", "--file", str(self._file)),
            *("--scope", self._scope, "--redis", servers.redis_url),
        )

    def __enter__(self) -> Self:
        self._file.write_text("\n".join([*self._keys, "held"]))
        self._claims = [self._claim(key) for key in self._keys]
        session = self._store.begin(60.0)
        session.claim(self._claims)
        session.finish(self._claims)
        session.end()
        self._session = self._store.begin(3600.0)
        self._session.claim([self._claim("held")])
        return self

    def __exit__(self, *_: object) -> None:
        self._session.end()
        self._store.close()

    def _claim(self, key: str) -> Claim:
        return Claim(ClaimKey(self._scope, f"s:{key}"), Token("p", 0, 1))

    @property
    def _forgotten(self) -> int:
        shown = RedisAdmin.of(self._store).show([each.key for each in self._claims])
        return sum(each.state is KeyState.ABSENT for each in shown)

    def untouched(self) -> None:
        assert not self._forgotten

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        if told is not None:
            assert told["type"] == "forget"
            assert told["forgotten"] <= self._forgotten <= told["forgotten"] + told["may_be_forgotten"]

    def done(self) -> None:
        assert self._forgotten == len(self._keys)
        [held] = RedisAdmin.of(self._store).show([self._claim("held").key])
        assert held.session_lives


class Remove(Change):
    """A group of which no member lives."""

    code, code_again = 0, 1

    def __init__(self, servers: Servers) -> None:
        self._group = f"g-{uuid.uuid4().hex[:8]}"
        self._store = RedisClaims.from_url(servers.redis_url)
        self.command = ("group", "remove", "--group", self._group, "--redis", servers.redis_url, "--yes")

    def __enter__(self) -> Self:
        joined = RedisCoordinator(self._store).join(
            self._group,
            Member(client_id="till@1", subscription="*"),
            Deadline(60),
            strategy=strategy_of("sticky"),
            wake=lambda: None,
            queues=(),
        )
        joined.leave(Deadline(60))
        assert self._is_there
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    @property
    def _is_there(self) -> bool:
        found = RedisCoordinator(self._store).describe(self._group)
        return bool(found.members or found.plan.stamp)

    def untouched(self) -> None:
        assert self._is_there

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        if told is not None:
            assert told["type"] == "removed"
            assert told["may_be_removed"] or told["done"] is not self._is_there

    def done(self) -> None:
        assert not self._is_there


class Picture(Change):
    """A plan, drawn."""

    end = "</svg>"

    def __init__(self, servers: Servers) -> None:
        self._file = servers.folder / f"plan-{uuid.uuid4().hex}.svg"
        self.command = ("plan", "--topics", "orders=8", "--members", "3", "--join", "1", "--picture", str(self._file))

    def disturbed(self, told: Mapping[str, Any] | None) -> None:
        """A file is there as a whole, or not."""
        if self._file.exists():
            self.done()

    def done(self) -> None:
        assert self._file.read_text(encoding="utf-8").rstrip().endswith(self.end)


class Page(Picture):
    """An audit's report as a page."""

    code = code_again = 1
    end = "</html>"

    def __init__(self, servers: Servers) -> None:
        self._file = servers.folder / f"audit-{uuid.uuid4().hex}.html"
        events = servers.folder / f"events-{uuid.uuid4().hex}.jsonl"
        events.write_text("\n".join(played("losses-0", 0, "losses").lines))
        self.command = ("audit", str(events), "--html", str(self._file))


class Tables(Change):
    """An audit's tables."""

    code = code_again = 1

    def __init__(self, servers: Servers) -> None:
        self._folder = servers.folder / f"tables-{uuid.uuid4().hex}"
        events = servers.folder / f"events-{uuid.uuid4().hex}.jsonl"
        events.write_text("\n".join(played("losses-0", 0, "losses").lines))
        self.command = ("audit", str(events), "--output", str(self._folder))

    def done(self) -> None:
        [group] = audit_of(ParquetTables(self._folder), []).groups
        assert group.gaps[Verdict.LOST] > 0


#: By name, and how many of fifty kills it gets.
CHANGES: dict[str, tuple[Callable[[Servers], Change], int]] = {
    "a reset on Kafka": (KafkaReset, 9),
    "a reset on RocketMQ": (RocketMQReset, 9),
    "a replay on Kafka": (KafkaReplay, 10),
    "a replay on RocketMQ": (RocketMQReplay, 9),
    "forgetting keys": (Forget, 6),
    "removing a group": (Remove, 3),
    "a plan's picture": (Picture, 1),
    "an audit's page": (Page, 2),
    "an audit's tables": (Tables, 1),
}


def last_line(text: str) -> Mapping[str, Any] | None:
    """What a command said at its end with --json, if it had the time for it."""
    said = [json.loads(line) for line in text.splitlines()]
    ends = ("reset", "replay", "forget", "removed")
    return said[-1] if said and said[-1]["type"] in ends else None
