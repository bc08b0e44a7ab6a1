"""RocketMQ's strategies against the classes of its own Java client, asked client by client."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.dedup.groups import GroupMember
from holdfast.errors import SettingError
from holdfast.plugin.assign import (
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    average,
    by_circle,
    sticky,
    strategy_of,
)
from holdfast.records import Partition
from tests.golden import rocketmq
from tests.golden.rocketmq import before_the_sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.groups import Strategy
    from tests.golden.oracle import Oracle

#: Brokers as they are named, and as only a test would: what Java's split and compareTo do with them.
BROKERS = [
    "broker-a",
    "broker-b",
    "hz1@b1",
    "hz1@b2",
    "hz2@b1",
    "hz3@b1",
    "hz1@",
    "@b1",
    "hz1@b1@",
    "hz1@b@c",
    "hz1@@b",
]
ODD = ["ü@b", "\uffee@b", "\U0001f600@b", "\U0001f600", "\uffee", "Ünicode", "Z", "a", "_"]
ROOMS = ["hz1", "hz2", "hz3", "hz4", "ü"]


def members_of(clients: Sequence[str]) -> list[GroupMember]:
    return [GroupMember(f"{client}#1", client) for client in clients]


def by_client(strategy: Strategy, clients: Sequence[str], queues: Sequence[Partition]) -> dict[Partition, str]:
    return {queue: owner.removesuffix("#1") for queue, owner in strategy(members_of(clients), queues, {}).items()}


class Group:
    """A group of any size, made of a few numbers, so that what differs can be made smaller."""

    def __init__(self, clients: int, sizes: Sequence[int], seed: int) -> None:
        chance = Random(seed)
        self.clients = [f"{chance.choice(ROOMS)}@{i}.{chance.choice(['', *ODD])}" for i in range(clients)]
        names = chance.sample([*BROKERS, *ODD], k=chance.randint(1, 6))
        self.queues = [
            Partition(f"topic-{topic}", number // len(names), names[number % len(names)])
            for topic, size in enumerate(sizes)
            for number in range(size)
        ]
        chance.shuffle(self.clients)
        chance.shuffle(self.queues)
        self.rooms = chance.sample(ROOMS, k=chance.randint(1, 4))
        self.places = chance.choice([1, 2, 10, 10, 37])
        self.lists: dict[str, list[Partition]] = {client: [] for client in [*self.clients, "who is not there"]}
        for queue in self.queues:
            if chance.random() < 0.8:
                self.lists[chance.choice([*self.lists])].append(queue)

    def __repr__(self) -> str:
        return f"Group(clients={self.clients}, queues={self.queues}, rooms={self.rooms}, places={self.places})"


def groups(clients: int, topics: int, queues: int) -> st.SearchStrategy[Group]:
    """Of so many queues at most, in all."""
    sizes = st.lists(st.integers(0, 30) | st.integers(0, queues), max_size=topics)
    fitting = sizes.map(
        lambda found: [size for size, sum_ in zip(found, accumulate(found), strict=True) if sum_ <= queues]
    )
    return st.builds(Group, clients=st.integers(1, clients), sizes=fitting, seed=st.integers(0, 10**6))


def strategy_for(group: Group, name: str, inner: Strategy = average) -> Strategy:
    if name == "CONSISTENT_HASH":
        return ConsistentHash(virtual_nodes=group.places)
    if name == "CONFIG":
        return ByConfig(queues=group.lists)
    if name == "MACHINE_ROOM":
        return MachineRoom(rooms=group.rooms)
    if name == "MACHINE_ROOM_NEARBY":
        return MachineRoomNearby(broker_room=before_the_sign, client_room=before_the_sign, inner=inner)
    return strategy_of(name)


LARGE, SMALL = groups(60, 20, 400), groups(12, 5, 60)


@pytest.mark.full
class TestAgainstJava:
    @pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM"])
    @settings(max_examples=400)
    @given(group=LARGE)
    def test_a_plan_is_that_of_the_class(self, rocketmq_strategies: Oracle, name: str, group: Group) -> None:
        assume(name != "CONFIG" or any(group.lists.values()))  # refused at construction
        strategy = strategy_for(group, name)
        theirs = rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
        assert by_client(strategy, group.clients, group.queues) == theirs.plan
        assert theirs.name == name

    @settings(max_examples=500)
    @given(group=SMALL)
    def test_a_plan_by_consistent_hash_is_that_of_the_class(self, rocketmq_strategies: Oracle, group: Group) -> None:
        """Smaller groups: the class builds its ring for each client and topic, and that by the square."""
        strategy = strategy_for(group, "CONSISTENT_HASH")
        theirs = rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
        assert by_client(strategy, group.clients, group.queues) == theirs.plan
        assert theirs.name == "CONSISTENT_HASH"

    @settings(max_examples=500)
    @given(group=SMALL, inner=st.sampled_from([average, by_circle, ConsistentHash()]))
    def test_a_plan_by_nearby_rooms_is_that_of_the_class(
        self, rocketmq_strategies: Oracle, group: Group, inner: Strategy
    ) -> None:
        strategy = strategy_for(group, "MACHINE_ROOM_NEARBY", inner)
        if not all(before_the_sign(queue.broker) for queue in group.queues):
            with pytest.raises(ValueError, match="Machine room is null"):
                rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
            with pytest.raises(SettingError, match=r"broker_room=''.*'@b1'"):
                by_client(strategy, group.clients, group.queues)
            return
        theirs = rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
        assert by_client(strategy, group.clients, group.queues) == theirs.plan
        assert theirs.name.startswith("MACHINE_ROOM_NEARBY-")

    @pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM"])
    def test_a_plan_of_a_large_group_is_that_of_the_class(self, rocketmq_strategies: Oracle, name: str) -> None:
        group = Group(60, [20] * 20, seed=7)
        strategy = strategy_for(group, name)
        theirs = rocketmq.ask(rocketmq_strategies, strategy, group.clients, group.queues)
        assert by_client(strategy, group.clients, group.queues) == theirs.plan


class TestAnyOrder:
    @pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM"])
    @given(group=SMALL, chance=st.randoms(use_true_random=False))
    def test_the_order_of_what_is_given_does_not_matter(self, name: str, group: Group, chance: Random) -> None:
        assume(name != "CONFIG" or any(group.lists.values()))
        strategy = strategy_for(group, name)
        before = by_client(strategy, group.clients, group.queues)
        chance.shuffle(group.clients)
        chance.shuffle(group.queues)
        assert by_client(strategy, group.clients, group.queues) == before


A0, A1, B0 = Partition("t", 0, "broker-a"), Partition("t", 1, "broker-a"), Partition("t", 0, "broker-b")


class TestByConfig:
    def test_a_client_is_known_by_its_instance_name_at_every_start(self) -> None:
        strategy = ByConfig(queues={"shop-1": [A0], "10.0.0.8@shop-2": [A1], "10.0.0.9@shop-3#holdfast#77": [B0]})
        clients = ["10.0.0.7@shop-1#holdfast#01", "10.0.0.8@shop-2#holdfast#02", "10.0.0.9@shop-3#holdfast#77"]
        assert by_client(strategy, clients, [A0, A1, B0]) == dict(zip([A0, A1, B0], clients, strict=True))

    def test_what_is_in_no_list_is_nobodys_and_what_is_gone_is_not_planned(self) -> None:
        strategy = ByConfig(queues={"shop-1": [A0, A1], "shop-2": [B0]})
        assert by_client(strategy, ["x@shop-1"], [A0, B0, Partition("t", 9, "broker-a")]) == {A0: "x@shop-1"}

    def test_of_two_of_one_name_the_first_has_the_list(self) -> None:
        assert by_client(ByConfig(queues={"s": [A0]}), ["2@s", "1@s"], [A0]) == {A0: "1@s"}

    def test_a_queue_of_two_clients_is_refused(self) -> None:
        with pytest.raises(SettingError, match=r"'shop-1' and 'shop-2' both have it: leave it to one of them"):
            ByConfig(queues={"shop-1": [A0, A1], "shop-2": [B0, A1]})

    @pytest.mark.parametrize("queues", [{}, {"shop-1": []}])
    def test_no_queue_at_all_is_refused(self, queues: dict[str, list[Partition]]) -> None:
        with pytest.raises(SettingError, match="give a list of queues for each client"):
            ByConfig(queues=queues)


class TestRooms:
    def test_a_room_without_clients_is_shared_by_all_and_comes_home_when_one_is_there(self) -> None:
        nearby = MachineRoomNearby(broker_room=before_the_sign, client_room=before_the_sign)
        queues = [Partition("t", number, f"hz{number % 2}@b") for number in range(4)]
        alone = by_client(nearby, ["hz0@1", "hz0@2"], queues)
        assert {alone[queue] for queue in queues if queue.broker == "hz1@b"} == {"hz0@1", "hz0@2"}
        both = by_client(nearby, ["hz0@1", "hz0@2", "hz1@3"], queues)
        assert {both[queue] for queue in queues if queue.broker == "hz1@b"} == {"hz1@3"}

    def test_the_sticky_strategy_works_inside_rooms(self) -> None:
        nearby = MachineRoomNearby(broker_room=before_the_sign, client_room=before_the_sign, inner=sticky)
        queues = [Partition(f"t{number % 5}", number, f"hz{number % 2}@b") for number in range(20)]
        members = members_of(["hz0@1", "hz0@2", "hz0@3", "hz1@1"])
        before = nearby(members, queues, {})
        after = nearby(members[1:], queues, before)
        assert {queue for queue in queues if before[queue] != after[queue]} == {
            queue for queue, owner in before.items() if owner == "hz0@1#1"
        }

    def test_a_client_in_no_room_is_an_error_that_names_it(self) -> None:
        nearby = MachineRoomNearby(broker_room=before_the_sign, client_room=lambda client: client.partition("?")[2])
        with pytest.raises(SettingError, match=r"client_room='': name the machine room of '10.0.0.7@shop'"):
            by_client(nearby, ["10.0.0.7@shop"], [A0])

    @pytest.mark.parametrize("rooms", ["hz1", [], {"hz1@b1"}])
    def test_rooms_that_no_broker_is_in_are_refused(self, rooms: str | list[str]) -> None:
        with pytest.raises(SettingError, match="rooms"):
            MachineRoom(rooms=rooms)

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(SettingError, match="client_room='hz1': give a function from a client id to its room"):
            MachineRoomNearby(broker_room=before_the_sign, client_room="hz1")  # type: ignore[arg-type]


class TestConsistentHash:
    @pytest.mark.parametrize("places", [0, -1, True])
    def test_a_ring_without_places_is_refused(self, places: int) -> None:
        with pytest.raises(SettingError, match="virtual_nodes"):
            ConsistentHash(virtual_nodes=places)

    def test_who_comes_takes_and_nothing_else_moves(self) -> None:
        queues = [Partition("t", number, "b") for number in range(200)]
        clients = [f"10.0.0.{number}@x" for number in range(8)]
        before, after = by_client(ConsistentHash(), clients[1:], queues), by_client(ConsistentHash(), clients, queues)
        assert {after[queue] for queue in queues if after[queue] != before[queue]} == {clients[0]}

    def test_two_members_of_one_client_id_both_have_places(self) -> None:
        members = [GroupMember("1", "same"), GroupMember("2", "same")]
        plan = ConsistentHash()(members, [Partition("t", number, "b") for number in range(200)], {})
        assert {*plan.values()} == {"1", "2"}


class TestNames:
    @pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
    def test_names_are_those_of_the_classes(self, rocketmq_strategies: Oracle, name: str) -> None:
        assert rocketmq.ask(rocketmq_strategies, strategy_of(name), ["a"], [A0]).name == name

    @pytest.mark.parametrize(
        ("name", "made"),
        [
            ("CONFIG", "ByConfig"),
            ("MACHINE_ROOM", r"MachineRoom\("),
            ("MACHINE_ROOM_NEARBY", "MachineRoomNearby"),
            ("MACHINE_ROOM_NEARBY-AVG", "MachineRoomNearby"),
        ],
    )
    def test_one_that_has_to_be_told_more_says_what(self, name: str, made: str) -> None:
        with pytest.raises(SettingError, match=rf"a name is not enough for it: give holdfast.plugin.assign's {made}"):
            strategy_of(name)
