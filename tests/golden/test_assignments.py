"""Plans that the brokers' own Java classes have made, kept beside this file: ours are the same.

`make oracles` renews them; tests/properties asks Java itself, and more.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.sticky import sticky
from tests.golden import kafka, rocketmq
from tests.golden.groups import numbered
from tests.properties.test_kafka_sticky import moves, unevenness
from tests.properties.test_rocketmq_strategies import Group as Clients
from tests.properties.test_rocketmq_strategies import by_client, strategy_for

if TYPE_CHECKING:
    from tests.golden.oracle import Oracle


def test_range_is_kafkas(kafka_assignors: Oracle) -> None:
    for seed in range(120):
        group = numbered(seed)
        theirs = kafka.ask(kafka_assignors, "range", group.members, group.partitions, racks=group.racks)
        assert range_(group.members, group.partitions, racks=group.racks) == theirs.plan, seed


def test_round_robin_is_kafkas(kafka_assignors: Oracle) -> None:
    for seed in range(80):
        group = numbered(seed)
        theirs = kafka.ask(kafka_assignors, "roundrobin", group.members, group.partitions, racks=group.racks)
        assert round_robin(group.members, group.partitions) == theirs.plan, seed


def test_sticky_is_as_even_as_kafkas_and_moves_as_few_when_half_of_the_members_leave(kafka_assignors: Oracle) -> None:
    for seed in range(80):
        group = numbered(seed)
        before = kafka.ask(kafka_assignors, "sticky", group.members, group.partitions, racks=group.racks).plan
        stay = group.members[: (len(group.members) + 1) // 2]
        ids = {member.id for member in stay}
        owned = kafka.owned_in({each: owner for each, owner in before.items() if owner in ids}, 1)
        theirs = kafka.ask(kafka_assignors, "sticky", stay, group.partitions, owned, racks=group.racks).plan
        ours = sticky(stay, group.partitions, before, racks=group.racks)
        assert (unevenness(ours, stay), moves(ours, before, stay)) <= (
            unevenness(theirs, stay),
            moves(theirs, before, stay),
        ), seed


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH"])
def test_a_strategy_is_rocketmqs(rocketmq_strategies: Oracle, name: str) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        sizes = [chance.randint(0, 20) for _ in range(chance.randint(0, 6))]
        group = Clients(chance.randint(1, 20), sizes, seed)
        if name == "CONFIG" and not any(group.lists.values()):
            continue  # refused at construction
        strategy = strategy_for(group, name)
        theirs = rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
        assert by_client(strategy, group.clients, group.queues) == theirs.plan, seed
