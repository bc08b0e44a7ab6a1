"""Options: what a user may say of handlers, retries, limits and the app that few worlds need, drawn for some of them.

A stream of chance of their own: a world for which none is drawn is what it was before an option was added here. Every
option of `Settings`, `Retry`, `Ramp`, `DeadLetterLimit`, `BatchOf` and `Holdfast.handler` is drawn here or in `draw`;
a test looks whether they are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.drawing.world import LEASED, Fault, Topic

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.drawing.world import Handling, Planned, World

#: How many worlds have such options at all; and how likely each of them is there.
_SOME, _EACH = 0.5, 0.25
#: An app that has no dead letters stops at each record that fails for good, and is started again.
_STOPS = 8
#: What hangs does so for that long at most: some of it ends before anybody notices.
HANGS_S = 3.0
#: How many records do, where a handler got a timeout of its own.
_HUNG = 0.01
_MOVED = 0.3
#: How many worlds have retry topics, and how likely each handler has some there.
_LATER, _PART = 0.15, 0.7
_BY_RECORD = 0.5
#: How many worlds have handlers that run for seconds, and how many of their records, which come within that time.
_SLOW, _SLOW_RECORDS, _SLOW_S = 0.1, 0.02, 5.0
_LONG_S = 3.0
#: How many worlds have letters that are too large, and of how many records; and in how many a partition may not be read
#: far beyond a record that is not done.
_LARGE, _LARGE_RECORDS, _FAR = 0.12, (0.2, 1.0), 0.12


def options(chance: random.Random, world: World) -> World:
    """Set some of the options that are drawn apart."""
    if chance.random() >= _SOME:
        return world
    for at in range(len(world.handlers)):
        for draw in _OF_A_HANDLER:
            if chance.random() < _EACH:
                world = draw(chance, world, at)
    return _settings(chance, world)


def retry_topics(chance: random.Random, world: World) -> World:
    """Have records that fail tried again later. By names alone; and its clocks may differ by more than its delays."""
    if world.broker != "kafka" or world.loop is not None or chance.random() >= _LATER:
        return world
    for at, handler in enumerate(world.handlers):
        delays_s = tuple(sorted({chance.choice([0.05, 0.3, 1.0, 2.5]) for _ in range(chance.choice([1, 2, 3]))}))
        name = chance.choice([handler.topic_name, "{topic}.later.{delay}"])
        if chance.random() < _PART and not any(each.startswith("^") for each in handler.topics):
            world = _with(world, at, delays_s=delays_s, topic_name=name)
    return world


def failing_by_record(chance: random.Random, world: World) -> World:
    """Have batch handlers that say which of their records have failed."""
    for at, handler in enumerate(world.handlers):
        if handler.batch is not None and chance.random() < _BY_RECORD:
            world = _with(world, at, by_record=True)
    return world


def slow_handlers(chance: random.Random, world: World) -> World:
    """Have handlers that run for seconds now and then, while records come and members join: a drain waits for them, and
    others wait for the drain."""
    timed = world.settings.handler_timeout_s is not None or any(each.timeout_s is not None for each in world.handlers)
    if timed or world.broker in LEASED or world.loop is not None or chance.random() >= _SLOW:
        return world

    def slow(number: int, record: Planned) -> Planned:
        record = replace(record, at_s=round(number * _SLOW_S / len(world.records), 4))
        return replace(record, takes_s=_LONG_S) if chance.random() < _SLOW_RECORDS else record

    joins = (Fault(at_s=round(chance.uniform(0.3, _SLOW_S), 4), kind="join") for _ in range(2))
    return replace(
        world,
        settings=replace(world.settings, drain_timeout_s=5.0),
        records=tuple(slow(number, record) for number, record in enumerate(world.records)),
        faults=tuple(sorted((*world.faults, *joins), key=lambda each: each.at_s)),
    )


def large_letters(chance: random.Random, world: World) -> World:
    """Have letters that are too large for the topic that they go to. Who stops for one may not do so too often."""
    if world.loop is not None or chance.random() >= _LARGE:
        return world
    part = chance.choice(_LARGE_RECORDS)

    def large(record: Planned) -> Planned:
        return replace(record, large=chance.random() < part)

    for at, handler in enumerate(world.handlers):
        stops = _failing(world, at) <= _STOPS and chance.random() < _PART
        if handler.dead_letter and not stops:
            world = _with(world, at, letter_too_large="without_value")
        if handler.dead_letter:
            world = _records(world, at, large)
    return world


def far_ahead(chance: random.Random, world: World) -> World:
    """Bound how far a partition is read beyond its lowest record that is not done."""
    if world.broker in LEASED or chance.random() >= _FAR:
        return world
    return replace(world, settings=replace(world.settings, max_ahead=chance.choice([5, 20, 60])))


def _settings(chance: random.Random, world: World) -> World:
    def some(name: str, *values: object) -> None:
        nonlocal world
        value = chance.choice(values)
        if chance.random() < _EACH:
            world = replace(world, settings=replace(world.settings, **{name: value}))  # type: ignore[arg-type]

    some("handler_grace_s", 0.0, 0.02, 1.0)
    some("linger_timeout_s", 0.1, 5.0, 30.0)
    some("startup_timeout_s", 0.2, 1.0, 5.0)
    if world.settings.handler_timeout_s is not None or any(each.timeout_s is not None for each in world.handlers):
        some("on_handler_timeout", "stop")
    return world


# ---- of one handler
def _timeout(chance: random.Random, world: World, at: int) -> World:
    """One of its own; `math.inf`: none, whatever the settings say."""
    timeout_s = chance.choice([0.2, 0.5, 1.0, math.inf])
    if world.settings.workers == 0 and timeout_s < math.inf:
        return world
    world = _with(world, at, timeout_s=timeout_s)

    def hangs(record: Planned) -> Planned:
        record = replace(record, takes_s=round(min(record.takes_s, timeout_s / 4), 6))
        if record.hangs or chance.random() >= _HUNG:
            return record
        return replace(record, hangs=1, hang_s=round(chance.random() * HANGS_S, 4), heeds=chance.choice([True, False]))

    return world if timeout_s == math.inf else _records(world, at, hangs)


def _waits(chance: random.Random, world: World, at: int) -> World:
    return _with(
        world,
        at,
        multiplier=chance.choice([1.0, 1.5, 4.0]),
        wait_initial_s=chance.choice([0.0, 0.02, 0.3]),
        wait_max_s=chance.choice([0.01, 0.3, 1.0]),
    )


def _gives_up(chance: random.Random, world: World, at: int) -> World:
    """Some errors are not tried again."""
    world = _with(world, at, **chance.choice([{"retry_on": True}, {"give_up_on": True}]))
    part = chance.choice([0.3, 1.0])

    def hopeless(record: Planned) -> Planned:
        return replace(record, hopeless=chance.random() < part)

    return _records(world, at, hopeless)


def _limit(chance: random.Random, world: World, at: int) -> World:
    """Other limits of dead letters, where it has one: no record may be there that nobody can handle."""
    limit = world.handlers[at].limit
    if limit is None:
        return world
    limit = replace(
        limit,
        in_a_row=chance.choice([1, 3, 100]),
        share=chance.choice([0.1, 0.5, 1.0]),
        at_least=chance.choice([1, 10, 200]),
        over_s=chance.choice([0.5, 60.0]),
        pause_s=chance.choice([0.1, 1.0]),
    )
    if _failing(world, at) <= _STOPS:
        limit = replace(limit, then=chance.choice(["pause", "stop"]))
    return _with(world, at, limit=limit)


def _no_letters(chance: random.Random, world: World, at: int) -> World:
    """Do without letters: a record that fails for good stops the app, which is started again. So it may not fail for
    ever, nor too often."""
    if _failing(world, at) > _STOPS:
        return world
    return _with(world, at, dead_letter=False)


def _pattern(chance: random.Random, world: World, at: int) -> World:
    """Have topics subscribed to by a pattern, where the broker has such."""
    if world.broker != "kafka":
        return world
    return _with(world, at, topics=tuple(f"^{each}$" for each in world.handlers[at].topics))


def _another_topic(chance: random.Random, world: World, at: int) -> World:
    """Have two topics."""
    [first, *_] = world.handlers[at].topics
    if first.startswith("^"):
        return world
    other = Topic(name=f"{first}-too", partitions=chance.choice([1, 2]))
    world = replace(_with(world, at, topics=(first, other.name)), topics=(*world.topics, other))

    def moved(record: Planned) -> Planned:
        if chance.random() >= _MOVED:
            return record
        return replace(record, topic=other.name, partition=record.partition % other.partitions)

    return _records(world, at, moved)


_OF_A_HANDLER: tuple[Callable[[random.Random, World, int], World], ...] = (
    _another_topic,
    _pattern,
    _timeout,
    _waits,
    _gives_up,
    _limit,
    _no_letters,
)


# ---- inside
def _with(world: World, at: int, **changes: object) -> World:
    handlers: list[Handling] = list(world.handlers)
    handlers[at] = replace(handlers[at], **changes)  # type: ignore[arg-type]
    return replace(world, handlers=tuple(handlers))


def _records(world: World, at: int, change: Callable[[Planned], Planned]) -> World:
    handler = world.handlers[at]
    return replace(
        world, records=tuple(change(each) if handler.matches(each.topic) else each for each in world.records)
    )


def _failing(world: World, at: int) -> float:
    """How many calls of it can fail; without end, where a record is no handler's."""
    handler, failing = world.handlers[at], 0
    for record in world.records:
        if handler.matches(record.topic):
            missing = handler.keyed and record.unit is None and world.settings.missing_key == "error"
            if record.unreadable or missing:
                return math.inf
            failing += record.fails + record.hangs
    return failing
