"""What is done above a record that does not end: its owner's memory, a takeover, and the longest script in Redis."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast import RedisClaims
from holdfast.dedup.claims import Acquired, LetGo, Mark
from holdfast.plugin.engine.partition.ledger import Ledger
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_NAME = "orders-0"
_BATCH = 500
_PAGE_BYTES = 4096
#: Calls of the store that last longer are looked at, in microseconds.
_SLOW_US = 100


class _Seen(NamedTuple):
    """In one process."""

    owner_mb: float
    takeover_s: float


@benchmark("ahead")
def ahead(lab: Lab) -> list[Row]:
    """All offsets, and each second one: of transactions of one record, whose markers are offsets too."""
    count, rows = 1_000_000 if lab.quick else 10_000_000, []
    for step, called in ((1, "all offsets"), (2, "each second offset")):
        with lab.redis.client() as client:
            client.flushall()
            client.config_set("slowlog-log-slower-than", _SLOW_US)
            client.config_set("slowlog-max-len", 100_000)
            client.slowlog_reset()
            seen: _Seen = lab.in_child(_owned, lab.redis.url, count, step)
            longest_ms = max((each["duration"] for each in client.slowlog_get(100_000)), default=0) / 1000
            client.flushall()
        done = f"{count:,} done above the watermark, {called}"
        rows += [
            Row(what=f"{done}: its owner", figure=seen.owner_mb, unit=" MB", goal=_at_most(20, " MB")),
            Row(what=f"{done}: the next owner's acquire", figure=seen.takeover_s, unit=" s", goal=_at_most(0.2, " s")),
            Row(what=f"{done}: the longest call in Redis", figure=longest_ms, unit=" ms", goal=_at_most(20, " ms")),
        ]
    return rows


def _at_most(value: float, unit: str) -> Goal:
    return Goal(value=value, at_least=False, unit=unit)


def _owned(url: str, count: int, step: int) -> _Seen:
    """One owner ends everything but the first record, and lets go; another one takes over."""
    store = RedisClaims.from_url(url, namespace="ahead")
    store.connect()
    session, ledger = store.begin(60.0), Ledger(0)
    [reply] = session.acquire([_NAME])
    assert isinstance(reply, Acquired)
    ledger.polled(0)
    session.mark([Mark(_NAME, reply.epoch, 0, range(1, 1 + step, step))])
    ledger.polled_all(range(1, 2))
    ledger.settle_all(range(1, 2))
    before = _resident_mb()
    for first in range(1 + step, 1 + count * step, _BATCH * step):
        offsets = range(first, first + _BATCH * step, step)
        for each in [offsets] if step == 1 else [range(offset, offset + 1) for offset in offsets]:
            ledger.polled_all(each)
            ledger.settle_all(each)
        session.mark([Mark(_NAME, reply.epoch, 0, offsets)])
    owner_mb = _resident_mb() - before
    session.let_go([LetGo(_NAME, reply.epoch, [0])])
    heir = store.begin(60.0)
    began = time.perf_counter()
    [found] = heir.acquire([_NAME])
    assert isinstance(found, Acquired)
    Ledger(found.watermark, found.done)
    takeover_s = time.perf_counter() - began
    for each_session in (session, heir):
        each_session.end()
    return _Seen(owner_mb, takeover_s)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6
