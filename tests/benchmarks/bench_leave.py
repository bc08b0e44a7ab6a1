"""A member is asked to leave (SIGTERM) under a steady flow: how long until another starts a record of what it had."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.registry import Goal, Row, benchmark, spread
from tests.harness.group.config import KAFKA
from tests.harness.group.field import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.lab import Lab
    from tests.harness.group.config import Kind, Protocol
    from tests.harness.group.ledger import Entry

_PER_S = 300
#: Between two of a member, at most: who stays hears of a leave with its next one. Without a wait by chance, its time
#: hangs on how long the member before took to join.
_HEARTBEAT_S = 1.0
_KINDS: tuple[Kind, ...] = ("careful", "holdfast")


@benchmark("leave")
def leave(lab: Lab) -> list[Row]:
    """Each of two members twice a round, on each protocol; the loop and the app in turns."""
    rows, chance = [], Random(1)
    for protocol in KAFKA:
        seen: dict[Kind, list[float]] = {kind: [] for kind in _KINDS}
        for _ in range(1 if lab.quick else 5):
            stays = [chance.uniform(0, _HEARTBEAT_S) for _ in range(2)]
            for kind in _KINDS:
                seen[kind] += _one(lab, kind, protocol, stays)
        careful, ours = median(seen["careful"]), median(seen["holdfast"])
        rows += [
            Row(
                what=f"careful loop, {protocol}, SIGTERM to the next owner's first record",
                figure=careful,
                unit=" s",
                spread=spread(seen["careful"]),
            ),
            Row(
                what=f"app, {protocol}, the same, beyond the careful loop",
                figure=ours - careful,
                unit=" s",
                goal=Goal(value=0.6, at_least=False, unit=" s"),
                note=f"{ours:.2f} s in all, {min(seen['holdfast']):.2f} to {max(seen['holdfast']):.2f} s",
            ),
        ]
    return rows


def _one(lab: Lab, kind: Kind, protocol: Protocol, stays: Sequence[float]) -> list[float]:
    """Seconds, of members that leave one after the other, each some seconds after all was spread, and come back."""
    url = lab.redis.url if kind == "holdfast" else None
    with (
        tempfile.TemporaryDirectory() as home,
        Field(lab.kafka, url, Path(home), protocol=protocol, seed=1, kind=kind, work_ms=1.0) as field,
    ):
        left: list[tuple[int, int]] = []
        a, b = field.start("a"), field.start("b")
        field.flow(_PER_S)
        field.until_spread(a, b)
        for stay in stays:
            field.stay(stay)
            left.append((time.monotonic_ns(), a.pid))
            a.may_end = True
            a.signal(signal.SIGTERM)
            field.until_spread(b)
            field.until_ended(a)
            a, b = b, field.start(a.name)
            field.until_spread(a, b)
        entries = field.finish().entries
    return [_until_taken_over(entries, at_ns, pid) for at_ns, pid in left]


def _until_taken_over(entries: list[Entry], at_ns: int, pid: int) -> float:
    """From the signal to the first record that another process starts in a partition which that one had."""
    starts = sorted((each for each in entries if each.what == "start"), key=lambda each: each.at_ns)
    had: dict[tuple[str, int], int] = {}
    for each in starts:
        if each.at_ns <= at_ns:
            had[each.where[:2]] = each.pid
        elif had.get(each.where[:2]) == pid and each.pid != pid:
            return (each.at_ns - at_ns) / 1e9
    raise RuntimeError("nobody took over")
