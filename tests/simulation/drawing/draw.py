"""Draw: a world from a seed. A run itself draws nothing from it but the scheduler's seed.

The odds follow earlier findings: cut runs and parked lanes need keys that repeat, about as many of them as there are
records; starved kinds need handlers of several kinds; a lane that is not woken needs handlers that hang.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from holdfast.plugin.handlers import BatchOf
from holdfast.plugin.retrying.letter_limit import DeadLetterLimit
from holdfast.plugin.settings import Ordering, Ramp, Settings
from tests.simulation.drawing.database import database
from tests.simulation.drawing.elsewhere import moved
from tests.simulation.drawing.hot import hot
from tests.simulation.drawing.mishaps import expired, foreign, mishaps, retention, seeks, slips
from tests.simulation.drawing.options import (
    HANGS_S,
    failing_by_record,
    far_ahead,
    large_letters,
    options,
    retry_topics,
    slow_handlers,
)
from tests.simulation.drawing.world import (
    LEASED,
    Fault,
    FaultKind,
    Handling,
    Kind,
    MachineClock,
    Planned,
    Protocol,
    StoreKind,
    Topic,
    World,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

_KINDS: Sequence[Sequence[Kind]] = (
    ("plain",),
    ("async",),
    ("batch",),
    ("async batch",),
    ("plain", "async"),
    ("plain", "batch"),
    ("async", "batch"),
    ("plain", "async", "batch"),
    ("plain", "batch", "async batch"),
)
#: The weight of each kind of fault.
_FAULTS: dict[FaultKind, int] = {
    "crash": 2,
    "stall": 2,
    "term": 4,
    "join": 4,
    "lose": 2,
    "silent": 2,
    "deaf": 2,
    "slow": 2,
    "refuse": 2,
    "letters": 1,
    "lossy": 2,
    "forbid": 1,
    "failover": 1,
    "empty": 1,
    "grow": 1,
    "markers": 1,
    "compact": 1,
    "reset": 1,
}
#: Faults during which calls of the store may have no answer.
_STORE_AWAY: frozenset[FaultKind] = frozenset({"silent", "deaf", "slow", "lossy", "forbid"})
_STORES: Sequence[StoreKind] = (*("specification",) * 6, "scripts", "digests")
_STORE_DOWN: Sequence[Literal["pause", "open"]] = (*("pause",) * 9, "open")


def draw(seed: int, *, with_database: bool = False) -> World:
    """The world of that seed, the same in every process.

    Args:
        seed: any number.
        with_database: True = with a database of effects, wherever there may be one; False = in some worlds.
    """
    chance = random.Random(f"holdfast {seed}")  # text is seeded by its bytes, and not by its hash
    pick = chance.choice
    kinds = pick(_KINDS)
    records = pick([200, 200, 200, 400, 600])
    timeout_s = pick([None, None, 0.3])
    settings = _settings(chance, timeout_s)
    settings = replace(settings, async_workers=_apart("coroutines", seed).choice([1, 4, 32, 256]))
    if timeout_s or any("async" in kind for kind in kinds):
        settings = replace(settings, workers=max(1, settings.workers), handler_timeout_s=timeout_s)
    partitions = pick([1, 2, 4, 4, 6])
    topics = tuple(Topic(name=f"t{at}", partitions=max(1, partitions // len(kinds))) for at in range(len(kinds)))
    keyed = pick([0, 0, 1, 1, 2])  # no handler, all handlers, the first handler
    handlers = tuple(
        _handling(chance, kind, topic, keyed=keyed == 1 or (keyed == 2 and at == 0))
        for at, (kind, topic) in enumerate(zip(kinds, topics, strict=True))
    )
    faults = tuple(sorted((_fault(chance) for _ in range(pick([0, 1, 2, 4, 8]))), key=lambda each: each.at_s))
    world = World(
        seed=chance.getrandbits(32),
        yield_odds=pick([0.0, 0.01, 0.1]),
        protocol=pick([*get_args(Protocol), "cooperative"]),
        static=_apart("static", seed).random() < 1 / 6,
        store=_apart("store", seed).choice(_STORES),
        members=pick([1, 2, 3]),
        store_timeout_s=pick([0.1, 0.3, 1.0]),
        clocks=tuple(_clock(chance) for _ in range(pick([0, 0, 2, 3]))),
        settings=settings,
        handlers=handlers,
        topics=topics,
        records=_records(
            chance,
            records,
            topics,
            handlers,
            hangs=pick([0.0, 0.01]) if timeout_s else 0.0,
            longest_s=timeout_s / 4 if timeout_s else 1.0,
        ),
        faults=faults,
    )
    world = moved(world, _apart("broker", seed))
    if world.broker not in LEASED and world.loop is None:
        world = options(_apart("options", seed), world)
    if world.loop is None:
        world = replace(world, around=_apart("around", seed).random() < 1 / 6)
    world = retry_topics(_apart("retry topics", seed), world)
    if world.loop is None:
        world = failing_by_record(_apart("failing by record", seed), world)
    world = slow_handlers(_apart("slow handlers", seed), world)
    world = large_letters(_apart("large letters", seed), world)
    world = far_ahead(_apart("bound ahead", seed), world)
    world = _noted_resets(mishaps(_apart("mishaps", seed), world))
    world = retention(_apart("retention", seed), slips(_apart("slips", seed), world))
    world = expired(_apart("expired", seed), foreign(_apart("foreign", seed), world))
    world = _noted_resets(seeks(_apart("seeks", seed), world))
    world = hot(_apart("hot", seed), world)
    return database(_apart("database", seed), world, only=with_database)


def _noted_resets(world: World) -> World:
    """Take out faults during which the store has no answer: an open member cannot note a reset then."""
    resets = any(each.kind == "reset" for each in world.faults) or (world.loop is not None and world.loop.seeks > 0)
    if world.settings.store_down != "open" or not resets:
        return world
    return replace(world, faults=tuple(each for each in world.faults if each.kind not in _STORE_AWAY))


def _apart(what: str, seed: int) -> random.Random:
    """A stream of chance of its own, for options that were added later: all else of the world stays the same."""
    return random.Random(f"holdfast {what} {seed}")


def _settings(chance: random.Random, timeout_s: float | None) -> Settings:
    pick = chance.choice
    return Settings(
        workers=pick([0, 1, 2, 4, 8]),
        ordering=pick(get_args(Ordering)),
        poll_batch=pick([7, 50, 500]),
        max_in_flight=pick([30, 4000]),
        max_in_flight_bytes=pick([1_000, 64 * 1024 * 1024, 64 * 1024 * 1024]),
        mark_batch=pick([1, 3, 20, 500]),
        drain_timeout_s=pick([0.0, 0.2, 5.0, 5.0]),
        handler_grace_s=0.1,
        on_handler_timeout="dead_letter" if timeout_s is None else pick(["dead_letter", "dead_letter", "stop"]),
        linger_timeout_s=pick([0.0, 1.0, 1.0]),
        commit_interval_s=pick([0.05, 0.2, 1.0]),
        commit_refresh_s=pick([1.0, 300.0]),
        status_interval_s=pick([0.0, 0.5]),
        missing_key=pick(["error", "position"]),
        store_down=pick(_STORE_DOWN),
        ramp=pick([None, None, Ramp(floor_per_s=50.0, over_s=1.0), Ramp(floor_per_s=200.0, headroom=2.0, over_s=0.3)]),
    )


def _handling(chance: random.Random, kind: Kind, topic: Topic, *, keyed: bool) -> Handling:
    pick = chance.choice
    return Handling(
        name=f"{kind} {topic.name}",
        topics=(topic.name,),
        kind=kind,
        keyed=keyed,
        shared_scope=pick([False, False, False, True]),
        attempts=pick([1, 3, 3]),
        wait_initial_s=pick([0.01, 0.01, 0.1]),
        jitter_s=pick([0.0, 0.01]),
        limit=pick([None, None, None, DeadLetterLimit(in_a_row=3, pause_s=0.5)]),
        batch=BatchOf(records=pick([1, 5, 50]), wait_s=pick([0.0, 0.02])) if "batch" in kind else None,
    )


def _clock(chance: random.Random) -> MachineClock:
    return MachineClock(offset_s=chance.uniform(-100.0, 100.0), rate=chance.choice([1.0, 1.0, 0.98, 1.02]))


def _fault(chance: random.Random) -> Fault:
    kind = chance.choices(list(_FAULTS), weights=list(_FAULTS.values()))[0]
    for_s = {
        "crash": chance.random(),
        "stall": chance.choice([0.05, 1.0, 2.0, 3.5]),
        "silent": chance.choice([0.01, 0.1, 0.3, 1.0, 2.5]),
        "deaf": chance.choice([0.01, 0.1, 0.3, 1.0, 2.5]),
        "slow": chance.random(),
        "letters": chance.random() * 2,
        "lossy": chance.random() * 2,
        "forbid": chance.choice([0.1, 1.0, 2.5]),
        "failover": chance.random() * 0.3,
    }.get(kind, 0.0)
    return Fault(
        at_s=chance.random() * 3,
        kind=kind,
        member=chance.randrange(8),
        for_s=for_s,
        count=chance.randrange(1, 4) if kind == "refuse" else chance.choice([1, 1, 1, 2]),
        amount=0.3 if kind in ("slow", "lossy") else chance.random(),
        place=chance.randrange(8),
    )


def _records(
    chance: random.Random,
    count: int,
    topics: Sequence[Topic],
    handlers: Sequence[Handling],
    *,
    hangs: float,
    longest_s: float,
) -> tuple[Planned, ...]:
    pick = chance.choice
    places = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    keyed = {topic: handler.keyed for handler in handlers for topic in handler.topics}
    # A record that always fails would keep a handler at its limit paused for ever.
    limited = any(handler.limit is not None for handler in handlers)
    lanes, units = pick([3, 20, count]), pick([12, count, count, 10**9])
    work, failing = pick(["none", "short", "mixed", "slow"]), pick([0.0, 0.0, 0.0, 0.05, 0.3])
    keyless, missing, bursts = pick([0.0, 0.0, 0.1]), pick([0.0, 0.0, 0.0, 0.01]), pick([1, 1, 5])
    steadily, broken = pick([0.0, 0.0, 2.0]), pick([0.0, 0.0, 0.0, 0.02])
    if limited:
        missing = broken = 0.0
    records = []
    for at in range(count):
        topic, number = pick(places)
        takes_s = _takes(chance, work)
        hung = chance.random() < hangs
        unit = None if not keyed[topic] or chance.random() < missing else f"b{chance.randrange(units)}"
        records.append(
            Planned(
                at_s=round(at * bursts // count * 0.4 + at * steadily / count, 4),
                topic=topic,
                partition=number,
                key=None if chance.random() < keyless else f"k{chance.randrange(lanes)}",
                unit=unit,
                takes_s=round(min(takes_s, longest_s), 6),
                fails=pick([1, 2, 3, 3]) if chance.random() < failing else 0,
                hangs=int(hung),
                hang_s=round(chance.random() * HANGS_S, 4) if hung else 0.0,
                heeds=pick([True, False]) if hung else True,
                unreadable=chance.random() < broken,
            )
        )
    return tuple(records)


def _takes(chance: random.Random, work: str) -> float:
    r = chance.random()
    if work == "none":
        return 0.0 if r < 0.95 else r * 0.003
    if work == "short":
        return r * 0.005
    if work == "mixed":
        return r * 1e-4 if r < 0.9 else r * 0.05
    return r * 0.002 if r < 0.97 else r * 0.8
