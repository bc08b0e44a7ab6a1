"""A claim in Redis on every business key, with the store some milliseconds away."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.benchmarks import consumers
from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark
from tests.harness.far import Far

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab, Speed

_GOALS = {5: Goal(value=0.6), 20: Goal(value=0.3)}
#: What bounds the records of one round trip. A crash may repeat as many.
_LARGE = {"poll_batch": 2_000, "mark_batch": 2_000, "max_in_flight": 8_000}


@benchmark("far")
def far(lab: Lab) -> list[Row]:
    """Each record has a key of its own, so each is claimed, finished and marked."""
    records, rounds = (20_000, 1) if lab.quick else (60_000, 3)
    topic = lab.topic(records)

    def app(round_trip_ms: int, settings: dict[str, Any]) -> Speed:
        with lab.redis.client() as client:
            client.flushall()
        # At 200 ms there is time for few: what is told is a rate. Not for so few that they are one batch.
        some = records if round_trip_ms < 100 else records // (2 if settings else 10)
        consume = partial(consumers.app, keys=True, workers=16, **settings)
        if not round_trip_ms:
            return lab.in_child(consume, lab.client(), topic, some, lab.redis.url)  # type: ignore[no-any-return]
        with Far(lab.redis.port, round_trip_ms / 1000) as proxy:
            return lab.in_child(consume, lab.client(), topic, some, f"redis://127.0.0.1:{proxy.port}/0")  # type: ignore[no-any-return]

    variants = {
        (f"{ms} ms away" if ms else "here") + (", batches of 2,000" if settings else ""): (ms, settings)
        for settings in ({}, _LARGE)
        for ms in (0, 1, 5, 20, 200)
    }
    speeds = lab.in_turns(rounds, {name: partial(app, *each) for name, each in variants.items()})
    return [
        Row(
            what=f"app, key=record_key(), Redis {name}",
            figure=typical(speeds[name]).per_s,
            unit="/s",
            ratio=ratio(speeds[name], speeds["here"]),
            goal=_GOALS.get(ms),
            note=f"{typical(speeds[name]).cpu_us:.1f} us of processor a record",
        )
        for name, (ms, settings) in variants.items()
    ]
