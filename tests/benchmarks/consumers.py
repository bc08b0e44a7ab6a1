"""What is compared: loops and apps that consume a topic to its end, each in a process of its own."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import redis
from confluent_kafka import Consumer

from holdfast import Audit, BatchOf, Holdfast, RedisClaims, Settings, record_key
from holdfast.adapters.kafka import KafkaConsumer, KafkaSource
from holdfast.records import Partition, Record
from tests.benchmarks.count import Count
from tests.benchmarks.lab import Speed

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message


class Counter(Count):
    """The trivial handler."""

    @property
    def speed(self) -> Speed:
        """What it saw."""
        return Speed(*self.figures)


def bare(conf: dict[str, Any], topic: str, records: int) -> Speed:
    """`consume(500)`, a function called for each message, commits twice a second."""
    counter = Counter(records)
    _loop(Consumer(conf), topic, counter, counter.one)
    return counter.speed


def bare_with_records(conf: dict[str, Any], topic: str, records: int) -> Speed:
    """`bare`, and of each message what any handler is given: what an app pays before it does anything else."""
    counter, new, fence = Counter(records), tuple.__new__, object()
    known: dict[tuple[str, int], Partition] = {}

    def handle(message: Any) -> None:  # all that is asked for is there where there is no error
        where = message.topic(), message.partition()
        partition = known.get(where) or known.setdefault(where, Partition(*where))
        what, headers, sent_ms = message.value(), message.headers() or (), message.timestamp()[1]
        counter.one(new(Record, (partition, message.offset(), message.key(), what, headers, sent_ms, fence)))

    _loop(Consumer(conf), topic, counter, handle)
    return counter.speed


def bare_by_polls(conf: dict[str, Any], topic: str, records: int) -> Speed:
    """`poll()`, the rest as in `bare`."""
    counter = Counter(records)
    _by_polls(Consumer(conf), topic, counter)
    return counter.speed


def loop(
    conf: dict[str, Any],
    topic: str,
    records: int,
    redis_url: str,
    *,
    by_polls: bool = False,
    audit: Audit | None = None,
) -> Speed:
    """The same loops around a KafkaConsumer, with position dedup."""
    counter = Counter(records)
    claims = RedisClaims.from_url(redis_url, namespace=str(conf["group.id"]))
    settings = Settings(ramp=None, missing_key="position")
    consumer = KafkaConsumer(conf, claims=claims, done_when="next_poll", settings=settings, audit=audit)
    if by_polls:
        _by_polls(consumer, topic, counter)
    else:
        _loop(consumer, topic, counter, counter.one)
    return counter.speed


def bare_with_set_nx(conf: dict[str, Any], topic: str, records: int, redis_url: str) -> Speed:
    """The same with what is commonly written against duplicates: one SET NX round trip a message."""
    counter = Counter(records)
    client = redis.Redis.from_url(redis_url)

    def handle(message: Message) -> None:
        if client.set(b"seen:" + (message.key() or b""), b"1", nx=True, ex=86_400):
            counter.one(message)

    _loop(Consumer(conf), topic, counter, handle)
    return counter.speed


def app(
    conf: dict[str, Any],
    topic: str,
    records: int,
    redis_url: str,
    *,
    keys: bool = False,
    batch: bool = False,
    coroutine: bool = False,
    wait_s: float = 0.0,
    audit: Audit | None = None,
    **settings: Any,
) -> Speed:
    """The whole app, with position dedup, or with a claim on each record's key."""
    claims = RedisClaims.from_url(redis_url, namespace=str(conf["group.id"]))
    holdfast = Holdfast(
        KafkaSource(conf, assignment="keep"),
        claims=claims,
        settings=Settings(**{"ramp": None} | settings),
        audit=audit,
    )
    counter = Counter(records, holdfast.stop)

    async def one(record: object) -> None:
        if wait_s:
            await asyncio.sleep(wait_s)
        counter.one(record)

    holdfast.handler(
        topic, name="bench", key=record_key() if keys else None, batch=BatchOf(records=500) if batch else None
    )(counter.many if batch else one if coroutine else counter.one)
    holdfast.run()
    return counter.speed


def _by_polls(consumer: Consumer | KafkaConsumer, topic: str, counter: Counter) -> None:
    consumer.subscribe([topic])
    commit_at = time.monotonic() + 0.5
    while not counter.over:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            counter.one(message)
        if time.monotonic() >= commit_at:
            commit_at += 0.5
            consumer.commit(asynchronous=True)
    consumer.close()


def _loop(consumer: Consumer | KafkaConsumer, topic: str, counter: Counter, handle: Callable[[Message], None]) -> None:
    consumer.subscribe([topic])
    commit_at = time.monotonic() + 0.5
    while not counter.over:
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                handle(message)
        if time.monotonic() >= commit_at:
            commit_at += 0.5
            consumer.commit(asynchronous=True)
    consumer.close()
