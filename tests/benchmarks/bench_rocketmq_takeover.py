"""A member on RocketMQ dies under a steady flow, another takes its queues over: how high the intake goes, and how long
until the lag is worked off."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.bench_takeover import PER_S, one
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab


@benchmark("rocketmq-takeover")
def rocketmq_takeover(lab: Lab) -> list[Row]:
    """As on Kafka: the dead member's lease is 6 s."""
    seen = [one(lab.rocketmq, lab.redis.url, "rocketmq", "holdfast") for _ in range(1 if lab.quick else 3)]
    peak, recovered_s = median(each.peak for each in seen), median(each.recovered_s for each in seen)
    return [
        Row(
            what="app on RocketMQ, peak intake, against the steady one",
            figure=peak,
            unit="/s",
            ratio=peak / PER_S,
            goal=Goal(value=1.5, at_least=False),
            note="records started in the fullest second after the death",
        ),
        Row(what="app on RocketMQ, death to lag worked off", figure=recovered_s, unit=" s"),
    ]
