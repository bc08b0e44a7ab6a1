"""A member whose sink has a fence: `python -m tests.examples.fence_member --json '{...}'`. SIGTERM ends it in order.

It writes statuses of orders into PostgreSQL or Redis, and stops itself (SIGSTOP) at the worst moment of one record. It
says what happens, a JSON line each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import redis

from examples.fences.fenced import FencedOrders, FormerOwner
from examples.fences.once import RevenueOnce
from examples.fences.redis_sink import FencedValues
from holdfast import Holdfast, RedisClaims, RedisCoordinator, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.rocketmq import RocketMQSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record


class Sink(Protocol):
    def write(self, record: Record) -> None: ...


def say(**facts: object) -> None:
    sys.stdout.write(f"{json.dumps({'pid': os.getpid(), **facts})}\n")
    sys.stdout.flush()


class Stops:
    """Stands still once, between two lines of this process: at that moment of that record."""

    def __init__(self, moment: str, order: str) -> None:
        self._moment, self._order = moment, order

    def at(self, moment: str, record: Record) -> None:
        if moment == self._moment and record.json()["order_id"] == self._order:
            self._moment = ""
            say(stops=moment, offset=record.offset, epoch=record.fence.epoch)
            # To this thread: sent to the process, another one would take it, and this one would go on for a moment.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class InPostgres(FencedOrders):
    def __init__(self, stops: Stops, url: str, *, fenced: bool) -> None:
        super().__init__(url, idle_s=2.0)
        self._stops, self._fenced = stops, fenced
        self._now: dict[str, Record] = {}

    def write(self, record: Record) -> None:
        self._now[str(record.partition)] = record
        self._stops.at("read", record)
        super().write(record)

    def hold(self, transaction: psycopg.Connection, partition: str, epoch: int) -> None:
        if self._fenced:
            super().hold(transaction, partition, epoch)
        self._stops.at("held", self._now[partition])


class OnceInPostgres(RevenueOnce):
    def __init__(self, stops: Stops, url: str, *, fenced: bool) -> None:
        super().__init__(url, idle_s=2.0)
        self._stops = stops

    def write(self, record: Record) -> None:
        self._stops.at("read", record)
        if not self.add(record):
            say(known=record.json()["order_id"], offset=record.offset)
        self._stops.at("written", record)


class InRedis:
    def __init__(self, stops: Stops, url: str, *, fenced: bool) -> None:
        self._stops, self._fenced = stops, fenced
        self._client = redis.Redis.from_url(url)
        self._values = FencedValues(self._client, "sink")

    def write(self, record: Record) -> None:
        self._stops.at("read", record)
        order = record.json()
        if self._fenced:
            self._values.write(record, order["order_id"], str(order["cents"]))
        else:
            self._client.set(f"sink:{order['order_id']}", order["cents"])


def set_clock(file: str) -> None:
    """The time of day of this process is wrong by the seconds that stand in that file, whenever it is asked for."""
    true_s, true_ns, path = time.time, time.time_ns, Path(file)

    def wrong_s() -> float:
        return float(path.read_text(encoding="utf-8"))

    time.time = lambda: true_s() + wrong_s()
    time.time_ns = lambda: true_ns() + int(wrong_s() * 1e9)


def make_source(given: dict[str, Any], store: RedisClaims) -> KafkaSource | RocketMQSource:
    if "namesrv" in given:
        return RocketMQSource(
            given["namesrv"],
            given["topic"],
            coordinator=RedisCoordinator(store),
            consume_from_where="earliest",
            lease_s=2.0,
        )
    conf = {
        "bootstrap.servers": given["bootstrap"],
        "group.id": given["topic"],
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 2_000,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": given["strategy"],
    }
    return KafkaSource(conf, assignment="keep")


def make_app(given: dict[str, Any], sink: Sink) -> Holdfast:
    store = RedisClaims.from_url(given["redis"], namespace=given["topic"])
    app = Holdfast(make_source(given, store), claims=store, settings=Settings(workers=4, ordering="partition"))

    @app.handler(given["topic"], name="book", retry=Retry(attempts=4, wait_initial_s=0.05, wait_max_s=0.2))
    def book(record: Record) -> None:
        order = record.json()
        try:
            sink.write(record)
        except (FormerOwner, psycopg.Error) as error:
            say(refused=order["order_id"], cents=order["cents"], epoch=record.fence.epoch, by=type(error).__name__)
            raise
        say(wrote=order["order_id"], cents=order["cents"], epoch=record.fence.epoch)

    return app


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    given = json.loads(parser.parse_args(argv).json)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s")
    if "clock" in given:
        set_clock(given["clock"])
    stops = Stops(given.get("moment", ""), given.get("order", ""))
    kinds: dict[str, Callable[..., Sink]] = {"postgres": InPostgres, "once": OnceInPostgres, "redis": InRedis}
    sink = kinds[given["kind"]](stops, given["sink"], fenced=given["fenced"])
    make_app(given, sink).run()


if __name__ == "__main__":
    main()
