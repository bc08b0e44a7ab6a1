"""Digests in buckets against plain keys: claim and finish alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench_keys import scripts
from tests.benchmarks.lab import Speed, ratio, typical
from tests.benchmarks.registry import Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab


@benchmark("digests")
def digests(lab: Lab) -> list[Row]:
    """Both in turns, each on an empty Redis."""
    records, rounds = (20_000, 1) if lab.quick else (200_000, 7)

    def measure(*, hash_keys: bool) -> Speed:
        with lab.redis.client() as client:
            client.flushall()
        return scripts(lab.redis.url, "bench-digests", records, hash_keys=hash_keys)

    speeds = lab.in_turns(
        rounds, {"plain": partial(measure, hash_keys=False), "digest": partial(measure, hash_keys=True)}
    )
    return [
        Row(
            what=f"claim and finish alone, {kind} keys",
            figure=typical(found).per_s,
            unit="/s",
            ratio=None if kind == "plain" else ratio(found, speeds["plain"]),
            note=f"{typical(found).cpu_us:.1f} us of this side's processor a key",
        )
        for kind, found in speeds.items()
    ]
