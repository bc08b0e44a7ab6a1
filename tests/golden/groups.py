"""Random Kafka groups: hypothesis draws their shape, and makes it smaller where something is wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from holdfast.plugin.assign.members import Subscriber
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMBERS, PARTITIONS, TOPICS = 60, 400, 20
RACKS = ("r1", "r2", "r3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What an assignment is made for."""

    members: list[Subscriber]
    partitions: list[Partition]
    #: Of each partition's replicas; empty: nobody knows.
    racks: dict[Partition, list[str]]


def partitions_of(sizes: Sequence[int]) -> list[Partition]:
    """Topics t0, t1, ... of these sizes."""
    return [Partition(f"t{i}", number) for i, size in enumerate(sizes) for number in range(size)]


def subscriptions(rnd: random.Random, kind: str, topics: int, count: int) -> list[frozenset[str]]:
    """Of so many members: all the same, of some few kinds, each its own, each its own and few.

    One topic of those that are wanted is not there.
    """
    names = [f"t{i}" for i in range(topics + 1)]

    def some(most: int) -> frozenset[str]:
        return frozenset(rnd.sample(names, rnd.randint(1, most)))

    if kind == "each":
        return [some(len(names)) for _ in range(count)]
    if kind == "few":
        return [some(min(3, len(names))) for _ in range(count)]
    kinds = [some(len(names)) for _ in range(1 if kind == "same" else rnd.randint(2, 4))]
    return [rnd.choice(kinds) for _ in range(count)]


KINDS = ("same", "kinds", "each", "few")
_PARTS = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a group is made of: how many topics, of how many partitions at most, how many members, who want what
    `kind` says; how many of them have a known rack, and are static; and replicas of a partition."""

    topics: int
    largest: int
    members: int
    kind: str
    known: float
    static: float
    replicas: int


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Static members among others, in another order than their ids; racks known of all, of some, or of none.

    Hypothesis draws the numbers, and makes those small; which of them is which comes from a seed, since a draw for each
    partition takes longer than what is tested.
    """
    topics = draw(st.integers(1, TOPICS))
    shape = Shape(
        topics=topics,
        largest=draw(st.integers(1, PARTITIONS // topics)),
        members=draw(st.integers(1, MEMBERS)),
        kind=draw(st.sampled_from(KINDS)),
        known=draw(st.sampled_from(_PARTS)),
        static=draw(st.sampled_from(_PARTS)),
        replicas=draw(st.integers(1, len(RACKS))),
    )
    return _made(shape, random.Random(draw(st.integers(0, 2**16))))


def numbered(seed: int) -> Group:
    """The same group for the same number, whatever draws: for answers that are kept."""
    rnd = random.Random(seed)
    topics = rnd.randint(1, TOPICS)
    shape = Shape(
        topics=topics,
        largest=rnd.randint(1, PARTITIONS // topics),
        members=rnd.randint(1, MEMBERS),
        kind=rnd.choice(KINDS),
        known=rnd.choice(_PARTS),
        static=rnd.choice(_PARTS),
        replicas=rnd.randint(1, len(RACKS)),
    )
    return _made(shape, rnd)


def _made(shape: Shape, rnd: random.Random) -> Group:
    same_size = rnd.random() < 0.3
    partitions = partitions_of(
        [shape.largest if same_size else rnd.randint(1, shape.largest) for _ in range(shape.topics)]
    )
    members = [
        Subscriber(
            id=f"m{i}",
            topics=wanted,
            rack=rnd.choice(RACKS) if rnd.random() < shape.known else "",
            instance_id=f"static{shape.members - i}" if rnd.random() < shape.static else None,
        )
        for i, wanted in enumerate(subscriptions(rnd, shape.kind, shape.topics, shape.members))
    ]
    racks = {each: rnd.sample(RACKS, shape.replicas) for each in partitions} if shape.known else {}
    return Group(members=members, partitions=partitions, racks=racks)
