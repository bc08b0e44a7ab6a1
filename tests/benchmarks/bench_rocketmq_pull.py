"""The app on RocketMQ with position dedup in Redis, against a bare loop and against RocketMQ's own push consumers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.on_rocketmq import others, pulls, topics
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab, Speed

_BARE = "RocketMQ: bare pull loop"
_PUSH = "rocketmq-client-python, PushConsumer"
_JAVA = "Java client, push consumer, warm JVM"
_IN_WORKERS, _POLLING = 'app, 16 workers, ordering="key"', 'app, in the polling thread, ordering="partition"'
_APPS: dict[str, dict[str, Any]] = {_IN_WORKERS: {"workers": 16}, _POLLING: {"workers": 0, "ordering": "partition"}}
#: Of each app, against each of the others.
_GOALS = {
    _IN_WORKERS: {_BARE: 0.7, _PUSH: 2.0, _JAVA: 0.5},
    _POLLING: {_BARE: 0.8, _PUSH: 2.0, _JAVA: 1.0},
}


@benchmark("rocketmq-pull")
def rocketmq_pull(lab: Lab) -> list[Row]:
    """A trivial handler that has the message's body; the same messages for all, each consumer in a group of its own."""
    records, rounds = (100_000, 1) if lab.quick else (400_000, 3)
    namesrv, topic, redis_url = lab.rocketmq.namesrv, f"bench-{records}", lab.redis.url
    topics.fill(namesrv, topic, records)

    def in_child(consume: Callable[..., Speed], *more: object) -> Callable[[], Speed]:
        return lambda: lab.in_child(consume, namesrv, topic, _group(), records, *more)

    def push() -> Speed:
        group = _group()
        topics.begin_at_start(namesrv, topic, group)
        return others.classic_push(namesrv, topic, group, records)

    measures = {_BARE: in_child(pulls.bare)}
    for name, missing, measure in (
        (_PUSH, others.missing_for_classic(), push),
        (_JAVA, others.missing_for_java(), lambda: others.java_push(namesrv, topic, _group(), records)),
    ):
        if missing is None:
            measures[name] = measure
        else:
            print(f"not measured: {name}: {missing}")
    apps = {name: in_child(partial(pulls.app, **settings), redis_url) for name, settings in _APPS.items()}
    speeds = lab.in_turns(rounds, measures | apps)
    rows = [_row(name, speeds[name]) for name in measures]
    for name in apps:
        rows += [
            _row(f"{name}, against {other}", speeds[name], ratio(speeds[name], speeds[other]), Goal(value=goal))
            for other, goal in _GOALS[name].items()
            if other in speeds
        ]
    return rows


def _row(name: str, found: list[Speed], against: float | None = None, goal: Goal | None = None) -> Row:
    speed = typical(found)
    note = f"{speed.cpu_us:.1f} us of processor a record"
    return Row(what=name, figure=speed.per_s, unit="/s", ratio=against, goal=goal, note=note)


def _group() -> str:
    return f"bench-{uuid4().hex[:8]}"
