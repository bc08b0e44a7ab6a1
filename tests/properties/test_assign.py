"""Strategies against what they promise: for small groups, against all plans that there are."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.groups import GroupMember
from holdfast.errors import SettingError
from holdfast.plugin.assign import strategy_of
from holdfast.plugin.assign.rocketmq import average
from holdfast.plugin.assign.sticky import sticky
from holdfast.records import Partition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Plan = Mapping[Partition, str]


def member(name: str, weight: int = 1) -> GroupMember:
    return GroupMember(f"{name}#1", name, weight)


def members_of(count: int) -> list[GroupMember]:
    return [member(f"m{i:03}") for i in range(count)]


def topic(name: str, count: int) -> list[Partition]:
    return [Partition(name, number, f"broker-{number % 2}") for number in range(count)]


def moves(plan: Plan, previous: Plan, members: Sequence[GroupMember]) -> int:
    ids = {each.id for each in members}
    return sum(previous.get(queue) in ids - {owner} for queue, owner in plan.items())


def fair(plan: Plan, members: Sequence[GroupMember]) -> bool:
    """Each has its share, rounded up or down."""
    counts, weight = Counter(plan.values()), sum(each.weight for each in members)
    exact = {each.id: len(plan) * each.weight / weight for each in members}
    return all(abs(counts[member_id] - share) < 1 - 1e-9 for member_id, share in exact.items())


def spread(plan: Plan, members: Sequence[GroupMember], of_topic: str) -> int:
    counts = Counter(owner for queue, owner in plan.items() if queue.topic == of_topic)
    numbers = [counts[each.id] for each in members]
    return max(numbers) - min(numbers)


def all_plans(members: Sequence[GroupMember], queues: Sequence[Partition]) -> Iterator[Plan]:
    for owners in itertools.product([each.id for each in members], repeat=len(queues)):
        yield dict(zip(queues, owners, strict=True))


weights = st.lists(st.integers(1, 4), min_size=1, max_size=3)
sizes = st.lists(st.integers(1, 3), min_size=1, max_size=2)
#: Of members that are there, and of one that is not.
histories = st.lists(st.integers(0, 3), min_size=6, max_size=6)


def setting(
    weights: list[int], sizes: list[int], history: list[int]
) -> tuple[list[GroupMember], list[Partition], Plan]:
    members = [member(f"m{i}", weight) for i, weight in enumerate(weights)]
    queues = [queue for i, size in enumerate(sizes) for queue in topic(f"t{i}", size)]
    named = {queue: f"m{number}#1" for queue, number in zip(queues, history, strict=False)}
    return members, queues, {queue: owner for queue, owner in named.items() if owner != "m3#1"}


class TestSticky:
    @given(weights, sizes, histories)
    def test_each_has_its_share_with_the_fewest_moves_there_are(
        self, weights: list[int], sizes: list[int], history: list[int]
    ) -> None:
        members, queues, previous = setting(weights, sizes, history)
        plan = sticky(members, queues, previous)
        assert plan.keys() == set(queues)
        assert fair(plan, members)
        best = min(moves(other, previous, members) for other in all_plans(members, queues) if fair(other, members))
        assert moves(plan, previous, members) == best

    @given(st.integers(1, 12), st.lists(st.integers(1, 30), min_size=1, max_size=6))
    def test_from_nothing_all_topics_are_even_too(self, count: int, sizes: list[int]) -> None:
        members = members_of(count)
        queues = [queue for i, size in enumerate(sizes) for queue in topic(f"t{i}", size)]
        plan = sticky(members, queues, {})
        assert fair(plan, members)
        assert all(spread(plan, members, f"t{i}") <= 1 for i in range(len(sizes)))

    @given(weights, sizes, histories, st.randoms(use_true_random=False))
    def test_the_order_of_what_it_is_given_says_nothing(
        self, weights: list[int], sizes: list[int], history: list[int], rnd: random.Random
    ) -> None:
        members, queues, previous = setting(weights, sizes, history)
        plan = sticky(members, queues, previous)
        shuffled = list(previous.items())
        for each in (members, queues, shuffled):
            rnd.shuffle(each)
        assert sticky(members, queues, dict(shuffled)) == plan

    @given(weights, sizes, histories)
    def test_its_own_plan_stays(self, weights: list[int], sizes: list[int], history: list[int]) -> None:
        members, queues, previous = setting(weights, sizes, history)
        plan = sticky(members, queues, previous)
        assert sticky(members, queues, plan) == plan

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
    def test_members_that_come_and_go_move_no_more_than_they_must(self, changes: list[tuple[bool, int]]) -> None:
        queues = [queue for i in range(5) for queue in topic(f"t{i}", 7)]
        names, plan = {0}, sticky([member("m0")], queues, {})
        for come, number in changes:
            names = names | {number} if come else (names - {number} or {number})
            members = [member(f"m{each}") for each in sorted(names)]
            previous, plan = plan, sticky(members, queues, plan)
            counts = Counter(plan.values())
            assert max(counts.values()) - min(counts.values()) <= 1
            had = Counter(previous.values())
            gained = sum(max(0, counts[each.id] - had[each.id]) for each in members)
            ids = {each.id for each in members}
            free = sum(owner not in ids for owner in previous.values())
            assert moves(plan, previous, members) == gained - free

    def test_a_newcomer_gets_some_of_each_topic(self) -> None:
        queues = [queue for name in "abc" for queue in topic(name, 4)]
        two, three = members_of(2), members_of(3)
        before = sticky(two, queues, {})
        plan = sticky(three, queues, before)
        assert moves(plan, before, three) == 4
        assert [spread(plan, three, name) for name in "abc"] == [1, 1, 1]

    def test_a_weight_of_three_gets_three_times_as_much(self) -> None:
        members = [member("big", 300), member("small", 100)]
        plan = sticky(members, [*topic("a", 8), *topic("b", 4)], {})
        assert Counter((queue.topic, owner) for queue, owner in plan.items()) == {
            ("a", "big#1"): 6,
            ("a", "small#1"): 2,
            ("b", "big#1"): 3,
            ("b", "small#1"): 1,
        }


def java_average(clients: Sequence[str], queues: Sequence[Partition], client: str) -> list[Partition]:
    """AllocateMessageQueueAveragely.allocate of the Java client 5.x, of one topic, line by line."""
    index = clients.index(client)
    mod = len(queues) % len(clients)
    average_size = (
        1
        if len(queues) <= len(clients)
        else (len(queues) // len(clients) + 1 if mod > 0 and index < mod else len(queues) // len(clients))
    )
    start = index * average_size if mod > 0 and index < mod else index * average_size + mod
    size = min(average_size, len(queues) - start)
    return [queues[(start + i) % len(queues)] for i in range(size)]


class TestAverage:
    @given(st.integers(1, 9), st.lists(st.integers(1, 20), min_size=1, max_size=3), st.randoms(use_true_random=False))
    def test_it_is_what_javas_clients_do(self, count: int, sizes: list[int], rnd: random.Random) -> None:
        members = members_of(count)
        queues = [queue for i, size in enumerate(sizes) for queue in topic(f"t{i}", size)]
        shuffled = [*queues]
        rnd.shuffle(members)
        rnd.shuffle(shuffled)
        plan = average(members, shuffled, {})
        clients = sorted(each.client_id for each in members)
        for i in range(len(sizes)):
            ordered = sorted((queue for queue in queues if queue.topic == f"t{i}"), key=lambda q: (q.broker, q.number))
            for client in clients:
                mine = [queue for queue in ordered if plan[queue] == f"{client}#1"]
                assert mine == java_average(clients, ordered, client)


class TestNames:
    def test_users_names_are_known(self) -> None:
        assert strategy_of("sticky") is sticky
        assert strategy_of("AVG") is average
        own: Callable[..., dict[Partition, str]] = lambda members, queues, previous: {}  # noqa: E731
        assert strategy_of(own) is own

    def test_others_are_refused_with_those_that_there_are(self) -> None:
        with pytest.raises(SettingError, match="'sticky' or 'AVG' or"):
            strategy_of("stickyy")
