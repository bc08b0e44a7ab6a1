"""How long partitions stand still: one of two members leaves, comes back, and is killed, under a steady flow; and how
long a first start takes that finds a backlog, while producers go on."""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.benchmarks.registry import Goal, Row, benchmark
from tests.harness.group.field import Field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.lab import Lab
    from tests.harness.group.config import Kind, Protocol
    from tests.harness.group.ledger import Entry

_PER_S = 200
_S = 1_000_000_000
#: Both members know the flow by then; and what an event does to it is over.
_BEFORE_S, _AFTER_S, _AFTER_DEATH_S = 12.0, 8.0, 22.0
#: The broker's, in the classic protocols the client's as well.
_SESSION_S = 6.0
_PROTOCOLS: tuple[Protocol, ...] = ("eager", "cooperative", "consumer")


class Pauses(NamedTuple):
    """Of the partition that stood still for longest, seconds."""

    leave: float
    join: float
    death: float


class Variant(NamedTuple):
    what: str
    kind: Kind
    ramp: bool


_VARIANTS = (
    Variant("careful loop", "careful", ramp=True),
    Variant("app", "holdfast", ramp=True),
    Variant("app, ramp=None", "holdfast", ramp=False),
)


@benchmark("pauses")
def pauses(lab: Lab) -> list[Row]:
    """Eight partitions, 200 records a second, handlers of 3 ms, sessions of 6 s."""
    rows = []
    for protocol in _PROTOCOLS[-1:] if lab.quick else _PROTOCOLS:
        for variant in _VARIANTS:
            seen = one(lab, protocol, variant)
            ours = variant.kind == "holdfast"
            for what, figure in seen._asdict().items():
                bound = _SESSION_S if what == "death" else 0.0
                rows.append(
                    Row(
                        what=f"{variant.what}, {protocol}, {what}: longest pause of a partition",
                        figure=figure,
                        unit=" s",
                        goal=Goal(value=bound + 1.0, at_least=False, unit=" s") if ours else None,
                        note="6 s of it are the session" if bound else "",
                    )
                )
    return rows


def one(lab: Lab, protocol: Protocol, variant: Variant) -> Pauses:
    """All three events, one after the other."""
    redis_url = lab.redis.url if variant.kind == "holdfast" else None
    with (
        tempfile.TemporaryDirectory() as home,
        Field(
            lab.kafka,
            redis_url,
            Path(home),
            protocol=protocol,
            seed=1,
            kind=variant.kind,
            config={"ramp": variant.ramp},
        ) as field,
    ):
        a, b = field.start("a"), field.start("b")
        field.flow(_PER_S)
        field.until_spread(a, b)
        field.stay(_BEFORE_S)
        c = field.ready("c")  # what Python takes to start is no part of a join
        times = [time.monotonic_ns()]
        field.stop(b)
        field.stay(_AFTER_S)
        times.append(time.monotonic_ns())
        field.let_begin(c)
        field.until_spread(a, c)
        field.stay(_BEFORE_S)
        times.append(time.monotonic_ns())
        field.kill(c)
        field.stay(_AFTER_DEATH_S)
        times.append(time.monotonic_ns())
        outcome = field.finish()
    return Pauses(*(longest_s(outcome.entries, *each) for each in pairwise(times)))


def longest_s(entries: Iterable[Entry], since_ns: int, until_ns: int) -> float:
    """The longest time in which a partition had no record begun, of all partitions."""
    last: dict[tuple[str, int], int] = {}
    longest = 0
    for each in sorted(entries):
        if each.what != "start":
            continue
        where = each.where[:2]
        if since_ns <= each.at_ns <= until_ns:
            longest = max(longest, each.at_ns - max(last.get(where, since_ns), since_ns))
        last[where] = each.at_ns
    return longest / _S
