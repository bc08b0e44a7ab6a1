"""Mishaps: faults that some worlds get beside those that `draw` gives to any, from a stream of chance of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.brokers.kafka_slips import SLIP_KINDS
from tests.simulation.drawing.world import LEASED, Fault

if TYPE_CHECKING:
    import random

    from tests.simulation.brokers.kafka_slips import SlipKind
    from tests.simulation.drawing.world import BrokerKind, FaultKind, World

#: How many worlds have some, and how often each is drawn of those.
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


#: Where some of them cannot happen.
_NOT: dict[BrokerKind, frozenset[FaultKind]] = {
    "leased": frozenset({"remake", "leaderless"}),
    "pushed": frozenset({"leaderless", "cut", "late", "twice"}),
}


#: How many worlds of Kafka's have another program that commits the group's offsets.
_FOREIGN = 0.15
#: How many loops seek, of those without threads.
_SEEKS = 0.5
#: How many have brokers that forget the group's offsets;
#: what loses the store's as well, or makes partitions of which it knows nothing.
_EXPIRED = 0.12
_UNKNOWN: frozenset[FaultKind] = frozenset({"failover", "empty", "remake", "grow"})
#: How many worlds have logs that retention shortens.
_EXPIRES = 0.1
#: One in so many worlds of Kafka's has clients that leave records out.
_SLIPS = 6
#: Between two moves of the client, holes of a log that has them are believed (`partition/holes.py`).
_HOLES: frozenset[FaultKind] = frozenset({"compact", "markers"})


def slips(chance: random.Random, world: World, *, only: SlipKind | None = None) -> World:
    """Give some worlds clients that leave records out.

    Args:
        chance: draws them.
        world: as it was.
        only: this kind and no other, in any world of Kafka's.
    """
    if world.broker != "kafka" or (only is None and chance.randrange(_SLIPS)):
        return world
    kind = only or chance.choice(SLIP_KINDS)
    # Of a topic that is made again, the first record that the client gives tells where the new log begins.
    faults = tuple(each for each in world.faults if each.kind != "remake")
    if kind == "now and then":
        faults = tuple(each for each in faults if each.kind not in _HOLES)
    else:  # what is left out is to be found among holes of the log's own
        holes = [_mishap(chance, chance.choice(sorted(_HOLES))) for _ in range(chance.choice([0, 0, 12]))]
        faults = tuple(sorted((*faults, *holes), key=lambda each: each.at_s))
    return replace(world, slips=kind, faults=faults)


def mishaps(chance: random.Random, world: World, *, only: FaultKind | None = None) -> World:
    """Add some more faults to the world.

    Args:
        chance: draws them.
        world: as it was.
        only: these and no others, in any case.
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
        # What a late commit has overwritten is committed anew by that clock.
        world = replace(world, settings=replace(world.settings, commit_refresh_s=1.0))
    return world


def retention(chance: random.Random, world: World) -> World:
    """Have some worlds whose logs lose what lies at their beginning, while members are behind or gone."""
    if world.broker in LEASED or chance.random() >= _EXPIRES:
        return world
    more = [_mishap(chance, "expire") for _ in range(chance.choice([1, 2, 4]))]
    return replace(world, faults=tuple(sorted((*world.faults, *more), key=lambda each: each.at_s)))


def expired(chance: random.Random, world: World) -> World:
    """Have some worlds of Kafka's whose broker forgets the group's offsets while nobody runs. The store alone has them
    then: so it loses nothing there, and nobody goes on without it."""
    if world.broker != "kafka" or world.settings.store_down == "open" or chance.random() >= _EXPIRED:
        return world
    pick = chance.choice
    forget = replace(_mishap(chance, "forget"), for_s=pick([0.0, 0.5, 2.0]))
    faults = [each for each in world.faults if each.kind not in _UNKNOWN]
    if pick([True, False]):  # nothing was there to be handled before
        forget, later_s = replace(forget, at_s=forget.at_s / 3), pick([1.0, 2.0])
        world = replace(world, records=tuple(replace(each, at_s=each.at_s + later_s) for each in world.records))
    faults = sorted([*faults, forget], key=lambda each: each.at_s)
    return replace(world, begins=pick(["earliest", "latest"]), faults=tuple(faults))


def seeks(chance: random.Random, world: World) -> World:
    """Have some loops seek. A move that a signal breaks off is made once more: nobody could say which."""
    if world.loop is None or world.loop.threads or chance.random() >= _SEEKS:
        return world
    faults = tuple(each for each in world.faults if each.kind not in {"interrupt", "remake"})
    return replace(world, loop=replace(world.loop, seeks=chance.choice([0.02, 0.1, 0.3])), faults=faults)


def foreign(chance: random.Random, world: World, *, only: bool = False) -> World:
    """Have some worlds of Kafka's where another program commits offsets of the group's while members run.

    Args: only: whether to do so in any world of Kafka's.
    """
    if world.broker != "kafka" or (chance.random() >= _FOREIGN and not only):
        return world
    more = [
        replace(_mishap(chance, "foreign"), count=chance.choice([1, 2, 2]), amount=chance.choice([0.1, 0.5, 0.9, 1.0]))
        for _ in range(chance.choice([1, 2, 4]))
    ]
    # Where nothing moves, what is overwritten is committed anew by that clock.
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
