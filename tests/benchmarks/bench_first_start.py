"""A group's first start: much waits in the topic already, and producers go on. The ramp is not to hold it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast import Ramp
from tests.benchmarks.consumers import app, bare
from tests.benchmarks.live import live
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab, Speed

_LIVE_PER_S = 300


@benchmark("first-start")
def first_start(lab: Lab) -> list[Row]:
    """From the first record until as many are handled as were there at the start."""
    records, rounds = (20_000, 1) if lab.quick else (200_000, 5)
    topic = lab.topic(records)
    with live(lab.kafka.bootstrap, topic, _LIVE_PER_S):
        seen = lab.in_turns(
            rounds,
            {
                "bare": lambda: lab.in_child(bare, lab.client(), topic, records),
                "held": lambda: lab.in_child(_app, lab.client(), topic, records, lab.redis.url, Ramp()),
                "free": lambda: lab.in_child(_app, lab.client(), topic, records, lab.redis.url, None),
            },
        )
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
