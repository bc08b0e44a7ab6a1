"""What it costs to tell what one does: apps and loops with an audit into files, against the same without."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import Audit, FileEvents
from tests.benchmarks import consumers
from tests.benchmarks.lab import ratio, typical
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab, Speed


class _Case(NamedTuple):
    what: str
    measure: Callable[..., Speed]
    records: int
    audit: dict[str, Any]
    goal: float | None


_KEYED = partial(consumers.app, keys=True, workers=16)
_CASES = (
    _Case('app, 16 workers, ordering="key"', partial(consumers.app, workers=16), 800_000, {}, 0.95),
    _Case(
        'app, in the polling thread, ordering="partition"',
        partial(consumers.app, workers=0, ordering="partition"),
        800_000,
        {},
        0.95,
    ),
    _Case("app, batch handler", partial(consumers.app, batch=True), 800_000, {}, 0.95),
    _Case("app, async def that never waits", partial(consumers.app, coroutine=True), 100_000, {}, 0.95),
    _Case("the same loop, KafkaConsumer, poll()", partial(consumers.loop, by_polls=True), 800_000, {}, 0.95),
    _Case("app, key=record_key()", _KEYED, 200_000, {}, 0.95),
    _Case('app, key=record_key(), keys="hashed"', _KEYED, 200_000, {"keys": "hashed"}, None),
)


@benchmark("audit")
def audit(lab: Lab) -> list[Row]:
    """A trivial handler."""
    rows, url = [], lab.redis.url
    for case in _CASES:
        records, rounds = (case.records // 8, 1) if lab.quick else (case.records, 3)
        topic = lab.topic(records)
        with tempfile.TemporaryDirectory() as folder:
            told = partial(case.measure, audit=Audit(FileEvents(folder), **case.audit))
            speeds = lab.in_turns(
                rounds,
                {
                    "without": partial(_in_child, lab, case.measure, topic, records, url),
                    "with": partial(_in_child, lab, told, topic, records, url),
                },
            )
        speed, plain = typical(speeds["with"]), typical(speeds["without"])
        rows.append(
            Row(
                what=f"{case.what}, with an audit against without",
                figure=speed.per_s,
                unit="/s",
                ratio=ratio(speeds["with"], speeds["without"]),
                goal=None if case.goal is None else Goal(value=case.goal),
                note=f"{speed.cpu_us:.1f} us of processor a record; {plain.cpu_us:.1f} without",
            )
        )
    return rows


def _in_child(lab: Lab, measure: Callable[..., Speed], *args: object) -> Speed:
    return lab.in_child(measure, lab.client(), *args)  # type: ignore[no-any-return]
