"""A group's first start: much waits in the topic already, and producers go on. The ramp is not to hold it."""

from __future__ import annotations

import threading
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from holdfast import Ramp
from tests.benchmarks.consumers import app, bare
from tests.benchmarks.lab import PARTITIONS, Speed, value
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_LIVE_PER_S = 300


@benchmark("first-start")
def first_start(lab: Lab) -> list[Row]:
    """From the first record until as many are handled as were there at the start."""
    records, rounds = (20_000, 1) if lab.quick else (200_000, 5)
    topic, over = lab.topic(records), threading.Event()
    producer = threading.Thread(target=_live, args=(lab.kafka.bootstrap, topic, over))
    producer.start()
    try:
        seen = lab.in_turns(
            rounds,
            {
                "bare": lambda: lab.in_child(bare, lab.client(), topic, records),
                "held": lambda: lab.in_child(_app, lab.client(), topic, records, lab.redis.url, Ramp()),
                "free": lambda: lab.in_child(_app, lab.client(), topic, records, lab.redis.url, None),
            },
        )
    finally:
        over.set()
        producer.join()
    took = {name: median(each.elapsed_s for each in speeds) for name, speeds in seen.items()}
    note = f"{records:,} waiting, {_LIVE_PER_S}/s more"
    return [
        Row(what="first start, bare loop", figure=took["bare"], unit=" s", note=note),
        Row(what="first start, app, ramp=None", figure=took["free"], unit=" s"),
        Row(
            what="first start, app, against ramp=None",
            figure=took["held"],
            unit=" s",
            ratio=took["held"] / took["free"],
            goal=Goal(value=1.5, at_least=False),
        ),
    ]


def _app(conf: dict[str, Any], topic: str, records: int, redis_url: str, ramp: Ramp | None) -> Speed:
    return app(conf, topic, records, redis_url, ramp=ramp, workers=16)


def _live(bootstrap: str, topic: str, over: threading.Event) -> None:
    producer, number = Producer({"bootstrap.servers": bootstrap, "log_level": 0}), 0
    while not over.wait(1 / _LIVE_PER_S):
        producer.produce(topic, key=b"live-%d" % number, value=value(number), partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush(10)
