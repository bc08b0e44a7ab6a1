"""What grows with what: partitions, processes, records in flight, and keys that are known."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks import consumers
from tests.benchmarks.bench_memory import bytes_a_key
from tests.benchmarks.costs import cost
from tests.benchmarks.lab import PARTITIONS, Speed
from tests.benchmarks.registry import Goal, Row, benchmark, spread
from tests.benchmarks.scale import in_flight, processes
from tests.benchmarks.scale.growth import DAY_S, grown, kept
from tests.benchmarks.scale.known import Both, KnownKeys
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.lab import Lab
    from tests.benchmarks.scale.in_flight import Memory

_CONSUMERS: dict[str, Callable[..., Speed]] = {
    "bare consume(500) loop": consumers.bare,
    "app, in the polling thread": partial(consumers.app, workers=0, ordering="partition"),
    'app, 16 workers, ordering="key"': partial(consumers.app, workers=16),
    "app, key=record_key(), 16 workers": partial(consumers.app, workers=16, keys=True),
}
_KEYS_A_DAY = 10_000_000


@benchmark("scale")
def scale(lab: Lab) -> list[Row]:
    """Each part against its own small one, in turns."""
    parts = {
        "partitions": _partitions,
        "processes": _processes,
        "in flight": _in_flight,
        "known keys": _known_keys,
        "growth": _growth,
    }
    return [row for name, part in parts.items() if lab.wants(name) for row in part(lab)]


def _partitions(lab: Lab) -> list[Row]:
    """The same records in few partitions, and in many."""
    many, records = (100, 20_000) if lab.quick else (1_000, 400_000)

    def measure(consume: Callable[..., Speed], partitions: int) -> Speed:
        return lab.consume(consume, records, partitions, store=consume is not consumers.bare)  # type: ignore[no-any-return]

    speeds = lab.in_turns(
        3,
        {
            _of(name, partitions): partial(measure, consume, partitions)
            for name, consume in _CONSUMERS.items()
            for partitions in (PARTITIONS, many)
        },
    )
    rows = []
    for name in _CONSUMERS:
        few, own = speeds[_of(name, PARTITIONS)], speeds[_of(name, many)]
        goal = None if name.startswith("bare") else Goal(value=1.25, at_least=False)
        rows += [cost(_of(name, PARTITIONS), few), cost(_of(name, many), own, against=few, goal=goal)]
    return rows


def _processes(lab: Lab) -> list[Row]:
    """Members of one group on one machine, which they share with its broker and its store."""
    counts, records = ((1, 2), 20_000) if lab.quick else ((1, 2, 4), 800_000)
    names = {count: f"`holdfast run --processes {count}`, the group" for count in counts}

    def measure(count: int) -> Speed:
        return processes.run(lab, count, records, lab.emptied_redis())

    speeds = lab.in_turns(3, {name: partial(measure, count) for count, name in names.items()})
    rows = []
    for count, name in names.items():
        per_s = [each.per_s for each in speeds[name]]
        by_round = [own / one.per_s for own, one in zip(per_s, speeds[names[1]], strict=True)]
        rows += [
            Row(
                what=name,
                figure=spread(per_s).middle,
                unit="/s",
                ratio=None if count == 1 else spread(by_round).middle,
                spread=spread(per_s if count == 1 else by_round),
                note="records of all members",
            ),
            cost(name, speeds[name], against=None if count == 1 else speeds[names[1]]),
        ]
    return rows


def _in_flight(lab: Lab) -> list[Row]:
    """Records whose handlers wait, and those behind them."""
    few, many = (500, 5_000) if lab.quick else (10_000, 100_000)

    looks: dict[str, Callable[[int], Memory]] = {
        "a list of the client's messages": partial(lab.consume, in_flight.of_messages, store=False),
        "app, 16 workers, in flight": partial(lab.consume, in_flight.of_app),
        "app, key=record_key(), in flight": partial(lab.consume, partial(in_flight.of_app, keys=True)),
    }
    rows = []
    for name, look in looks.items():
        small, large = look(few), look(many)
        each = in_flight.bytes_a_record(few, small, many, large)
        rows += [
            Row(what=name, figure=each, unit=" B", note=f"a record of 100 B and its key, by {few:,} and {many:,}"),
            Row(what=f"{name}, {many:,}", figure=large.grown / 2**20, unit=" MiB", note="resident, above its start"),
        ]
    return rows


def _known_keys(lab: Lab) -> list[Row]:
    """Claim and finish of new keys beside few that are done, and beside many."""
    # A table of Redis's that outgrows a power of two is moved meanwhile. Here none does.
    few, many, new = (1_000, 20_000, 500) if lab.quick else (10_000, 1_000_000, 5_000)
    return [row for hashed in (False, True) for row in _beside(lab, few, many, new, hashed=hashed)]


def _beside(lab: Lab, few: int, many: int, new: int, *, hashed: bool) -> list[Row]:
    """Each in a Redis of its own."""
    seen: dict[int, list[Both]] = {few: [], many: []}
    with RedisServer() as small, RedisServer() as large:
        stores = {
            few: KnownKeys(small, hash_keys=hashed, expected=many),
            many: KnownKeys(large, hash_keys=hashed, expected=many),
        }
        stores[many].until(many)

        def measure(known: int) -> Speed:
            if known == few:
                stores[few].until(few)
            seen[known].append(stores[known].more(new))
            return seen[known][-1].ours

        names = {known: f"claim and finish, {'digest' if hashed else 'plain'}, {known:,} known" for known in stores}
        lab.in_turns(9, {name: partial(measure, known) for known, name in names.items()})
    rows = []
    for side, note in (("ours", "of our processor a key"), ("redis", "of Redis's processor a key")):
        of_few, of_many = ([getattr(both, side) for both in seen[known]] for known in (few, many))
        rows += [cost(names[few], of_few, note=note), cost(names[many], of_many, against=of_few, note=note)]
    return rows


def _growth(lab: Lab) -> list[Row]:
    """A tenth of a day's keys is in Redis, the rest computed: a key costs the same in a store that expects it. And
    whether it is gone after its window: a flow over three short ones leaves what one of them brings."""
    measured, a_window, window_s = (10_000, 2_000, 1.0) if lab.quick else (_KEYS_A_DAY // 10, 50_000, 10.0)
    rows = []
    for hashed in (False, True):
        kind = "digest" if hashed else "plain"
        each = bytes_a_key(lab, measured, hash_keys=hashed)
        rows += [
            Row(
                what=f"Redis, {_KEYS_A_DAY:,} {kind} keys a day, after {days:g} days, window_s={remembered_s:.0f}",
                figure=grown(each, _KEYS_A_DAY, days=days, window_s=remembered_s) / 1e9,
                unit=" GB",
                note=f"computed from {measured:,} keys, {each:.0f} B each",
            )
            for days, remembered_s in ((1, DAY_S), (7, 7 * DAY_S))
        ]
        found = kept(lab, hash_keys=hashed, keys=a_window, window_s=window_s, windows=3)
        rows.append(
            Row(
                what=f"{a_window:,} {kind} keys a window: after three, against what one brings",
                figure=found / 2**20,
                unit=" MiB",
                ratio=found / a_window / bytes_a_key(lab, a_window, hash_keys=hashed),
                note=f"windows of {window_s:g} s",
            )
        )
    return rows


def _of(name: str, partitions: int) -> str:
    return f"{name}, {partitions:,} partitions"
