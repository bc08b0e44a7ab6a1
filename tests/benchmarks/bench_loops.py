"""A loop around a KafkaConsumer, with position dedup in Redis, against the same loop around the client's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks import consumers
from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab, Speed


@benchmark("loops")
def loops(lab: Lab) -> list[Row]:
    """A trivial handler; consume(500), and poll() for each message."""
    records, rounds = (100_000, 1) if lab.quick else (800_000, 3)
    topic, url = lab.topic(records), lab.redis.url
    rows = []
    for what, by_polls, bare in (
        ("consume(500)", False, consumers.bare),
        ("poll()", True, consumers.bare_by_polls),
    ):
        plain, ours = f"bare {what} loop", f"the same loop, KafkaConsumer, {what}"
        speeds = lab.in_turns(
            rounds,
            {
                plain: partial(_in_child, lab, bare, topic, records),
                ours: partial(_in_child, lab, partial(consumers.loop, by_polls=by_polls), topic, records, url),
            },
        )
        for name in (plain, ours):
            speed = typical(speeds[name])
            rows.append(
                Row(
                    what=name,
                    figure=speed.per_s,
                    unit="/s",
                    ratio=ratio(speeds[ours], speeds[plain]) if name is ours else None,
                    goal=Goal(value=0.9) if name is ours else None,
                    note=f"{speed.cpu_us:.1f} us of processor a record",
                )
            )
    return rows


def _in_child(lab: Lab, measure: Callable[..., Speed], *args: object) -> Speed:
    return lab.in_child(measure, lab.client(), *args)  # type: ignore[no-any-return]
