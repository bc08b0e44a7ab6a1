"""Mishaps: further faults of some worlds, beside those of `draw`, from a stream of chance of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.brokers.kafka_slips import SLIP_KINDS
from tests.simulation.drawing.world import LEASED, Fault

if TYPE_CHECKING:
    import random

    from tests.simulation.brokers.kafka_slips import SlipKind
    from tests.simulation.drawing.world import BrokerKind, FaultKind, World

#: The part of worlds that have some; and the weight of each kind.
_SOME = 0.4
_MISHAPS: dict[FaultKind, int] = {
    "remake": 3,
    "leaderless": 2,
    "resend": 2,
    "cut": 3,
    "late": 3,
    "twice": 2,
    "interrupt": 3,
    "term": 1,
}


#: Kind of broker -> faults that cannot happen there.
_NOT: dict[BrokerKind, frozenset[FaultKind]] = {
    "leased": frozenset({"remake", "leaderless"}),
    "pushed": frozenset({"leaderless", "cut", "late", "twice"}),
}


#: The part of Kafka's worlds in which another program commits the group's offsets.
_FOREIGN = 0.15
#: The part of loops without threads that seek.
_SEEKS = 0.5
#: The part of worlds whose broker forgets the group's offsets. The faults below are taken out of them: the store would
#: lose its data as well, or there would be partitions that it does not know.
_EXPIRED = 0.12
_UNKNOWN: frozenset[FaultKind] = frozenset({"failover", "empty", "remake", "grow"})
#: The part of worlds whose logs retention shortens.
_EXPIRES = 0.1
#: One in so many of Kafka's worlds has clients that skip records.
_SLIPS = 6
#: Between two moves of the client, the engine believes holes of a log that has holes (`partition/holes.py`).
_HOLES: frozenset[FaultKind] = frozenset({"compact", "markers"})


def slips(chance: random.Random, world: World, *, only: SlipKind | None = None) -> World:
    """Give some worlds clients that skip records.

    Args:
        chance: the stream to draw from.
        world: the world until now.
        only: this kind, in each of Kafka's worlds; None = a drawn kind, in some.
    """
    if world.broker != "kafka" or (only is None and chance.randrange(_SLIPS)):
        return world
    kind = only or chance.choice(SLIP_KINDS)
    # In a topic that is made again, the first record from the client decides where the new log begins.
    faults = tuple(each for each in world.faults if each.kind != "remake")
    if kind == "now and then":
        faults = tuple(each for each in faults if each.kind not in _HOLES)
    else:  # skipped records hide among the log's own holes
        holes = [_mishap(chance, chance.choice(sorted(_HOLES))) for _ in range(chance.choice([0, 0, 12]))]
        faults = tuple(sorted((*faults, *holes), key=lambda each: each.at_s))
    return replace(world, slips=kind, faults=faults)


def mishaps(chance: random.Random, world: World, *, only: FaultKind | None = None) -> World:
    """Add further faults to some worlds.

    Args:
        chance: the stream to draw from.
        world: the world until now.
        only: this kind, in each world; None = drawn kinds, in some.
    """
    if only is None and chance.random() >= _SOME:
        return world
    able = {kind: often for kind, often in _MISHAPS.items() if kind not in _NOT.get(world.broker, ())}
    kinds = chance.choices(list(able), weights=list(able.values()), k=chance.choice([1, 1, 2, 3]))
    more = [_mishap(chance, only or kind) for kind in kinds]
    request_s = chance.choice([0.2, 0.5, 5.0])
    faults = sorted((*world.faults, *more), key=lambda each: each.at_s)
    world = replace(world, faults=tuple(faults), request_timeout_s=request_s)
    if any(each.kind == "twice" for each in more):
        # The engine commits offsets anew at this interval, after a late commit has overwritten them.
        world = replace(world, settings=replace(world.settings, commit_refresh_s=1.0))
    return world


def retention(chance: random.Random, world: World) -> World:
    """Have some worlds whose logs lose their beginning, while members are behind or away."""
    if world.broker in LEASED or chance.random() >= _EXPIRES:
        return world
    more = [_mishap(chance, "expire") for _ in range(chance.choice([1, 2, 4]))]
    return replace(world, faults=tuple(sorted((*world.faults, *more), key=lambda each: each.at_s)))


def expired(chance: random.Random, world: World) -> World:
    """Have some of Kafka's worlds whose broker forgets the group's offsets while no member runs. Then the store alone
    knows them, so it loses no data there, and no member goes on without it."""
    if world.broker != "kafka" or world.settings.store_down == "open" or chance.random() >= _EXPIRED:
        return world
    pick = chance.choice
    forget = replace(_mishap(chance, "forget"), for_s=pick([0.0, 0.5, 2.0]))
    faults = [each for each in world.faults if each.kind not in _UNKNOWN]
    if pick([True, False]):  # the offsets expire before the first records
        forget, later_s = replace(forget, at_s=forget.at_s / 3), pick([1.0, 2.0])
        world = replace(world, records=tuple(replace(each, at_s=each.at_s + later_s) for each in world.records))
    faults = sorted([*faults, forget], key=lambda each: each.at_s)
    return replace(world, begins=pick(["earliest", "latest"]), faults=tuple(faults))


def seeks(chance: random.Random, world: World) -> World:
    """Have some loops seek. They get no signals: a seek that a signal breaks off may or may not have been made."""
    if world.loop is None or world.loop.threads or chance.random() >= _SEEKS:
        return world
    faults = tuple(each for each in world.faults if each.kind not in {"interrupt", "remake"})
    return replace(world, loop=replace(world.loop, seeks=chance.choice([0.02, 0.1, 0.3])), faults=faults)


def foreign(chance: random.Random, world: World, *, only: bool = False) -> World:
    """Have some of Kafka's worlds in which another program commits the group's offsets while members run.

    Args:
        chance: the stream to draw from.
        world: the world until now.
        only: True = in each of Kafka's worlds.
    """
    if world.broker != "kafka" or (chance.random() >= _FOREIGN and not only):
        return world
    more = [
        replace(_mishap(chance, "foreign"), count=chance.choice([1, 2, 2]), amount=chance.choice([0.1, 0.5, 0.9, 1.0]))
        for _ in range(chance.choice([1, 2, 4]))
    ]
    # The engine commits overwritten offsets anew at this interval, where no partition moves.
    settings = replace(world.settings, commit_refresh_s=1.0)
    faults = tuple(sorted((*world.faults, *more), key=lambda each: each.at_s))
    return replace(world, settings=settings, faults=faults)


def _mishap(chance: random.Random, kind: FaultKind) -> Fault:
    pick = chance.choice
    return Fault(
        at_s=chance.random() * 3,
        kind=kind,
        member=chance.randrange(8),
        for_s={
            "remake": pick([0.0, 0.0, 0.3, 1.5]),
            "leaderless": pick([0.1, 1.0, 3.0]),
            "cut": pick([0.1, 0.5, 1.5, 3.0]),
            "late": pick([0.5, 2.0]),
            "twice": pick([0.5, 2.0]),
            "interrupt": pick([0.0, 0.01, 0.3]),
            "term": pick([0.01, 0.1, 0.5]),
        }.get(kind, 0.0),
        count={"cut": pick([1, 2, 3]), "interrupt": pick([1, 1, 2]), "term": 2}.get(kind, pick([1, 2, 5])),
        amount={
            "late": pick([0.01, 0.1, 0.4, 0.8]),
            "twice": pick([0.05, 0.3, 1.0]),
            "expire": pick([0.2, 0.5, 0.9, 1.0]) if kind == "expire" else 0.0,
        }.get(kind, 0.0),
        place=chance.randrange(8),
    )
