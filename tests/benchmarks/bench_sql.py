"""Effects and marks in one PostgreSQL: `transaction=` against the same transactions by hand without any mark, against
the page's fence and row, and how long a takeover of many partitions takes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast.adapters.sql import SqlPositions
from tests.benchmarks.costs import cost
from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark, spread
from tests.benchmarks.sql_consumers import app, by_hand
from tests.harness.servers.postgres import PostgresServer, ask

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab, Speed

_TABLES = (
    "CREATE TABLE effects (at bigserial PRIMARY KEY, value bytea); "
    "CREATE TABLE fences (partition text PRIMARY KEY, epoch bigint NOT NULL); "
    "CREATE TABLE done (name text, at bigint, PRIMARY KEY (name, at))"
)
_PARTITIONS, _STRIPES = 1_000, 16
_FURTHER = (
    "INSERT INTO holdfast_position SELECT name, further, owner, free, epoch, born_ms, version, begun, watermark, done, "  # noqa: S608 - a number of ours
    f"again FROM holdfast_position, generate_series(1, {_STRIPES - 1}) AS each (further)"
)


@benchmark("sql")
def sql(lab: Lab) -> list[Row]:
    """Four workers; each record, or each batch of up to 500, is a transaction that inserts its rows."""
    few, many, rounds = (1_000, 5_000, 1) if lab.quick else (10_000, 100_000, 5)
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())

        def measured(measure: Any, records: int, **how: Any) -> Speed:
            url = server.database()
            ask(url, _TABLES)
            topic = lab.topic(records)
            speed: Speed = lab.in_child(partial(measure, **how), lab.client(), topic, records, url)
            return speed

        rows: list[Row] = []
        for batch, records, rate, share in ((False, few, 0.75, 1.5), (True, many, 0.97, 1.05)):
            what = "batches of 500" if batch else "single records"
            hand, ours, page = (
                f"{what}: {each}" for each in ("by hand, no mark", "transaction=", "by hand, fence and row")
            )
            measures = {
                hand: partial(measured, by_hand, records, batch=batch),
                ours: partial(measured, app, records, batch=batch),
            }
            if not batch:
                measures[page] = partial(measured, by_hand, records, batch=batch, fenced=True)
            seen = lab.in_turns(rounds, measures)
            rows += [_rate(name, seen[name]) for name in seen if name != ours]
            rows.append(_rate(ours, seen[ours], seen[hand], Goal(value=rate)))
            if not batch:
                rows.append(_rate(f"{ours}, against fence and row", seen[ours], seen[page], Goal(value=2)))
            rows.append(cost(hand, seen[hand]))
            rows.append(cost(ours, seen[ours], against=seen[hand], goal=Goal(value=share, at_least=False)))
        rows.append(_takeover(server, 2 if lab.quick else 5))
    return rows


def _rate(what: str, own: list[Speed], against: list[Speed] | None = None, goal: Goal | None = None) -> Row:
    return Row(
        what=what,
        figure=typical(own).per_s,
        unit="/s",
        ratio=None if against is None else ratio(own, against),
        goal=goal,
    )


def _takeover(server: PostgresServer, rounds: int) -> Row:
    """Each has as many rows as handlers were in transactions at the same time."""
    url = server.database()
    stores = [SqlPositions.from_url(url, create=True, timeout_s=30.0) for _ in range(2)]
    names = [f"g/orders/1/{number}" for number in range(_PARTITIONS)]
    sessions = [store.begin(0.0) for store in stores]
    sessions[0].acquire(names)
    ask(url, _FURTHER)
    took = []
    for number in range(rounds):
        began = time.perf_counter()
        replies = sessions[1 - number % 2].acquire(names)
        took.append(time.perf_counter() - began)
        assert len(replies) == _PARTITIONS
    for store in stores:
        store.close()
    return Row(
        what=f"taking {_PARTITIONS} partitions of {_STRIPES} rows over",
        figure=median(took),
        unit=" s",
        spread=spread(took),
        goal=Goal(value=0.5, at_least=False, unit=" s"),
    )
