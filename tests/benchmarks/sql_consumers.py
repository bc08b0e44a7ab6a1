"""Consumers whose handler writes a row into PostgreSQL: threads that write by hand, and the app with `transaction=`."""

from __future__ import annotations

import threading
from queue import Queue
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka import Consumer

from holdfast import BatchOf, Holdfast, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.sql import SqlPositions
from tests.benchmarks.consumers import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Speed

WORKERS = 4
_ADD = "INSERT INTO effects (value) VALUES (%s)"
#: What the how-to page has for databases that holdfast knows nothing of.
_HOLD = (
    "INSERT INTO fences AS held VALUES (%s, %s) "
    "ON CONFLICT (partition) DO UPDATE SET epoch = excluded.epoch WHERE held.epoch <= excluded.epoch"
)
_DONE = "INSERT INTO done VALUES (%s, %s) ON CONFLICT DO NOTHING"


class ByHand:
    """Threads with a connection each. No mark; or the fence and the row of the how-to page."""

    def __init__(self, counter: Counter, url: str, *, fenced: bool) -> None:
        self._counter, self._url, self._fenced = counter, url, fenced
        self._work, self._counting = Queue[Any](2_000), threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(WORKERS)]
        for each in self._threads:
            each.start()

    def give(self, messages: list[Any]) -> None:
        """One transaction for these."""
        self._work.put(messages)

    def end(self) -> None:
        """Wait until all are written."""
        for _ in self._threads:
            self._work.put(None)
        for each in self._threads:
            each.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True, prepare_threshold=None) as connection:
            while (messages := self._work.get()) is not None:
                with connection.transaction():
                    for message in messages:
                        self._write(connection, message)
                with self._counting:
                    self._counter.many(messages)

    def _write(self, connection: psycopg.Connection[Any], message: Any) -> None:
        if self._fenced:
            name = f"{message.topic()}-{message.partition()}"
            connection.execute(_HOLD, (name, 1))
            connection.execute(_DONE, (name, message.offset()))
        connection.execute(_ADD, (message.value(),))


def by_hand(conf: dict[str, Any], topic: str, records: int, url: str, *, batch: bool, fenced: bool = False) -> Speed:
    """One transaction a message, or for up to 500 of a partition."""
    counter = Counter(records)
    hand, consumer = ByHand(counter, url, fenced=fenced), Consumer(conf)
    consumer.subscribe([topic])
    while not counter.over:
        messages = [each for each in consumer.consume(500, 0.1) if each.error() is None]
        for some in _parts(messages) if batch else [[each] for each in messages]:
            hand.give(some)
        if messages:
            consumer.commit(asynchronous=True)
    hand.end()
    consumer.close()
    return counter.speed


def _parts(messages: list[Any]) -> list[list[Any]]:
    parts: dict[int, list[Any]] = {}
    for each in messages:
        parts.setdefault(each.partition(), []).append(each)
    return list(parts.values())


def app(conf: dict[str, Any], topic: str, records: int, url: str, *, batch: bool, prepare: bool = False) -> Speed:
    """The app, with the same rows."""
    store = SqlPositions.from_url(url, create=True, prepare=prepare)
    holdfast = Holdfast(
        KafkaSource(conf, assignment="keep"),
        claims=store,
        settings=Settings(workers=WORKERS, ramp=None, ordering="none"),
    )
    counter, counting = Counter(records, holdfast.stop), threading.Lock()

    def one(record: Any, *, tx: Any) -> None:
        many([record], tx=tx)

    def many(given: list[Any], *, tx: Any) -> None:
        for record in given:
            tx.execute(_ADD, (record.value,))
        with counting:
            counter.many(given)

    handler: Callable[..., Any] = many if batch else one
    holdfast.handler(topic, name="bench", transaction=store, batch=BatchOf(records=500) if batch else None)(handler)
    holdfast.run()
    return counter.speed
