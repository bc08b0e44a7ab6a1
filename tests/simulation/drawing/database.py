"""Database: worlds whose store is the database in which the effects of handlers are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.drawing.world import Fault

if TYPE_CHECKING:
    import random

    from tests.simulation.drawing.world import FaultKind, Handling, Kind, World

#: The part of Kafka's worlds with apps that have one; and of their handlers, those with `transaction=`.
_SOME, _IN_TRANSACTION = 0.15, 0.85
#: Longer than a handler takes, and shorter than some processes are frozen.
_IDLE_S = 4.0
#: `transaction=` takes plain functions.
_PLAIN: dict[Kind, Kind] = {"plain": "plain", "batch": "batch", "async": "plain", "async batch": "batch"}
#: The weight of each kind of fault that is added.
_FAULTS: dict[FaultKind, int] = {
    "unanswered": 3,
    "freeze": 3,
    "failover": 3,
    "stall": 2,
    "conflict": 2,
    "terminate": 2,
}
#: How long a process is frozen: beyond its session at the broker, and beyond the longest idle transaction.
_FROZEN_S = (0.3, 2.0, 6.0, 6.0)


def database(chance: random.Random, world: World, *, only: bool = False) -> World:
    """Give some worlds such a store, without business keys, and what may befall its transactions.

    Args:
        chance: the stream to draw from.
        world: the world until now.
        only: True = in each of Kafka's worlds with apps.
    """
    some = chance.random() < _SOME
    if not (some or only) or world.broker != "kafka" or world.loop is not None:
        return world
    # A database that starts with nothing has no tables: no app goes on. It loses its last commits instead.
    faults = [replace(each, kind="failover", for_s=0.5) if each.kind == "empty" else each for each in world.faults]
    faults += [_fault(chance) for _ in range(chance.choice([0, 1, 2, 4]))]
    return replace(
        world,
        store="database",
        idle_s=chance.choice([_IDLE_S, _IDLE_S, 45.0]),
        settings=replace(world.settings, store_down="pause", missing_key="position"),
        around=False,
        handlers=tuple(_handling(chance, each) for each in world.handlers),
        records=tuple(replace(each, unit=None) for each in world.records),
        faults=tuple(sorted(faults, key=lambda each: each.at_s)),
    )


def _handling(chance: random.Random, handling: Handling) -> Handling:
    return replace(handling, kind=_PLAIN[handling.kind], keyed=False, transaction=chance.random() < _IN_TRANSACTION)


def _fault(chance: random.Random) -> Fault:
    kind = chance.choices(list(_FAULTS), weights=list(_FAULTS.values()))[0]
    return Fault(
        at_s=chance.random() * 3,
        kind=kind,
        member=chance.randrange(8),
        for_s={
            "freeze": chance.choice(_FROZEN_S),
            "stall": chance.choice(_FROZEN_S),
            "failover": chance.random(),
        }.get(kind, 0.0),
        count=chance.choice([1, 1, 3]),
        place=chance.randrange(2),
    )
