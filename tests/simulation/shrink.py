"""Shrink: find a smaller world that breaks the same rule. It changes the data alone; the caller plays the worlds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from holdfast.plugin.settings import Settings
from holdfast.testing.scripted.simulate import thin
from tests.simulation.drawing.world import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.drawing.world import Handling, Planned, World

T = TypeVar("T")

#: A smaller world draws another order of tasks, so it is tried with so many orders.
_ORDERS = 3


class _Budget:
    """The number of plays that are left."""

    def __init__(self, plays: int, fails: Callable[[World], bool]) -> None:
        self.left = plays
        self._fails = fails

    def fails(self, world: World) -> World | None:
        """The world, or the same in another order, if it still fails."""
        for order in range(_ORDERS):
            if self.left <= 0:
                return None
            self.left -= 1
            tried = replace(world, seed=world.seed + order)
            if self._fails(tried):
                return tried
        return None


def shrink(world: World, fails: Callable[[World], bool], *, plays: int = 400) -> World:
    """The smallest world that was found.

    Args:
        world: a world that fails.
        fails: plays a world; returns whether it breaks the same rule.
        plays: the most worlds that are played.
    """
    budget = _Budget(plays, fails)
    before = None
    while before != world and budget.left > 0:
        before = world
        for step in (_fewer_faults, _fewer_records, _fewer_members, _plainer, _plainer_records):
            world = step(world, budget)
    return world


def _fewer_faults(world: World, budget: _Budget) -> World:
    return _thinned(world, budget, world.faults, lambda base, faults: replace(base, faults=tuple(faults)))


def _fewer_records(world: World, budget: _Budget) -> World:
    return _thinned(world, budget, world.records, lambda base, records: replace(base, records=tuple(records)))


def _thinned(world: World, budget: _Budget, items: Sequence[T], put: Callable[[World, Sequence[T]], World]) -> World:
    def fails(rest: Sequence[T]) -> bool:
        nonlocal world
        smaller = budget.fails(put(world, rest))
        world = smaller or world
        return smaller is not None

    thin(items, fails)
    return world


def _fewer_members(world: World, budget: _Budget) -> World:
    for members in range(1, world.members):
        smaller = budget.fails(replace(world, members=members))
        if smaller is not None:
            return smaller
    return world


def _plainer(world: World, budget: _Budget) -> World:
    """Set options to their plain values, one after the other, as long as the world still fails."""
    for change in _changes(world):
        smaller = change(world)
        found = budget.fails(smaller) if smaller is not None and smaller != world else None
        world = found or world
    return world


def _changes(world: World) -> Iterator[Callable[[World], World | None]]:
    yield lambda now: replace(now, jitter=False, yield_odds=0.0)
    yield lambda now: replace(now, clocks=())
    yield lambda now: replace(now, around=False)
    yield lambda now: replace(now, slips=None)
    yield lambda now: replace(now, fetches=None)
    yield lambda now: replace(now, broker="kafka", by_message=False)
    yield lambda now: replace(now, message_lease_s=2.0)
    for each in fields(Loop):
        yield lambda now, name=each.name: _looped(now, name)  # type: ignore[misc]
    yield lambda now: replace(now, by_message=False)
    yield lambda now: replace(now, protocol="cooperative", static=False)
    for topic in world.topics if len(world.topics) > 1 else ():
        yield lambda now, topic=topic: _without_topic(now, topic.name)  # type: ignore[misc]
    for handler in world.handlers:
        yield lambda now, name=handler.name: _handled(now, name, keyed=False)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, kind="plain", batch=None, by_record=False)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, by_record=False)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, limit=None)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, shared_scope=False)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, timeout_s=None)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, dead_letter=True)  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, delays_s=())  # type: ignore[misc]
        yield lambda now, name=handler.name: _handled(now, name, retry_on=False, give_up_on=False)  # type: ignore[misc]
    defaults = Settings(ramp=None, status_interval_s=0.0)
    for each in fields(Settings):
        yield lambda now, name=each.name: _set(now, name, getattr(defaults, name))  # type: ignore[misc]


def _looped(world: World, name: str) -> World | None:
    """Set one option of the loop to its default."""
    if world.loop is None:
        return None
    return replace(world, loop=replace(world.loop, **{name: getattr(Loop(), name)}))


def _without_topic(world: World, topic: str) -> World | None:
    kept = tuple(each.name for each in world.topics if each.name != topic)
    handlers = tuple(
        replace(each, topics=tuple(name for name in each.topics if name != topic))
        for each in world.handlers
        if any(each.matches(name) for name in kept)
    )
    if not handlers:
        return None
    return replace(
        world,
        handlers=handlers,
        topics=tuple(each for each in world.topics if each.name != topic),
        records=tuple(each for each in world.records if each.topic != topic),
    )


def _handled(world: World, name: str, **changes: object) -> World:
    handlers: list[Handling] = [
        replace(each, **changes) if each.name == name else each  # type: ignore[arg-type]
        for each in world.handlers
    ]
    return replace(world, handlers=tuple(handlers))


def _set(world: World, name: str, value: object) -> World | None:
    try:
        return replace(world, settings=replace(world.settings, **{name: value}))  # type: ignore[arg-type]
    except ValueError:  # the value does not fit the other settings
        return None


def _plainer_records(world: World, budget: _Budget) -> World:
    for change in (
        {"at_s": 0.0},
        {"takes_s": 0.0},
        {"fails": 0},
        {"hopeless": False},
        {"hangs": 0, "hang_s": 0.0},
        {"heeds": True},
        {"key": "k0"},
        {"key": None},
        {"unit": None},
        {"partition": 0},
    ):
        plainer: tuple[Planned, ...] = tuple(replace(each, **change) for each in world.records)
        if plainer != world.records:
            world = budget.fails(replace(world, records=plainer)) or world
    return world
