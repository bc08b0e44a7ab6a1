"""Kafka's assignors in Python's words; see KafkaAssignors.java for what goes over the line."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.assign.members import Subscriber
    from tests.golden.oracle import Oracle

    Racks = Mapping[Partition, Collection[str]]


class Owned(NamedTuple):
    """What a member says that it has, and since which generation."""

    partitions: Collection[Partition]
    generation: int


class Asked(NamedTuple):
    """The class' plan, and how long each round took."""

    plan: dict[Partition, str]
    took_ms: list[float]


def ask(
    oracle: Oracle,
    strategy: str,
    members: Sequence[Subscriber],
    partitions: Collection[Partition],
    owned: Mapping[str, Owned] | None = None,
    *,
    racks: Racks | None = None,
    rounds: int = 1,
) -> Asked:
    """What the class of that name ("range", "roundrobin", "sticky", "cooperative-sticky") does.

    The partitions of a topic are those from 0 up to their count: the class knows no others.
    """
    question = {
        "strategy": strategy,
        "rounds": rounds,
        "topics": _topics(partitions, racks or {}),
        "members": [_member(each, (owned or {}).get(each.id, Owned((), -1))) for each in members],
    }
    answer = json.loads(oracle.ask(json.dumps(question)))
    plan = {
        Partition(topic, number): member_id
        for member_id, topics in answer["plan"].items()
        for topic, numbers in topics.items()
        for number in numbers
    }
    return Asked(plan, answer["ms"])


def owned_in(plan: Mapping[Partition, str], generation: int) -> dict[str, Owned]:
    """What the members of a plan say afterwards."""
    has = defaultdict(list)
    for partition, owner in plan.items():
        has[owner].append(partition)
    return {member_id: Owned(found, generation) for member_id, found in has.items()}


def _topics(partitions: Collection[Partition], racks: Racks) -> dict[str, list[list[str]]]:
    sizes = Counter(each.topic for each in partitions)
    return {
        topic: [sorted(racks.get(Partition(topic, number), ())) for number in range(size)]
        for topic, size in sizes.items()
    }


def _member(member: Subscriber, owned: Owned) -> dict[str, object]:
    has = defaultdict(list)
    for each in owned.partitions:
        has[each.topic].append(each.number)
    found: dict[str, object] = {
        "id": member.id,
        "topics": sorted(member.topics),
        "owned": has,
        "generation": owned.generation,
    }
    if member.rack:
        found["rack"] = member.rack
    if member.instance_id is not None:
        found["instance"] = member.instance_id
    return found
