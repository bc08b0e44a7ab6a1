"""The app with position dedup in Redis, against a loop that has none of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.benchmarks import consumers
from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab, Speed


@benchmark("positions")
def positions(lab: Lab) -> list[Row]:
    """A trivial handler: what is measured is what holdfast adds to it."""
    # The bare loop is uneven (see below), so it gets enough to show its mean; the app may stop earlier.
    records, ours, rounds = (100_000, 100_000, 1) if lab.quick else (2_400_000, 800_000, 3)
    topic, url = lab.topic(records), lab.redis.url

    def app(**settings: Any) -> Speed:
        return lab.in_child(partial(consumers.app, **settings), lab.client(), topic, ours, url)  # type: ignore[no-any-return]

    bare, eager = "bare consume(500) loop", "the same, fetch.queue.backoff.ms=10"
    variants: dict[str, tuple[dict[str, Any], Goal | None]] = {
        'app, 16 workers, ordering="key"': ({"workers": 16}, Goal(value=0.6)),
        'app, in the polling thread, ordering="partition"': (
            {"workers": 0, "ordering": "partition"},
            Goal(value=0.8),
        ),
        "app, batch handler": ({"workers": 2, "batch": True}, Goal(value=0.9)),
        "app, async def that never waits": ({"coroutine": True}, None),
    }
    speeds = lab.in_turns(
        rounds,
        {
            bare: lambda: lab.in_child(consumers.bare, lab.client(), topic, records),
            # With librdkafka's default of 1,000 ms a loop that is quicker than the fetcher empties the queue and waits
            # out that time, again and again. This is what the interpreter could do.
            eager: lambda: lab.in_child(consumers.bare, lab.client() | {"fetch.queue.backoff.ms": 10}, topic, records),
        }
        | {name: partial(app, **settings) for name, (settings, _) in variants.items()},
    )
    rows = []
    for name, found in speeds.items():
        speed = typical(found)
        rows.append(
            Row(
                what=name,
                figure=speed.per_s,
                unit="/s",
                ratio=ratio(found, speeds[bare]) if name in variants else None,
                goal=variants[name][1] if name in variants else None,
                note=f"{speed.cpu_us:.1f} us of processor a record",
            )
        )
    return rows
