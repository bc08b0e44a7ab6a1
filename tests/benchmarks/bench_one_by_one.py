"""Records that come one by one: then a turn of the app, and a round trip to the store, are for few of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.consumers import app, bare
from tests.benchmarks.costs import cost
from tests.benchmarks.live import live
from tests.benchmarks.registry import benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab
    from tests.benchmarks.registry import Row

_PER_S = 500
_BARE = "one by one: bare loop"


@benchmark("one-by-one")
def one_by_one(lab: Lab) -> list[Row]:
    """Processor time a record, of consumers that begin at the end of the log."""
    records, rounds = (1_000, 1) if lab.quick else (8 * _PER_S, 5)
    topic = "one-by-one"
    lab.kafka.create_topic(topic, 8)
    apps = {
        "one by one: app, in the polling thread": partial(app, workers=0),
        "one by one: app, 16 workers": partial(app, workers=16),
    }

    def conf() -> dict[str, object]:
        return lab.client() | {"auto.offset.reset": "latest"}

    with live(lab.kafka.bootstrap, topic, _PER_S):
        seen = lab.in_turns(
            rounds,
            {_BARE: lambda: lab.in_child(bare, conf(), topic, records)}
            | {
                name: partial(lambda measure: lab.in_child(measure, conf(), topic, records, lab.emptied_redis()), each)
                for name, each in apps.items()
            },
        )
    note = f"of processor a record, {_PER_S} a second"
    return [
        cost(_BARE, seen[_BARE], note=note),
        *(cost(name, seen[name], against=seen[_BARE], note=note) for name in apps),
    ]
