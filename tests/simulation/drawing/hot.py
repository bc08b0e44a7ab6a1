"""Hot: worlds in which one partition, or one key of a partition, has a backlog, while the others get fresh records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.drawing.world import LEASED, Fetches, Planned

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.simulation.drawing.world import FaultKind, Kind, World

#: The part of worlds with partitions that have a backlog in one place; the part of these where it has one key.
_HOT, _ONE_KEY = 0.12, 0.3
#: Fresh records come for so many seconds, one each so many seconds.
_FRESH_S, _EACH_S = 5.0, (0.03, 0.1, 0.3)
#: A client's queue outlives a deleted topic, and what retention deletes; a group that begins with the last records has
#: no backlog.
_NOT: frozenset[FaultKind] = frozenset({"remake", "expire", "forget"})
_ONE_BY_ONE: dict[Kind, Kind] = {"plain": "plain", "batch": "plain", "async": "async", "async batch": "async"}


def hot(chance: random.Random, world: World, *, only: bool = False) -> World:
    """Give some worlds a backlog in one place from the start, and fresh records in all others. Few workers handle them,
    and Kafka's clients fetch ahead.

    Args:
        chance: the stream to draw from.
        world: the world until now.
        only: True = in each world with partitions whose clients skip no records.
    """
    if (chance.random() >= _HOT and not only) or world.broker in LEASED or world.slips is not None:
        return world
    pick = chance.choice
    topics = tuple(replace(each, partitions=max(each.partitions, pick([2, 3]))) for each in world.topics)
    one_key = world.loop is None and chance.random() < _ONE_KEY
    settings = replace(
        world.settings,
        workers=min(world.settings.workers, pick([1, 2, 2, 4])),
        async_workers=pick([1, 2, 4]),
        ordering=world.settings.ordering if world.loop else "key" if one_key else pick(["key", "none", "partition"]),
    )
    handlers = tuple(replace(each, limit=None, delays_s=()) for each in world.handlers)
    if pick([True, True, False]):  # batches take seconds, and what waits for its turn among them waits long
        handlers = tuple(replace(each, kind=_ONE_BY_ONE[each.kind], batch=None, by_record=False) for each in handlers)
    world = replace(
        world,
        members=pick([1, 1, 2]),
        begins="earliest",
        topics=topics,
        settings=settings,
        handlers=handlers,
        # With more, one call of a slow loop takes longer than a world may stand still.
        loop=world.loop and replace(world.loop, seeks=0.0, at_most=min(50, world.loop.at_most)),
        faults=tuple(each for each in world.faults if each.kind not in _NOT),
        fetches=_fetches(chance) if world.broker == "kafka" else None,
    )
    return replace(world, records=tuple(_records(chance, world, one_key=one_key)))


def _fetches(chance: random.Random) -> Fetches:
    return Fetches(
        records=chance.choice([20, 100, 1000]),
        queued=chance.choice([50, 300, 2000]),
        backoff_s=chance.choice([0.05, 1.0]),
        way_s=chance.choice([0.0, 0.002, 0.02]),
    )


def _records(chance: random.Random, world: World, *, one_key: bool) -> Iterator[Planned]:
    pick, handlers = chance.choice, {each.name: world.handling(each.name) for each in world.topics}
    timeouts_s = [world.settings.handler_timeout_s, *(each.timeout_s for each in world.handlers)]
    mean_s = min([pick([0.02, 0.05, 0.1]), *(each / 8 for each in timeouts_s if each is not None)])
    backlog, lanes, failing = pick([200, 400, 800]), pick([3, 20, 10**6, 10**6]), pick([0.0, 0.0, 0.03])
    units = pick([50, 10**9, 10**9])

    def record(at_s: float, place: tuple[str, int], key: str) -> Planned:
        topic, number = place
        return Planned(
            at_s=round(at_s, 4),
            topic=topic,
            partition=number,
            key=key,
            unit=f"b{chance.randrange(units)}" if handlers[topic].keyed else None,
            takes_s=round(chance.uniform(0.2, 1.8) * mean_s, 6),
            fails=1 if chance.random() < failing else 0,
        )

    places = [(topic.name, number) for topic in world.topics for number in range(topic.partitions)]
    hot_place = pick(places)
    for _ in range(backlog):
        yield record(0.0, hot_place, "k0" if one_key else f"k{chance.randrange(lanes)}")
    cold = [place for place in places if place != hot_place]
    if one_key:  # fresh records of other keys come behind the backlog as well
        cold += [hot_place] * len(cold)
    each_s = pick(_EACH_S)
    for at in range(int(_FRESH_S / each_s)):
        yield record(at * each_s, cold[at % len(cold)], f"k{1 + chance.randrange(5)}")
