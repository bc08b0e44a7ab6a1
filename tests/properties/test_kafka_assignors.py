"""Range and round robin against Kafka's own Java classes: equal, member for member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.plugin.assign.kafka import range_, round_robin
from tests.golden import kafka
from tests.golden.groups import Group, groups

if TYPE_CHECKING:
    import random

    from tests.golden.oracle import Oracle

# Drawing a group of 60 is slow by nature.
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.full
@settings(calm, max_examples=700)
@given(groups())
def test_range_is_javas(kafka_assignors: Oracle, group: Group) -> None:
    theirs = kafka.ask(kafka_assignors, "range", group.members, group.partitions, racks=group.racks)
    assert range_(group.members, group.partitions, racks=group.racks) == theirs.plan


@pytest.mark.full
@settings(calm, max_examples=300)
@given(groups())
def test_round_robin_is_javas(kafka_assignors: Oracle, group: Group) -> None:
    theirs = kafka.ask(kafka_assignors, "roundrobin", group.members, group.partitions, racks=group.racks)
    assert round_robin(group.members, group.partitions) == theirs.plan


@settings(calm, max_examples=50)
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_what_they_are_given_says_nothing(group: Group, rnd: random.Random) -> None:
    members, partitions = group.members[:], group.partitions[:]
    rnd.shuffle(members)
    rnd.shuffle(partitions)
    assert range_(members, partitions, racks=group.racks) == range_(group.members, group.partitions, racks=group.racks)
    assert round_robin(members, partitions) == round_robin(group.members, group.partitions)
