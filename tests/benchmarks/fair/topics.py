"""Rows: two topics in one app. One has a backlog and a handler that is 50 times slower: how long the other waits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource
from tests.benchmarks.fair.beside import at
from tests.benchmarks.fair.consumers import client
from tests.benchmarks.fair.fresh import FRESH, Fresh, Plan
from tests.benchmarks.registry import Goal, Row

if TYPE_CHECKING:
    from tests.benchmarks.fair.fresh import Waits
    from tests.benchmarks.lab import Lab

_FAST_S, _SLOW_S = 0.01, 0.5
_WORKERS = 16
_BACKLOG = 1_000_000


def rows(lab: Lab) -> list[Row]:
    """16 workers. All may be in slow handlers that have begun, so the fast topic may wait for one of these to end. The
    handlers take turns, so both rates are within the fast one's: as many of each start while both have records."""
    name = "two topics, handlers of 10 ms, wait at p99"
    if not lab.wants(name):
        return []
    found = []
    for per_s in (2, 10):
        alone, beside = _measure(lab, per_s, None), _measure(lab, per_s, lab.topic(_BACKLOG))
        found += [
            _row(f"{name}, {per_s}/s: alone", alone),
            _row(
                f"{name}, {per_s}/s: beside a backlog of handlers of 500 ms", beside, at(alone.seconds, 0.99) + _SLOW_S
            ),
        ]
    return found


def app(plan: Plan, slow: str | None, redis_url: str) -> Waits:
    """The app, in a process of its own. Args: slow: the topic with the backlog; None = there is none."""
    claims = RedisClaims.from_url(redis_url, namespace=plan.group)
    source = KafkaSource(client(plan), assignment="keep")
    holdfast = Holdfast(source, claims=claims, settings=Settings(workers=plan.workers))
    fresh = Fresh(plan, lambda _: holdfast.stop())
    holdfast.handler(plan.topic, name="fast")(lambda record: fresh.handle(record.value))
    if slow is not None:
        holdfast.handler(slow, name="slow")(lambda _: fresh.backlog(_SLOW_S))
    holdfast.run()
    return fresh.waits


def _measure(lab: Lab, per_s: int, slow: str | None) -> Waits:
    topic = f"fair-fast-{uuid4().hex[:8]}"
    lab.kafka.create_topic(topic, 2)
    plan = Plan(
        bootstrap=lab.kafka.bootstrap,
        topic=topic,
        group=topic,
        handler_s=_FAST_S,
        every_s=1 / per_s,
        seconds=4.0 if lab.quick else 12.0,
        bound_s=_SLOW_S + 0.5,
        workers=_WORKERS,
    )
    producer = lab.producer(1)
    producer.produce(topic, b"the first record", partition=FRESH)  # when it comes the app has its partitions
    producer.flush(10)
    return lab.in_child(app, plan, slow, lab.emptied_redis())  # type: ignore[no-any-return]


def _row(name: str, waits: Waits, bound_s: float | None = None) -> Row:
    p50, p99, most = (at(waits.seconds, share) for share in (0.5, 0.99, 1.0))
    return Row(
        what=name,
        figure=p99,
        unit=" s",
        goal=None if bound_s is None else Goal(value=round(bound_s, 2), at_least=False, unit=" s"),
        note=f"p50 {p50:.2f} s, most {most:.2f} s; {waits.started} of {len(waits.seconds)} handled",
    )
