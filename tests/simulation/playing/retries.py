"""Retries: the retry topics of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import DeadLetterError
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.plugin.retrying.retry import Retry
from holdfast.plugin.retrying.retry_topics import Step, steps_of
from holdfast.testing.brokers.logs import Stored
from tests.simulation.playing.book import GROUP

if TYPE_CHECKING:
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka import MemoryBroker
    from tests.simulation.drawing.world import World

#: The number of partitions of a retry topic.
PARTITIONS = 2


def retry_topics_of(world: World) -> dict[str, Step]:
    """All retry topics, by name."""
    found: dict[str, Step] = {}
    for each in world.handlers:
        retry = Retry(attempts=each.attempts, topics=each.delays_s, topic_name=each.topic_name)
        found |= {step.topic: step for step in steps_of(each.topics, retry, GROUP)}
    return found


def store(broker: MemoryBroker, letter: Letter, number: int, at_ms: int) -> tuple[Partition, int]:
    """Store a record in its retry topic. Returns: partition and offset.

    Raises:
        DeadLetterError: the topic does not exist now, or the partition has no leader.
    """
    places, record = broker.of(letter.topic), letter.record
    place = places[number % len(places)] if places else None
    if place is None or not broker.logs[place].led:
        raise DeadLetterError(f"{letter.topic} takes nothing now: the world says so")
    [offset] = broker.store(place, Stored(record.key, record.value, tuple(headers_of(letter)), at_ms))
    return place, offset
