"""Rows: 8 partitions that all have a backlog, and how many handlers of each start in windows of 5 s."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.rocketmq import RocketMQSource
from tests.benchmarks.lab import PARTITIONS
from tests.benchmarks.on_rocketmq import topics
from tests.benchmarks.registry import Goal, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.lab import Lab

_WINDOW_S, _WINDOWS = 5.0, 3
_HANDLER_S = 0.02
_WORKERS = (4, 16)
_ON_KAFKA, _ON_ROCKETMQ = 1_000_000, 100_000


def rows(lab: Lab) -> list[Row]:
    """Handlers of 20 ms, with the default ramp. The most uneven of three windows counts."""
    found, windows = [], 1 if lab.quick else _WINDOWS
    on_rocketmq = ""
    for workers in _WORKERS:
        name = f"8 partitions in backlog, starts in 5 s, most by least: Kafka, {workers} workers"
        if lab.wants(name):
            topic, url = lab.topic(_ON_KAFKA), lab.emptied_redis()
            found.append(_row(name, lab.in_child(kafka, lab.client(), topic, workers, windows, url)))
        name = f"8 partitions in backlog, starts in 5 s, most by least: RocketMQ, pull source, {workers} workers"
        if lab.wants(name):
            namesrv = lab.rocketmq.namesrv
            if not on_rocketmq:
                on_rocketmq = "fair-shares"
                topics.fill(namesrv, on_rocketmq, _ON_ROCKETMQ)
            url = lab.emptied_redis()
            found.append(_row(name, lab.in_child(rocketmq, namesrv, on_rocketmq, workers, windows, url)))
    return found


def kafka(conf: dict[str, Any], topic: str, workers: int, windows: int, redis_url: str) -> list[Counter[int]]:
    """The app, in a process of its own: the starts of each window, by partition."""
    claims = RedisClaims.from_url(redis_url, namespace=str(conf["group.id"]))
    return _starts(
        Holdfast(KafkaSource(conf, assignment="keep"), claims=claims, settings=_with(workers)), topic, windows
    )


def rocketmq(namesrv: str, topic: str, workers: int, windows: int, redis_url: str) -> list[Counter[int]]:
    """The same on RocketMQ."""
    claims = RedisClaims.from_url(redis_url, namespace=topic)
    source = RocketMQSource(namesrv, f"fair-{workers}", coordinator=RedisCoordinator(claims), dedup="position")
    return _starts(Holdfast(source, claims=claims, settings=_with(workers)), topic, windows)


def _with(workers: int) -> Settings:
    return Settings(workers=workers)


def _starts(holdfast: Holdfast, topic: str, windows: int) -> list[Counter[int]]:
    starts: list[tuple[float, int]] = []
    over = threading.Timer(_WINDOW_S * windows, holdfast.stop)

    def handle(number: int) -> None:
        starts.append((time.monotonic(), number))
        if len(starts) == 1:
            over.start()
        time.sleep(_HANDLER_S)

    holdfast.handler(topic, name="bench")(lambda record: handle(record.partition.number))
    holdfast.run()
    first = starts[0][0]
    found: list[Counter[int]] = [Counter() for _ in range(windows)]
    for at, number in starts:
        if (window := int((at - first) / _WINDOW_S)) < windows:
            found[window][number] += 1
    return found


def _row(name: str, windows: Sequence[Counter[int]]) -> Row:
    counts = [[window[number] for number in range(PARTITIONS)] for window in windows]
    return Row(
        what=name,
        figure=max(max(each) / min(each) if min(each) else float("inf") for each in counts),
        unit="",
        goal=Goal(value=1.2, at_least=False),
        note="; ".join(f"{min(each)} to {max(each)} starts" for each in counts),
    )
