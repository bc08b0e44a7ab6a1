"""`sticky` for Kafka's model: against all plans that there are, for small groups; against Kafka's StickyAssignor."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.plugin.assign.members import Claim, Subscriber, last_owners
from holdfast.plugin.assign.sticky import sticky
from tests.golden import kafka
from tests.golden.groups import KINDS, MEMBERS, PARTITIONS, RACKS, TOPICS, Group, groups, partitions_of, subscriptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition
    from tests.golden.oracle import Oracle

    Plan = Mapping[Partition, str]

calm = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
# The same groups in each run: Kafka's class goes on until nothing gets better, and who knows whether that always ends.
beside = settings(calm, derandomize=True, database=None)


def unevenness(plan: Plan, members: Sequence[Subscriber]) -> int:
    """The differences of all pairs of sizes, summed up: the balance score of Kafka's own class."""
    counts = Counter(plan.values())
    sizes = sorted(counts[member.id] for member in members)
    return sum(size * (2 * i + 1 - len(sizes)) for i, size in enumerate(sizes))


def moves(plan: Plan, previous: Plan, members: Sequence[Subscriber]) -> int:
    """Partitions that somebody had who could have kept them."""
    may_keep = {(member.id, topic) for member in members for topic in member.topics}
    return sum(
        previous[partition] != owner
        for partition, owner in plan.items()
        if (previous.get(partition), partition.topic) in may_keep
    )


def valid(plan: Plan, members: Sequence[Subscriber], partitions: Sequence[Partition]) -> bool:
    """All that somebody wants is somebody's who wants it."""
    topics = {member.id: member.topics for member in members}
    wanted = frozenset().union(*topics.values())
    return plan.keys() == {each for each in partitions if each.topic in wanted} and all(
        partition.topic in topics[owner] for partition, owner in plan.items()
    )


class Changing:
    """A group that lives."""

    def __init__(self, rnd: random.Random, group: Group) -> None:
        self._rnd = rnd
        self._sizes = list(Counter(each.topic for each in group.partitions).values())
        self._racks = dict(group.racks)
        self._kind = rnd.choice(KINDS)
        self._next = len(group.members)
        self.members = group.members
        self.previous: Plan = {}

    @property
    def group(self) -> Group:
        return Group(members=self.members, partitions=partitions_of(self._sizes), racks=self._racks)

    def change(self, what: str) -> None:
        rnd = self._rnd
        if what == "join":
            joining = [self._somebody() for _ in range(min(rnd.randint(1, 5), MEMBERS - len(self.members)))]
            self.members = [*self.members, *joining]
        elif what == "leave":
            self.members = rnd.sample(self.members, max(1, len(self.members) - rnd.randint(1, 5)))
        elif what == "subscribe":
            which = rnd.randrange(len(self.members))
            changed = replace(self.members[which], topics=self._somebody().topics)
            self.members = [*self.members[:which], changed, *self.members[which + 1 :]]
        elif sum(self._sizes) + 10 <= PARTITIONS:
            if what == "topic" and len(self._sizes) < TOPICS:
                self._sizes.append(rnd.randint(1, 10))
            else:
                self._sizes[rnd.randrange(len(self._sizes))] += rnd.randint(1, 10)

    def _somebody(self) -> Subscriber:
        self._next += 1
        [topics] = subscriptions(self._rnd, self._kind, len(self._sizes), 1)
        rack = self._rnd.choice(RACKS) if self._racks else ""
        return Subscriber(id=f"m{self._next}", topics=topics, rack=rack)


@st.composite
def small(draw: st.DrawFn) -> tuple[list[Subscriber], list[Partition], Plan]:
    """So few that all their plans can be gone through; with previous owners, one of them gone."""
    partitions = partitions_of(draw(st.lists(st.integers(1, 2), min_size=2, max_size=3)))
    topics = sorted({each.topic for each in partitions})
    wanted = st.sets(st.sampled_from(topics), min_size=1).map(frozenset)
    members = [
        Subscriber(id=f"m{i}", topics=each, weight=draw(st.integers(1, 3)))
        for i, each in enumerate(draw(st.lists(wanted, min_size=2, max_size=3)))
    ]
    owners = st.sampled_from([None, "gone", *(member.id for member in members)])
    found = {each: draw(owners) for each in partitions}
    return members, partitions, {each: owner for each, owner in found.items() if owner}


class TestOfAllPlans:
    @settings(calm, max_examples=150)
    @given(small())
    def test_none_is_more_even_or_as_even_with_fewer_moves(
        self, case: tuple[list[Subscriber], list[Partition], Plan]
    ) -> None:
        members, partitions, previous = case
        may = {each: [member.id for member in members if each.topic in member.topics] for each in partitions}
        wanted = [each for each in partitions if may[each]]
        assume(len({tuple(may[each]) for each in wanted}) > 1)  # else all that want anything want the same

        weights = {member.id: member.weight for member in members}
        kept = [previous[each] if previous.get(each) in may[each] else None for each in wanted]

        def standing(owners: Sequence[str]) -> tuple[int, int]:
            # Six times the sum of size * size / weight is a whole number: weights are 1, 2, 3.
            uneven = sum(6 * size * size // weights[owner] for owner, size in Counter(owners).items())
            return uneven, sum(had is not None and had != owner for had, owner in zip(kept, owners, strict=True))

        plan = sticky(members, partitions, previous)
        assert valid(plan, members, partitions)
        every = itertools.product(*(may[each] for each in wanted))
        assert standing([plan[each] for each in wanted]) == min(map(standing, every))


@pytest.mark.full
class TestBesideKafkas:
    # Each example is up to seven groups.
    @settings(beside, max_examples=300)
    @given(
        groups(),
        st.lists(st.sampled_from(("join", "leave", "subscribe", "topic", "partitions")), max_size=6),
        st.booleans(),
        st.integers(0, 2**16),
    )
    def test_step_by_step_it_is_as_even_and_moves_as_few_or_better(
        self,
        kafka_assignors: Oracle,
        group: Group,
        changes: list[str],
        theirs_goes_on: bool,
        seed: int,
    ) -> None:
        changing = Changing(random.Random(seed), group)
        for generation, what in enumerate(["", *changes]):
            changing.change(what) if what else None
            group, previous = changing.group, changing.previous
            ours = sticky(group.members, group.partitions, previous, racks=group.racks)
            ids = {member.id for member in group.members}
            owned = kafka.owned_in({each: owner for each, owner in previous.items() if owner in ids}, generation)
            theirs = kafka.ask(
                kafka_assignors, "sticky", group.members, group.partitions, owned, racks=group.racks
            ).plan
            assert valid(ours, group.members, group.partitions)
            assert (unevenness(ours, group.members), moves(ours, previous, group.members)) <= (
                unevenness(theirs, group.members),
                moves(theirs, previous, group.members),
            )
            changing.previous = theirs if theirs_goes_on else ours

    @settings(beside, max_examples=200)
    @given(groups(), st.integers(0, 2**16))
    def test_where_members_claim_the_same_too(self, kafka_assignors: Oracle, group: Group, seed: int) -> None:
        rnd = random.Random(seed)
        owned = {
            member.id: kafka.Owned(
                [each for each in group.partitions if each.topic in member.topics and rnd.random() < 0.1],
                rnd.randint(1, 3),
            )
            for member in group.members
        }
        previous = last_owners(Claim(member_id, *each) for member_id, each in owned.items())
        ours = sticky(group.members, group.partitions, previous)
        theirs = kafka.ask(kafka_assignors, "sticky", group.members, group.partitions, owned).plan
        assert valid(ours, group.members, group.partitions)
        assert (unevenness(ours, group.members), moves(ours, previous, group.members)) <= (
            unevenness(theirs, group.members),
            moves(theirs, previous, group.members),
        )


@settings(calm, max_examples=100)
@given(groups(), groups(), st.randoms(use_true_random=False))
def test_the_order_of_what_it_is_given_says_nothing(before: Group, group: Group, rnd: random.Random) -> None:
    previous = sticky(before.members, before.partitions, {}, racks=before.racks)
    plan = sticky(group.members, group.partitions, previous, racks=group.racks)
    members, partitions, had = group.members[:], group.partitions[:], list(previous.items())
    for each in (members, partitions, had):
        rnd.shuffle(each)
    assert sticky(members, partitions, dict(had), racks=group.racks) == plan


@settings(calm, max_examples=100)
@given(groups())
def test_its_own_plan_stays(group: Group) -> None:
    plan = sticky(group.members, group.partitions, {}, racks=group.racks)
    assert sticky(group.members, group.partitions, plan, racks=group.racks) == plan
