"""Options: rarer options of handlers, retries, limits and the app, drawn for some worlds.

They have a stream of chance of their own: a world without them stays the same when an option is added here. Each option
of `Settings`, `Retry`, `Ramp`, `DeadLetterLimit`, `BatchOf` and `Holdfast.handler` is drawn here or in `draw`; a test
checks that.
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

#: The part of worlds that have such options; and the odds of each there.
_SOME, _EACH = 0.5, 0.25
#: The most restarts. An app without dead letters stops at each record that fails for good, and is restarted.
_STOPS = 8
#: The longest hang of a call. Some calls end before the engine notices.
HANGS_S = 3.0
#: The part of records that hang, where a handler has a timeout of its own.
_HUNG = 0.01
_MOVED = 0.3
#: The part of worlds that have retry topics; and the odds that a handler has some.
_LATER, _PART = 0.15, 0.7
_BY_RECORD = 0.5
#: The part of worlds with handlers that run for seconds; the part of their records; the seconds within which these
#: come.
_SLOW, _SLOW_RECORDS, _SLOW_S = 0.1, 0.02, 5.0
_LONG_S = 3.0
#: The part of worlds with dead letters that are too large, and of which part of their records; and the part of worlds
#: with a bound (`max_ahead`).
_LARGE, _LARGE_RECORDS, _FAR = 0.12, (0.2, 1.0), 0.12


def options(chance: random.Random, world: World) -> World:
    """Set some of these options."""
    if chance.random() >= _SOME:
        return world
    for at in range(len(world.handlers)):
        for draw in _OF_A_HANDLER:
            if chance.random() < _EACH:
                world = draw(chance, world, at)
    return _settings(chance, world)


def retry_topics(chance: random.Random, world: World) -> World:
    """Give some handlers retry topics. Topics are subscribed to by name, and clocks may differ by more than the
    delays."""
    if world.broker != "kafka" or world.loop is not None or chance.random() >= _LATER:
        return world
    for at, handler in enumerate(world.handlers):
        delays_s = tuple(sorted({chance.choice([0.05, 0.3, 1.0, 2.5]) for _ in range(chance.choice([1, 2, 3]))}))
        name = chance.choice([handler.topic_name, "{topic}.later.{delay}"])
        if chance.random() < _PART and not any(each.startswith("^") for each in handler.topics):
            world = _with(world, at, delays_s=delays_s, topic_name=name)
    return world


def failing_by_record(chance: random.Random, world: World) -> World:
    """Have batch handlers that raise `BatchFailed` with the records that failed."""
    for at, handler in enumerate(world.handlers):
        if handler.batch is not None and chance.random() < _BY_RECORD:
            world = _with(world, at, by_record=True)
    return world


def slow_handlers(chance: random.Random, world: World) -> World:
    """Have handlers that sometimes run for seconds, while records come and members join. A drain waits for them, and
    other members wait for the drain."""
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
    """Have dead letters that are too large for their topic. If the app stops for each, there are only a few."""
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
    """Set `max_ahead`: how far a partition is read beyond its lowest record that is not done."""
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
    """A timeout of the handler's own; `math.inf` = none, whatever the settings say."""
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
    """Have errors that are not retried."""
    world = _with(world, at, **chance.choice([{"retry_on": True}, {"give_up_on": True}]))
    part = chance.choice([0.3, 1.0])

    def hopeless(record: Planned) -> Planned:
        return replace(record, hopeless=chance.random() < part)

    return _records(world, at, hopeless)


def _limit(chance: random.Random, world: World, at: int) -> World:
    """Another limit of dead letters, for a handler that has one. Then no record may fail for ever."""
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
    """Do without dead letters: a record that fails for good stops the app, which is restarted. So no record may fail
    for ever, and few may fail for good."""
    if _failing(world, at) > _STOPS:
        return world
    return _with(world, at, dead_letter=False)


def _pattern(chance: random.Random, world: World, at: int) -> World:
    """Subscribe to topics by a pattern, where the broker supports it."""
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
    """The most calls of the handler that can fail; `math.inf` if a record always fails."""
    handler, failing = world.handlers[at], 0
    for record in world.records:
        if handler.matches(record.topic):
            missing = handler.keyed and record.unit is None and world.settings.missing_key == "error"
            if record.unreadable or missing:
                return math.inf
            failing += record.fails + record.hangs
    return failing
