"""What a record costs: processor time, as multiples of the bare loop's in the same run; then rates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.benchmarks import consumers
from tests.benchmarks.costs import cost
from tests.benchmarks.registry import Goal, Row, benchmark, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab, Speed

_BARE, _BY_POLLS = "bare consume(500) loop", "bare poll() loop"


class _Variant(NamedTuple):
    measure: Callable[..., Speed]
    records: int = 800_000
    #: Times the processor time of the loop in `against`.
    goal: float | None = None
    against: str = _BARE
    conf: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    store: bool = True


_APP = consumers.app
#: With the store's positions, or a claim on each record's key, in Redis; with a trivial handler.
_VARIANTS = {
    _BARE: _Variant(consumers.bare, store=False),
    # With librdkafka's default of 1,000 ms a loop that is quicker than the fetcher empties the queue and waits out that
    # time, again and again. This is what the interpreter could do.
    "the same, fetch.queue.backoff.ms=10": _Variant(consumers.bare, conf={"fetch.queue.backoff.ms": 10}, store=False),
    "bare loop that makes a record of each message": _Variant(consumers.bare_with_records, store=False),
    'app, in the polling thread, ordering="partition"': _Variant(
        partial(_APP, workers=0, ordering="partition"), goal=2
    ),
    'app, 16 workers, ordering="key"': _Variant(partial(_APP, workers=16), goal=2.5),
    "app, batch handler": _Variant(partial(_APP, workers=2, batch=True), goal=1.5),
    "app, key=record_key(), 16 workers": _Variant(partial(_APP, keys=True, workers=16), 100_000, goal=5),
    "app, async def that never waits": _Variant(partial(_APP, coroutine=True), 200_000, goal=3),
    "app, async def that waits 2 ms": _Variant(partial(_APP, coroutine=True, wait_s=0.002), 20_000, goal=15),
    "the same loop, KafkaConsumer, consume(500)": _Variant(consumers.loop, goal=1.5),
    _BY_POLLS: _Variant(consumers.bare_by_polls, store=False),
    "the same loop, KafkaConsumer, poll()": _Variant(
        partial(consumers.loop, by_polls=True), goal=1.5, against=_BY_POLLS
    ),
}


@benchmark("records")
def records(lab: Lab) -> list[Row]:
    """Each variant consumes a topic of its own size to its end."""

    def measure(variant: _Variant) -> Speed:
        some = variant.records // 8 if lab.quick else variant.records
        return lab.consume(variant.measure, some, store=variant.store, conf=variant.conf)  # type: ignore[no-any-return]

    wanted = [name for name in _VARIANTS if lab.wants(name)]
    wanted = [name for name in _VARIANTS if name in {*wanted, *(_VARIANTS[each].against for each in wanted)}]
    speeds = lab.in_turns(5, {name: partial(measure, _VARIANTS[name]) for name in wanted})
    processor, rates = [], []
    for name in wanted:
        variant = _VARIANTS[name]
        processor.append(
            cost(
                name if variant.against == _BARE else f"{name}, against the {variant.against}",
                speeds[name],
                against=None if name in (_BARE, _BY_POLLS) or variant.conf else speeds[variant.against],
                goal=None if variant.goal is None else Goal(value=variant.goal, at_least=False),
            )
        )
        per_s = spread([speed.per_s for speed in speeds[name]])
        rates.append(Row(what=name, figure=per_s.middle, unit="/s", spread=per_s))
    return [*processor, *rates]
