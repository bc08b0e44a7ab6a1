"""A member dies under a steady flow, and another takes its partitions over with their backlog: how high the intake
goes, and how long until the lag is worked off."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.registry import Goal, Row, benchmark
from tests.harness.group.field import Field
from tests.harness.group.intake import Behind, peak_per_s, starts

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab
    from tests.harness.group.config import Kind, Protocol
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

#: Two members share it. One alone, with handlers of 3 ms, does 1.6 times as much in the bare loop, with its one thread.
PER_S = 200
_WORK_MS = 3.0
#: The survivor's history, and the time in which the lag has to be gone.
_BEFORE_S, _AFTER_S = 12.0, 22.0
#: A quarter of a second of the flow: between the two loops' usual lags.
_USUAL = PER_S // 4


class Takeover(NamedTuple):
    """What was seen from the death on."""

    peak: float
    recovered_s: float


@benchmark("takeover")
def takeover(lab: Lab) -> list[Row]:
    """Sessions of 6 s: what the dead member leaves behind is 600 records."""
    kinds: tuple[Kind, ...] = ("careful", "holdfast")
    seen: dict[Kind, list[Takeover]] = {kind: [] for kind in kinds}
    for _ in range(1 if lab.quick else 3):
        for kind in kinds:
            # Cooperative: there the members say how long a session is, and the store's lease follows.
            seen[kind].append(one(lab.kafka, lab.redis.url if kind == "holdfast" else None, "cooperative", kind))
    peaks = {kind: median(each.peak for each in seen[kind]) for kind in kinds}
    times = {kind: median(each.recovered_s for each in seen[kind]) for kind in kinds}
    pairs = zip(seen["holdfast"], seen["careful"], strict=True)
    return [
        Row(what="careful loop, peak intake", figure=peaks["careful"], unit="/s", ratio=peaks["careful"] / PER_S),
        Row(
            what="app, peak intake, against the steady one",
            figure=peaks["holdfast"],
            unit="/s",
            ratio=peaks["holdfast"] / PER_S,
            goal=Goal(value=1.5, at_least=False),
            note="records started in the fullest second after the death",
        ),
        Row(what="careful loop, death to lag worked off", figure=times["careful"], unit=" s"),
        Row(
            what="app, death to lag worked off, against the careful loop",
            figure=times["holdfast"],
            unit=" s",
            ratio=median(ours.recovered_s / careful.recovered_s for ours, careful in pairs),
            goal=Goal(value=1.3, at_least=False),
            note="6 s of it are the session",
        ),
    ]


def one(server: KafkaServer | RocketMQServer, redis_url: str | None, protocol: Protocol, kind: Kind) -> Takeover:
    """One of two members is killed."""
    with (
        tempfile.TemporaryDirectory() as home,
        Field(server, redis_url, Path(home), protocol=protocol, seed=1, kind=kind, work_ms=_WORK_MS) as field,
    ):
        a, b = field.start("a"), field.start("b")
        field.flow(PER_S)
        field.until_spread(a, b)
        field.stay(_BEFORE_S)
        died_ns = time.monotonic_ns()
        field.kill(b)
        field.stay(_AFTER_S)
        outcome = field.finish()
    recovered_s = Behind(outcome.produced, outcome.entries).recovered_s(died_ns, _USUAL)
    if recovered_s is None:
        raise RuntimeError(f"{kind}: the lag was not worked off within {_AFTER_S} s")
    return Takeover(peak_per_s(starts(outcome.entries, died_ns)), recovered_s)
