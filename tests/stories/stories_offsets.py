"""Stories of offsets that somebody else moves: on purpose by hand, or by mistake as a zombie does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field

_HOLDFAST = ("holdfast",)
_SOME = (0, 2, 5, 7)
_ALL = tuple(range(8))


@story(kinds=_HOLDFAST)
def reset_by_hand(field: Field) -> None:
    """The group is stopped and an operator sets some partitions back: everything from there on is run once more."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)  # who is stopped before it has begun is killed by the signal
    field.until_handled(500)
    field.traffic.stop()
    field.until_settled()
    field.stop(*field.members.values())
    ends = field.kafka.end_offsets(field.topic)
    back = {each: field.random.randrange(ends[each]) for each in _SOME}
    field.reset([TopicPartition(field.topic, *each) for each in back.items()])
    field.replayed = {
        each.where: 1 for each in field.traffic.produced if each.where.offset >= back.get(each.where.partition, 1 << 62)
    }
    a, b = field.start("a"), field.start("b")
    field.until_event("ResetHonoured")
    field.until_executed(len(field.traffic.produced) + len(field.replayed))
    field.flow()
    field.until_spread(a, b)


def _old_commits(field: Field) -> list[TopicPartition]:
    """For all partitions the earliest commit that was seen, with its metadata: what a zombie may send late."""
    seen = field.sampler.metadata
    first = {each: min(offset for _, number, offset in seen if number == each) for each in _ALL}
    return [
        TopicPartition(field.topic, each, offset, seen[(field.topic, each, offset)]) for each, offset in first.items()
    ]


def _work_until_commits_are_old(field: Field) -> list[TopicPartition]:
    field.flow()
    field.until_spread(*field.members.values())
    field.until(lambda: {each for _, each, _ in field.sampler.metadata} >= set(_ALL), "the group commits")
    old = _old_commits(field)
    field.until_handled(500)
    field.traffic.stop()
    field.until_settled()
    return old


@story(kinds=_HOLDFAST)
def zombie_rewinds_a_group_at_rest(field: Field) -> None:
    """After all have stopped, a late commit of holdfast's own arrives: nothing is run again."""
    field.start("a"), field.start("b")
    old = _work_until_commits_are_old(field)
    field.stop(*field.members.values())
    field.reset(old)
    a, b = field.start("a"), field.start("b")
    field.until_event("RewindIgnored")
    field.flow()
    field.until_spread(a, b)


@story(kinds=_HOLDFAST)
def zombie_rewinds_a_live_group(field: Field) -> None:
    """A member rewinds partitions that are not its own, which the broker accepts; their owners die before they could
    mend it. What their successor reads of the broker is far behind what it may run."""
    field.start("a"), field.start("b")
    old = _work_until_commits_are_old(field)
    zombie = Consumer(a_config(field))
    try:
        zombie.subscribe([field.topic])
        # Partitions that come to it are not read: the pause keeps their offsets where they are.
        field.until(lambda: _owns_something(zombie), "the zombie owns something")
        mine = {each.partition for each in zombie.assignment()}
        zombie.commit(offsets=[each for each in old if each.partition not in mine], asynchronous=False)
        for each in field.members.values():
            field.kill(each)
    finally:
        zombie.close()
    c = field.start("c")
    field.until_event("RewindIgnored")
    field.flow()
    field.until_spread(c)


def _owns_something(consumer: Consumer) -> bool:
    consumer.poll(0.0)
    time.sleep(0.05)
    assigned = consumer.assignment()
    if assigned:
        consumer.pause(assigned)
    return bool(assigned)


def a_config(field: Field) -> dict[str, object]:
    """The configuration of a plain member of the field's group."""
    some = next(iter(field.members.values())).config
    return some.client() | {"client.id": "zombie", "enable.auto.commit": False}
