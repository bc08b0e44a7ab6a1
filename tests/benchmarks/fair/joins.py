"""Rows: a member joins while seven of 8 partitions have some lag, beside an eighth with a backlog, and without."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from confluent_kafka import Producer

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.benchmarks.lab import PARTITIONS
from tests.benchmarks.registry import Goal, Row

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_BACKLOG = 400_000
#: In each of the seven, when the member joins.
_LAG = 600
_WORKERS, _HANDLER_S = 16, 0.02
_START_S, _STEADY_S, _LONGEST_S = 90.0, 4.0, 40.0


class _Seen(NamedTuple):
    """Seconds until the last record of the lag was begun, and how many were."""

    seconds: float
    begun: int

    @property
    def whole(self) -> bool:
        return self.begun == _LAG * (PARTITIONS - 1)


def rows(lab: Lab) -> list[Row]:
    """Two members of 16 workers each, handlers of 20 ms, the default ramp."""
    what = f"a member joins: until seven partitions with {_LAG} records each have no lag"
    if not lab.wants(what):
        return []
    without, beside = _measure(lab, 0), _measure(lab, _BACKLOG)
    return [
        Row(what=f"{what}: the eighth has none", figure=without.seconds, unit=" s", note=_note(without)),
        Row(
            what=f"{what}: the eighth has a backlog",
            figure=beside.seconds,
            unit=" s",
            ratio=beside.seconds / without.seconds if beside.whole else float("inf"),
            goal=Goal(value=1.2, at_least=False),
            note=_note(beside),
        ),
    ]


def _note(seen: _Seen) -> str:
    return f"{seen.begun} of {_LAG * (PARTITIONS - 1)} begun"


def _measure(lab: Lab, backlog: int) -> _Seen:
    topic = f"fair-join-{backlog}-{uuid4().hex[:6]}"
    lab.kafka.create_topic(topic, PARTITIONS)
    producer = lab.producer(backlog + PARTITIONS)
    for number in range(backlog or 1):
        producer.produce(topic, key=b"%d" % number, value=b"old", partition=0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all messages")
    return lab.in_child(members, lab.client(), topic, lab.emptied_redis())  # type: ignore[no-any-return]


def members(conf: dict[str, Any], topic: str, redis_url: str) -> _Seen:
    """Both members, in one process of their own."""
    lock, started, over = threading.Lock(), threading.Event(), threading.Event()
    begun: list[float] = []
    lag = _LAG * (PARTITIONS - 1)

    def handle(number: int) -> None:
        started.set()
        if number:
            with lock:
                begun.append(time.monotonic())
            if len(begun) == lag:
                over.set()
        time.sleep(_HANDLER_S)

    def member() -> Holdfast:
        claims = RedisClaims.from_url(redis_url, namespace=topic)
        app = Holdfast(KafkaSource(conf, assignment="keep"), claims=claims, settings=Settings(workers=_WORKERS))
        app.handler(topic, name="bench")(lambda record: handle(record.partition.number))
        return app

    stays, joins = member(), member()
    stays.start()
    started.wait(_START_S)
    time.sleep(_STEADY_S)
    producer = Producer({"bootstrap.servers": conf["bootstrap.servers"], "linger.ms": 5, "log_level": 0})
    for number in range(lag):
        producer.produce(topic, key=b"%d" % number, value=b"lag", partition=1 + number % (PARTITIONS - 1))
    producer.flush(10)
    began = time.monotonic()
    joins.start()
    over.wait(_LONGEST_S)
    ended = begun[-1] if over.is_set() else time.monotonic()
    for each in (joins, stays):
        each.stop(wait=True)
    return _Seen(ended - began, len(begun))
