"""`idempotent_sink`'s dedup step beside Spark's own `dropDuplicatesWithinWatermark`: in a JVM of its own."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks.on_spark.dedup import HDFS, OURS, PLAIN, ROCKSDB, measure
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab
    from tests.benchmarks.on_spark.dedup import Measured

_PATIENCE_S = 3600.0
#: Against the HDFS and the RocksDB state store.
_GOALS = {OURS: (0.9, 1.5), PLAIN: (0.8, None)}
_NAMES = {
    HDFS: "dropDuplicatesWithinWatermark, HDFS state store",
    ROCKSDB: "dropDuplicatesWithinWatermark, RocksDB state store",
    OURS: "idempotent_sink, hash_keys=True",
    PLAIN: "idempotent_sink, plain keys",
}


@benchmark("spark")
def spark(lab: Lab) -> list[Row]:
    """A stream of one batch, each key once; what is written goes nowhere, on both sides."""
    rows, rounds = (50_000, 1) if lab.quick else (1_000_000, 5)
    sizes = (10_000, 50_000) if lab.quick else (100_000, 1_000_000, 5_000_000)
    ways = (HDFS, ROCKSDB, OURS, PLAIN)
    found: list[Measured] = lab.in_child(measure, lab.redis.url, {rows: rounds}, ways, patience_s=_PATIENCE_S)
    of = {way: [each for each in found if each.way == way] for way in _NAMES}
    table = [Row(what=_NAMES[way], figure=_rate(of[way]), unit="/s", note=_cpu(of[way])) for way in (HDFS, ROCKSDB)]
    for way, goals in _GOALS.items():
        for other, goal in zip((HDFS, ROCKSDB), goals, strict=True):
            table.append(
                Row(
                    what=f"{_NAMES[way]}, against {'HDFS' if other == HDFS else 'RocksDB'}",
                    figure=_rate(of[way]),
                    unit="/s",
                    ratio=median(one.per_s / two.per_s for one, two in zip(of[way], of[other], strict=True)),
                    goal=None if goal is None else Goal(value=goal),
                    note=_cpu(of[way]),
                )
            )
        table.append(Row(what=f"a key that the sink has written, {way}", figure=of[way][-1].key_bytes, unit=" B"))
    times = dict.fromkeys(sizes, 1 if lab.quick else 2)
    growing = lab.in_child(measure, lab.redis.url, times, (OURS,), max(sizes), patience_s=_PATIENCE_S)
    for size in sizes:
        us = min(each.elapsed_s / each.rows * 1e6 for each in growing if each.rows == size)
        table.append(Row(what=f"{_NAMES[OURS]}, {size:,} rows", figure=us, unit=" us", note="a row, the best of two"))
    return table


def _rate(found: list[Measured]) -> float:
    return median(each.per_s for each in found)


def _cpu(found: list[Measured]) -> str:
    return f"{median(each.cpu_us for each in found):.1f} us of processor a row, Spark's and Redis'"
