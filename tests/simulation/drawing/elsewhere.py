"""Elsewhere: moves a world that was drawn for apps on Kafka to another kind of broker, or to users' own loops.

A fault that cannot happen there is replaced by another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from holdfast.plugin.own_loop.user_loop import DoneWhen
from tests.simulation.drawing.world import Loop, OnSignal

if TYPE_CHECKING:
    import random

    from tests.simulation.drawing.world import Fault, FaultKind, World

#: The part of all worlds on RocketMQ's queues; and of the others, the part with leased messages.
_QUEUES, _LEASED = 0.2, 0.16
#: Of those with leased messages, the part on queues that a push client assigns.
_PUSHED = 0.33
#: Of the rest, the part with users' own loops.
_LOOPS = 0.19
#: RocketMQ's broker tells of a reset once. A member loses it if it cannot note it then, as during these faults.
_KEEP_FROM_NOTING: frozenset[FaultKind] = frozenset(
    {"crash", "stall", "lose", "silent", "deaf", "slow", "lossy", "forbid"}
)
#: With leased messages: impossible fault -> the fault in its place.
_OF_LEASED: dict[FaultKind, FaultKind] = {"grow": "join", "markers": "lose", "compact": "lose", "reset": "lose"}


def moved(world: World, chance: random.Random) -> World:
    """Move some worlds to another kind of broker, or to users' own loops."""
    if chance.random() < _QUEUES:
        resets = any(fault.kind == "reset" for fault in world.faults)
        faults = tuple(_of_queues(fault) for fault in world.faults if not (resets and fault.kind in _KEEP_FROM_NOTING))
        return replace(world, broker="queues", by_message=chance.random() < 0.5, static=False, faults=faults)
    if chance.random() < _LEASED:
        return _leased(world, chance)
    if chance.random() < _LOOPS:
        return _looped(world, chance)
    return world


def _leased(world: World, chance: random.Random) -> World:
    """Move the world to leased messages. There are no partitions to pause, to grow or to reset."""
    lease_s, pushed = chance.choice([1.0, 2.0, 5.0]), chance.random() < _PUSHED
    if pushed:  # that client keeps unreadable records to itself, and hands one queue's records to several threads
        ordering = world.settings.ordering if world.settings.ordering != "partition" else "key"
        world = replace(
            world,
            settings=replace(world.settings, ordering=ordering),
            records=tuple(replace(each, unreadable=False) for each in world.records),
        )
    return replace(
        world,
        broker="pushed" if pushed else "leased",
        static=False,
        message_lease_s=lease_s,
        handlers=tuple(replace(each, limit=None) for each in world.handlers),
        faults=tuple(replace(each, kind=_OF_LEASED.get(each.kind, each.kind)) for each in world.faults),
    )


def _looped(world: World, chance: random.Random) -> World:
    """Replace the apps by users' own loops. A loop gets records in order, one or several at a time. There are no
    timeouts and no dead letters, and the client deals with unreadable records."""
    pick = chance.choice
    done_when = pick(get_args(DoneWhen))
    settings = replace(
        world.settings,
        ordering="partition",
        missing_key="position",
        handler_timeout_s=None,
        on_handler_timeout="dead_letter",
    )
    return replace(
        world,
        settings=settings,
        handlers=tuple(replace(each, kind="plain", batch=None, limit=None) for each in world.handlers),
        records=tuple(replace(each, unreadable=False, hangs=0) for each in world.records),
        loop=Loop(
            done_when=done_when,
            at_most=pick([1, 1, 5, 50, 500]),
            wait_s=pick([0.02, 0.1, 1.0]),
            commit_after=pick([1, 10, 100]),
            says_at_revoke=pick([True, False]),
            says_at_end=pick([True, False]),
            gives_back=pick([True, False]),
            threads=pick([0, 2, 8]) if done_when == "explicit" else 0,
            on_signal=pick(get_args(OnSignal)),
        ),
    )


def _of_queues(fault: Fault) -> Fault:
    """Replace "lose": the broker takes no queues away, but a member that is frozen beyond its lease loses them."""
    return replace(fault, kind="stall", for_s=2.0) if fault.kind == "lose" else fault
