"""An example's apps and loops as they stand, on a broker and a store in memory: load, a member that joins, takes half
and leaves, and a ledger of what the handlers did."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
import threading
import time
from collections import Counter
from contextvars import ContextVar
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import holdfast
import holdfast.adapters.kafka
import holdfast.adapters.rocketmq
from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer
from holdfast.adapters.kafka import consumer as kafka_consumer
from holdfast.adapters.kafka.messages import MessageRecord
from holdfast.dedup.keys import RecordKey, resolve_key
from holdfast.errors import BatchFailed, KeyMissing
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.records import Partition, Record
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Letters
from tests.harness.message_source import MemoryMessageSource
from tests.harness.waiting import PATIENCE_S, until
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    import pytest
    from confluent_kafka import Message

    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Fence
    from holdfast.timing import Deadline

PARTITIONS = 4
#: Of each topic, in each of three rounds.
ROUND = 100
CUSTOMERS = 12
#: What patterns are tried on.
_TOPICS = ("orders.paid", "orders", "payments", "clicks")
#: Every so many-th order fails at its first attempt, or has no id at all.
_FAILS, _BROKEN = 40, 50


class Did(NamedTuple):
    what: str  # start, end, fail
    member: str
    record: Record
    #: What is to be handled once.
    piece: Hashable
    #: What is handled one after the other.
    lane: Hashable
    #: A batch has several records in one.
    call: object


class How(NamedTuple):
    """What an example says of a topic."""

    piece_of: Callable[[Record], Hashable]
    lane_of: Callable[[Record], Hashable]
    keyed_by_key: bool = False
    dead_letter: str | None = None
    retries: bool = True


_making: ContextVar[Member] = ContextVar("_making")


class Member:
    """One start of the example."""

    def __init__(self, ground: Ground, name: str, code: str) -> None:
        self.ground, self.name = ground, name
        self.apps: list[ExampleApp] = []
        self.loops: list[ExampleLoop] = []
        self.sources: list[MemoryPartitionedSource] = []
        self.errors: list[BaseException] = []
        self.over = False
        self._threads: list[threading.Thread] = []
        _making.set(self)
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(code, name, "exec"), names)  # noqa: S102 - our own pages
        for app in self.apps:
            if not app.routes:
                app.handler("orders", name="given")(lambda _: None)
        self._main = names.get("main")
        if self._main and not ground.topics:  # what its loop says of the topic is heard when it is made
            ground.know(["orders"], How(_place, _place, retries=False))

    def start(self) -> Member:
        runs = [app.go for app in self.apps] + [functools.partial(loop.go, self) for loop in self.loops]
        main = self._main
        if inspect.iscoroutinefunction(main):
            runs = [lambda: asyncio.run(main())]  # it runs its app by itself
        elif self._main:
            runs.append(functools.partial(self._main, functools.partial(self.ground.handle, self)))
        for run in runs:
            thread = threading.Thread(target=self._run, args=(run,), name=f"{self.name}-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        return self

    def _run(self, run: Callable[[], object]) -> None:
        _making.set(self)
        try:
            run()
        except _LoopIsOver:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.errors.append(error)

    def stop(self) -> None:
        """In good order. Raises what it raised."""
        self.over = True
        for app in self.apps:
            app.stop()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        self.look()

    def look(self) -> None:
        """Raises what it raised until now."""
        if self.errors:
            raise self.errors.pop()


class _LoopIsOver(Exception):
    """Ends a loop that has no end of its own."""


class ExampleApp(Holdfast):
    """Runs when the test says so, and tells what its handlers do."""

    def __init__(self, source: Any, *, settings: Settings | None = None, **more: Any) -> None:
        super().__init__(source, settings=settings, **more)
        self.member, self.routes = _making.get(), 0
        self._ordering = (settings or Settings()).ordering
        self.member.apps.append(self)

    def run(self, **_: Any) -> None: ...

    def go(self) -> None:
        super().run(install_signal_handlers=False)

    def handler(self, topics: Any, **how: Any) -> Any:
        self.routes += 1
        ground, spec, batch = self.member.ground, how.get("key"), how.get("batch")
        key_of = resolve_key(spec) if spec is not None else None
        where: Callable[[Record], Hashable] = lambda record: record.partition  # noqa: E731 - two functions of one line
        if batch is None and self._ordering == "key":
            where = lambda record: (record.partition, record.key)  # noqa: E731
        said = How(key_of or _place, where, isinstance(spec, RecordKey), how.get("dead_letter"))
        ground.know([topics] if isinstance(topics, str) else topics, said)
        register = super().handler(topics, **how)

        def registered(call: Any) -> Any:
            noted = functools.partial(_Noted, ground, self.member, said, batched=batch is not None)
            register(_told(call, noted, batched=batch is not None))
            return call

        return registered


def _place(record: Record) -> Hashable:
    return record.partition, record.offset


def _told(call: Any, noted: Callable[[list[Record]], _Noted], *, batched: bool) -> Any:
    """The same function, and what it did is noted."""

    def of(given: Any) -> list[Record]:
        return list(given) if batched else [given]

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def coroutine(given: Any, **resources: Any) -> Any:
            with noted(of(given)):
                await asyncio.sleep(0.001)
                return await call(given, **resources)

        return coroutine

    @functools.wraps(call)
    def plain(given: Any, **resources: Any) -> Any:
        with noted(of(given)):
            time.sleep(0.001)
            return call(given, **resources)

    return plain


class ExampleLoop(KafkaConsumer):
    """Its polls end when the test says so."""

    def __init__(self, conf: Any, *, key: Any = None, **more: Any) -> None:
        self.member = _making.get()
        key_of = resolve_key(key) if key is not None else _place
        self.how = How(key_of, lambda record: record.partition, retries=False)
        self.member.ground.know(["orders"], self.how)
        super().__init__(conf, key=key, **more)
        self.member.loops.append(self)

    def poll(self, timeout: float | None = -1) -> Message | None:
        if self.member.over:
            self.done()
            raise _LoopIsOver
        self.member.look()
        return super().poll(min(timeout or 0.0, 0.05))

    def go(self, member: Member) -> None:
        """Where the example has only made it."""
        self.subscribe(["orders"])
        with self:
            while True:
                message = self.poll(1.0)
                if message is not None:
                    member.ground.handle(member, message)


class Ground:
    """Broker, store and ledger of one example."""

    def __init__(self) -> None:
        self.broker, self.queue = MemoryBroker(), MemoryQueue()
        self.claims = MemoryClaims()
        self.changed = self.broker.changed
        self.topics: dict[str, How] = {}
        self.did: list[Did] = []
        #: Topic and member -> calls that ended well.
        self.ended: Counter[tuple[str, str]] = Counter()
        self.sent: list[Record] = []
        self.letters = _ToTheBroker(self)
        self.leased = False
        self._failed: set[Hashable] = set()
        self._random = Random(14)
        self._ids = 0

    # ---- what an example says
    def know(self, topics: list[str], how: How) -> None:
        with self.changed:
            for topic in topics:
                name = next(each for each in _TOPICS if re.match(topic, each)) if topic.startswith("^") else topic
                # Of an app and a loop in one group the record may come to either.
                retries = how.retries and self.topics.get(name, how).retries
                self.topics[name] = how._replace(retries=retries)
                self.broker.create(name, PARTITIONS)
            if how.dead_letter is not None and "%" not in how.dead_letter:
                self.broker.create(how.dead_letter, 1)

    def source(self, group: str) -> MemoryPartitionedSource:
        source = MemoryPartitionedSource(self.broker, group)
        source.dead_letters = lambda: self.letters  # type: ignore[attr-defined]
        _making.get().sources.append(source)
        return source

    def message_source(self, conf: Any, **how: Any) -> MemoryMessageSource:
        source = MemoryMessageSource(self.broker, conf, **how)
        _making.get().sources.append(source)
        return source

    def leased_source(self, group: str) -> MemoryLeasedSource:
        self.leased = True
        return MemoryLeasedSource(self.queue, group, topic="orders")

    # ---- what it does
    def handle(self, member: Member, message: Message) -> None:
        """A loop's handler."""
        where = Partition(message.topic() or "", cast("int", message.partition()))
        record = MessageRecord(where, cast("int", message.offset()), cast("Fence", None), message, len(message))
        with _Noted(self, member, member.loops[0].how, [cast("Record", record)], batched=False):
            time.sleep(0.001)

    def note(self, what: str, call: _Noted, record: Record) -> None:
        how = call.how
        with self.changed:
            self.did.append(Did(what, call.member.name, record, how.piece_of(record), how.lane_of(record), call))
            self.ended[record.topic, call.member.name] += what == "end"

    def fails_now(self, record: Record) -> bool:
        """One of some attempts at the first of them."""
        how = self.topics[record.topic]
        piece = record.topic, how.piece_of(record)
        with self.changed:
            fails = how.retries and _number(record) % _FAILS == 7
            if not fails or piece in self._failed:
                return False
            self._failed.add(piece)
            return True

    # ---- what is sent to it
    def produce(self) -> None:
        """A round: new orders, some sent again at once, later, or to another partition."""
        for topic, how in self.topics.items():
            old: list[int] = [_number(each) for each in self.sent if each.topic == topic and _number(each) >= 0]
            for count in range(ROUND):
                again = old and self._random.random() < 0.3
                number = self._random.choice(old) if again else self._ids
                self._ids += not again
                old.append(number)
                key = f"{number}" if how.keyed_by_key else f"customer-{number % CUSTOMERS}"
                elsewhere = again and self._random.random() < 0.3
                partition = Partition(topic, (number % CUSTOMERS + bool(elsewhere)) % PARTITIONS)
                broken = how.dead_letter is not None and not how.keyed_by_key and count % _BROKEN == 3
                fields = {"order": {}} if broken else {"order_id": number, "order": {"id": number}}
                self._send(partition, key, json.dumps(fields), (("event-id", b"%d" % number), ("TAGS", b"Paid")))

    def _send(self, partition: Partition, key: str, value: str, headers: tuple[tuple[str, bytes], ...]) -> None:
        if self.leased:
            self.queue.put(value)
            offset = len(self.queue.messages) - 1
        else:
            offset = self.broker.produce(partition.topic, partition.number, value, key=key, headers=headers)[0]
        self.sent.append(Record(partition, offset, key.encode(), value.encode(), headers, -1, cast("Fence", None)))

    # ---- what is asked of it
    def wait(self, over: Callable[[], object], what: str, *members: Member) -> None:
        def look() -> bool:
            if over():
                return True
            for member in members:
                member.look()
            return False

        until(look, lambda: f"{what}; {self.story()}", changed=self.changed)

    def done(self, topic: str = "", member: str = "") -> int:
        return sum(
            count
            for (of, by), count in self.ended.items()
            if (not topic or of == topic) and (not member or by == member)
        )

    def pieces(self) -> Iterator[tuple[str, Hashable | None, Record]]:
        """Of what was sent: None = it has no key, and goes to the dead letters."""
        for record in self.sent:
            try:
                yield record.topic, self.topics[record.topic].piece_of(record), record
            except KeyMissing:
                yield record.topic, None, record

    def wanted(self) -> set[tuple[str, Hashable]]:
        return {(topic, piece) for topic, piece, _ in self.pieces() if piece is not None}

    def handled(self) -> set[tuple[str, Hashable]]:
        return {(did.record.topic, did.piece) for did in self.did if did.what == "end"}

    def uncommitted(self) -> list[object]:
        """Duplicates too: they are committed when they are skipped."""
        if self.leased:
            return list(self.queue.open)
        return [
            (partition, group.offset(partition))
            for group in self.broker._groups.values()
            for partition, log in self.broker.logs.items()
            if partition.topic in self.topics and group.offset(partition) != log.end
        ]

    def story(self) -> str:
        """Of one that is left."""
        left = self.wanted() - self.handled()
        sent = [record for topic, piece, record in self.pieces() if (topic, piece) in left]
        did = [
            (did.what, did.member, did.record.offset)
            for did in self.did
            if sent and did.record.partition == sent[0].partition
        ]
        places = [(*each.partition, each.offset) for each in sent[:9]]
        return f"{self.uncommitted()} uncommitted; {len(left)} left: {places}; {did[-8:]}"

    def owned(self, member: Member) -> list[Partition]:
        return [each for source in member.sources for each in source.of_group.of(source)]

    def check(self) -> None:
        """Handled, once; in order; and what failed for good is a letter."""
        assert self.wanted() - self.handled() == set()
        times = Counter((did.record.topic, did.piece) for did in self.did if did.what == "end")
        assert {piece: count for piece, count in times.items() if count > 1} == {}
        broken = Counter(record.value for _, piece, record in self.pieces() if piece is None)
        assert Counter(letter.record.value for letter in self.letters.sent) == broken
        if not self.leased:
            self._check_order()

    def _check_order(self) -> None:
        """In each lane one call at a time, and each record behind all before it. What failed alone in its batch comes
        again behind the rest of that batch, which is done."""
        running: dict[Hashable, object] = {}
        last: dict[Hashable, int] = {}
        failed: set[Hashable] = set()
        for did in self.did:
            place = _place(did.record)
            if did.what == "start":
                assert did.record.offset > last.get(did.lane, -1) or place in failed, f"{did} after {last[did.lane]}"
                assert running.setdefault(did.lane, did.call) is did.call, f"{did} beside another"
            elif did.what == "fail":
                running.pop(did.lane, None)
                failed.add(place)
            else:
                running.pop(did.lane, None)
                last[did.lane] = max(did.record.offset, last.get(did.lane, -1))


class _Noted:
    """Around one call of a handler: it starts, fails at the first attempt where it is to, and ends."""

    def __init__(self, ground: Ground, member: Member, how: How, records: list[Record], *, batched: bool) -> None:
        self.how = how
        self._ground, self.member, self._records, self._batched = ground, member, records, batched

    def __enter__(self) -> None:
        for record in self._records:
            self._ground.note("start", self, record)

    def __exit__(self, kind: object, *_: object) -> None:
        ground, failures = self._ground, dict[int, Exception]()
        for number, record in enumerate(self._records):
            if kind is None and ground.fails_now(record):
                failures[number] = ValueError("the first attempt")
            ground.note("fail" if kind is not None or number in failures else "end", self, record)
        if failures:
            raise BatchFailed(failures) if self._batched else failures[0]


class _ToTheBroker(Letters):
    """Letters arrive in their topic, as on a broker."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground.changed)
        self._ground = ground

    def send(self, letter: Letter, deadline: Deadline) -> None:
        super().send(letter, deadline)
        record, broker = letter.record, self._ground.broker
        if Partition(letter.topic, 0) in broker.logs:
            value = None if record.value is None else record.value.decode()
            broker.produce(letter.topic, 0, value, headers=headers_of(letter))


def _number(record: Record) -> int:
    """The order's."""
    return int(json.loads(record.value or b"{}").get("order_id", -1))


def put_under(monkeypatch: pytest.MonkeyPatch, ground: Ground, folder: Path) -> None:
    """What the examples import: the same, on this ground."""
    kafka, rocketmq = holdfast.adapters.kafka, holdfast.adapters.rocketmq
    stores = SimpleNamespace(from_url=lambda *_, **__: ground.claims)
    for module, name, replaced in (
        (holdfast, "Holdfast", ExampleApp),
        (holdfast, "MemoryClaims", lambda: ground.claims),
        (holdfast, "RedisClaims", stores),
        (holdfast, "RedisCoordinator", lambda _: None),
        (kafka, "KafkaSource", lambda conf, **_: ground.source(conf["group.id"])),
        (kafka, "KafkaConsumer", ExampleLoop),
        (kafka, "KafkaEvents", lambda *_: holdfast.FileEvents(str(folder))),
        (kafka_consumer, "MessageSource", ground.message_source),
        (rocketmq, "RocketMQSource", lambda _, group, **__: ground.source(group)),
        (rocketmq, "LeasedSource", lambda _, group: ground.leased_source(group)),
    ):
        monkeypatch.setattr(module, name, replaced)


def play(ground: Ground, code: str) -> None:
    """Load; one joins, takes half, works, and leaves under load."""
    stays = Member(ground, "stays", code)
    try:
        ground.produce()
        stays.start()
        ground.wait(
            lambda: all(ground.done(topic) > ROUND // 10 for topic in ground.topics), "it does not begin", stays
        )
        guest = Member(ground, "guest", code)
        ground.produce()
        try:
            guest.start()
            if not ground.leased:
                half = sum(partition.topic in ground.topics for partition in ground.broker.logs) // 2
                ground.wait(lambda: len(ground.owned(guest)) >= half, "it does not get its half", stays, guest)
            ground.produce()  # the other may have done all that was there before
            ground.wait(lambda: ground.done(member="guest") > ROUND // 10, "it does not work", stays, guest)
            ground.produce()
        finally:
            guest.stop()
        ground.wait(lambda: not ground.uncommitted(), "not all is committed", stays)
    finally:
        stays.stop()
    ground.check()
