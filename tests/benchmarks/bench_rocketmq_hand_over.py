"""How long a queue is nobody's when it moves between two members, with idle handlers; and how many a join moves."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.benchmarks.on_rocketmq import hand_overs, topics
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab
    from tests.benchmarks.on_rocketmq.hand_overs import Seen

#: Topics of different size: even by topic is not even.
_QUEUES = (5, 3, 4)


@benchmark("rocketmq-hand-over")
def rocketmq_hand_over(lab: Lab) -> list[Row]:
    """One of two members joins and leaves, 20 times: 6 queues to and fro."""
    joins, fewest = 3 if lab.quick else 20, (sum(_QUEUES) + 1) // 2
    namesrv, run = lab.rocketmq.namesrv, uuid4().hex[:8]
    names = [f"hand-over-{run}-{number}" for number in range(len(_QUEUES))]
    for name, queues in zip(names, _QUEUES, strict=True):
        topics.make(namesrv, name, queues)
    seen: Seen = lab.in_child(hand_overs.measure, namesrv, names, f"hand-over-{run}", lab.redis.url, joins)
    return [
        Row(
            what="RocketMQ: fence to the next owner's first record, p50",
            figure=median(seen.took_s) * 1e3,
            unit=" ms",
            note=f"{len(seen.took_s)} hand-overs of queues, joins and leaves",
        ),
        Row(
            what="the same, p99",
            figure=quantiles(seen.took_s, n=100)[98] * 1e3,
            unit=" ms",
            goal=Goal(value=200, at_least=False, unit=" ms"),
            note=f"{max(seen.took_s) * 1e3:.0f} ms at most",
        ),
        Row(
            what="RocketMQ: queues that a join moves, against the fewest that make it even",
            figure=max(seen.joins),
            unit="",
            ratio=max(seen.joins) / fewest,
            goal=Goal(value=1, at_least=False),
            note=f"of {sum(_QUEUES)} in {len(_QUEUES)} topics and one of retries; a leave: {max(seen.leaves)}",
        ),
    ]
