"""A claim in Redis on every business key, against one round trip a message, and against Redis' own rate."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from holdfast import RedisClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token
from tests.benchmarks import consumers
from tests.benchmarks.lab import Speed, ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_BATCH = 500


def scripts(
    url: str, namespace: str, records: int, hash_keys: bool = False, before: int = 0, keys_expected: int | None = None
) -> Speed:
    """Claim and finish in batches of 500, and nothing else.

    Args:
        url: the Redis.
        namespace: in it.
        records: that have a key each.
        hash_keys: as in RedisClaims.
        before: so many keys were finished by earlier calls; these are others.
        keys_expected: as in RedisClaims; None: `records`.
    """
    store = RedisClaims.from_url(url, namespace=namespace, hash_keys=hash_keys, keys_expected=keys_expected or records)
    store.connect()
    session = store.begin(30.0)
    batches = [
        [Claim(ClaimKey("bench", f"s:{i}"), Token("bench/topic/id/0", i, 1)) for i in range(first, first + _BATCH)]
        for first in range(before, before + records, _BATCH)
    ]
    began, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        session.claim(batch)
        session.finish(batch)
    speed = Speed(len(batches) * _BATCH, time.perf_counter() - began, time.process_time() - cpu)
    session.end()
    return speed


@benchmark("keys")
def keys(lab: Lab) -> list[Row]:
    """Each record has a key of its own, so each is claimed and finished."""
    records, rounds = (20_000, 1) if lab.quick else (100_000, 5)
    topic, url = lab.topic(records), lab.redis.url

    def empty() -> None:
        with lab.redis.client() as client:
            client.flushall()

    def round_trips() -> Speed:
        empty()
        return lab.in_child(consumers.bare_with_set_nx, lab.client(), topic, records // 4, url)  # type: ignore[no-any-return]

    def bare_scripts() -> Speed:
        empty()
        return lab.in_child(scripts, url, "bench-scripts", records)  # type: ignore[no-any-return]

    def app() -> Speed:
        empty()
        consume = partial(consumers.app, keys=True, workers=16)
        return lab.in_child(consume, lab.client(), topic, records, url)  # type: ignore[no-any-return]

    nx, own, ours = "loop with one SET NX a message", "claim and finish scripts alone", "app, key=record_key()"
    speeds = lab.in_turns(rounds, {nx: round_trips, own: bare_scripts, ours: app})
    rows = [
        Row(what=name, figure=typical(speeds[name]).per_s, unit="/s", note=_cpu(speeds[name])) for name in (nx, own)
    ]
    for other, goal in ((nx, Goal(value=10)), (own, Goal(value=0.6))):
        rows.append(
            Row(
                what=f"{ours}, against the {other}",
                figure=typical(speeds[ours]).per_s,
                unit="/s",
                ratio=ratio(speeds[ours], speeds[other]),
                goal=goal,
                note=_cpu(speeds[ours]),
            )
        )
    return rows


def _cpu(found: list[Speed]) -> str:
    return f"{typical(found).cpu_us:.1f} us of processor a record"
