"""What members of a group can rely on, in memory, in a real Redis, and with its scripts in this process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.dedup import membership
from holdfast.dedup.groups import Member
from holdfast.errors import ClusterDiffers, SettingError, SubscriptionDiffers
from holdfast.plugin.assign import MachineRoom
from holdfast.timing import Deadline
from tests.harness.store_groups import GROUP, ClusterBench, Group, LuaBench, MemoryBench, RedisBench, group_of, queues
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.dedup.groups import GroupMember
    from holdfast.records import Partition
    from tests.harness.store_groups import Bench, Seat

EIGHT = queues(8)
#: Longer than a busy machine stands still; with `beating` it is renewed as often as one of half a second.
CALM_S = 30.0


@pytest.fixture(
    params=[
        "memory",
        "redis",
        "redis in 3 shards",
        "lua",
        pytest.param("cluster in 3 shards", marks=pytest.mark.full),
    ]
)
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made: Bench = MemoryBench()
    if request.param == "lua":
        made = LuaBench("")
    elif request.param.startswith("cluster"):
        made = ClusterBench(request.getfixturevalue("redis_cluster").url, shards=3)
    elif request.param != "memory":
        made = RedisBench(request.getfixturevalue("redis_url"), shards=3 if "3" in request.param else 1)
    yield from group_of(made)


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members beat, and so learn what became of others, each fifth of a second under a lease that does not end."""
    monkeypatch.setattr(membership, "_BEAT_EVERY", 0.2 / CALM_S)


def at(*servers: str) -> frozenset[str]:
    return frozenset(servers)


class TestClusters:
    def test_who_sees_no_server_of_the_others_is_refused_and_both_are_named(self, group: Group) -> None:
        a = group.join("a", EIGHT, servers=at("10.0.0.1:9876", "10.0.0.2:10911"))
        before = a.planned(a)
        with pytest.raises(ClusterDiffers, match=r"\(a\) .*10\.0\.0\.1:9876, .*10\.9\.9\.9:9876.*namespace="):
            group.join("b", EIGHT, servers=at("10.9.9.9:9876"))
        assert a.planned(a).stamp == before.stamp  # nothing has moved for it

    def test_one_server_that_both_see_is_enough(self, group: Group) -> None:
        a = group.join("a", EIGHT, servers=at("10.0.0.1:9876", "10.0.0.2:10911"))
        b = group.join("b", EIGHT, servers=at("10.0.0.1:9876", "10.0.0.3:10911"))
        b.planned(a, b)

    def test_who_does_not_tell_is_let_in_and_lets_others_in(self, group: Group) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT, servers=at("10.0.0.1:9876"))
        b.planned(a, b)

    def test_servers_that_move_one_after_the_other_are_followed(self, group: Group) -> None:
        a = group.join("a", EIGHT, servers=at("10.0.0.1:9876", "10.0.0.2:10911"))
        a.membership.offer(EIGHT, ["10.0.0.1:9876", "10.0.0.3:10911"])
        b = until(lambda: joins(group, at("10.0.0.3:10911")))
        b.planned(a, b)

    def test_a_cluster_whose_members_have_gone_leaves_room_for_another(self, group: Group) -> None:
        a = group.join("a", EIGHT, servers=at("10.0.0.1:9876"))
        a.membership.leave(Deadline(5.0))
        b = group.join("b", EIGHT, servers=at("10.9.9.9:9876"))
        assert b.planned(b).of(b.id) == set(EIGHT)


def joins(group: Group, servers: frozenset[str]) -> Seat | None:
    try:
        return group.join("b", EIGHT, servers=servers)
    except ClusterDiffers:
        return None


class TestMembers:
    def test_who_joins_is_in_the_plan_of_all(self, group: Group) -> None:
        a = group.join("a", EIGHT)
        assert a.planned(a).of(a.id) == set(EIGHT)
        b = group.join("b", EIGHT)
        assert b.planned(a, b) == a.planned(a, b)
        assert {member.client_id for member in a.membership.members()} == {"a", "b"}

    def test_who_leaves_has_published_the_plan_without_it(self, group: Group) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT)
        a.planned(a, b)
        a.membership.leave(Deadline(5.0))
        state = group.bench.coordinator.describe(GROUP)
        assert state.settled
        assert set(state.plan.owners.values()) == {b.id}
        assert a.membership.lost
        assert b.planned(b).stamp == state.plan.stamp

    def test_the_dead_are_removed_and_learn_of_it(self, group: Group, beating: None) -> None:
        a, b = group.join("a", EIGHT, lease_s=CALM_S), group.join("b", EIGHT, lease_s=CALM_S)
        a.planned(a, b)
        group.bench.kill(b.id)
        a.planned(a)
        b.until(lambda: b.membership.lost)

    def test_who_was_lost_joins_anew_under_another_id(self, group: Group, beating: None) -> None:
        a, b = group.join("a", EIGHT, lease_s=CALM_S), group.join("b", EIGHT, lease_s=CALM_S)
        group.bench.kill(b.id)
        b.until(lambda: b.membership.lost)
        again = group.join("b", EIGHT)
        assert again.id != b.id
        assert a.planned(a, again).of(b.id) == frozenset()

    def test_whoever_is_not_vouched_for_is_removed(self, group: Group, beating: None) -> None:
        a, b = group.join("a", EIGHT, lease_s=CALM_S), group.join("b", EIGHT, lease_s=0.6)
        # This machine may stand still for that lease: then b is out already.
        a.until(lambda: b.id in a.membership.plan().owners.values() or b.membership.lost)
        b.membership.vouch(0.0)
        b.until(lambda: b.membership.lost)
        a.planned(a)

    def test_whoever_is_vouched_for_again_in_time_stays(self, group: Group) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT)
        b.membership.vouch(0.0)
        b.membership.vouch(60.0)
        a.planned(a, b)
        assert not b.membership.lost

    def test_leaving_twice_and_after_a_loss_is_quiet(self, group: Group) -> None:
        a = group.join("a", EIGHT)
        a.membership.leave(Deadline(5.0))
        a.membership.leave(Deadline(5.0))
        b = group.join("b", EIGHT, lease_s=0.5)
        group.bench.kill(b.id)
        b.until(lambda: b.membership.lost)
        b.membership.leave(Deadline(5.0))

    def test_many_at_once_make_ten_plans_a_second_at_most(self, group: Group) -> None:
        first = group.join("first", EIGHT)
        first.planned(first)
        before = first.membership.plan().generation
        began = time.monotonic()
        for i in range(20):
            group.join(f"c{i}", queues(40))
            time.sleep(0.01)  # each has the time to make a plan of its own
        first.until(lambda: len(set(first.membership.plan().owners.values())) == 21)
        assert first.membership.plan().generation - before <= 2 + 10 * (time.monotonic() - began)

    def test_the_plan_stays_as_it_is_when_nothing_happens(self, group: Group, beating: None) -> None:
        a, b = group.join("a", EIGHT, lease_s=CALM_S), group.join("b", EIGHT, lease_s=CALM_S)
        plan = a.planned(a, b)
        a.membership.offer(list(reversed(EIGHT)))
        for _ in range(3):
            group.until_renewed(a)
        assert a.membership.plan() is plan
        assert b.membership.plan() == plan


class TestQueues:
    def test_what_one_member_sees_is_in_the_plan(self, group: Group) -> None:
        a, b = group.join("a", EIGHT[:4]), group.join("b", EIGHT[2:])
        assert set(a.planned(a, b).owners) == set(EIGHT)

    def test_a_queue_goes_when_no_member_sees_it_any_more(self, group: Group) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT)
        a.planned(a, b)
        a.membership.offer(EIGHT[:-1])
        a.until(lambda: group.bench.coordinator.describe(GROUP).settled)
        assert EIGHT[-1] in group.bench.coordinator.describe(GROUP).plan.owners
        b.membership.offer(EIGHT[:-1])
        b.until(lambda: set(b.membership.plan().owners) == set(EIGHT[:-1]))

    def test_who_sees_nothing_yet_takes_nothing_away(self, group: Group) -> None:
        a = group.join("a", EIGHT)
        b = group.join("b")
        assert set(a.planned(a, b).owners) == set(EIGHT)

    def test_new_queues_come_into_the_plan(self, group: Group) -> None:
        a = group.join("a")
        a.membership.offer(EIGHT)
        a.until(lambda: set(a.membership.plan().owners) == set(EIGHT))
        new = [*EIGHT, *queues(3, topic="%RETRY%billing", broker="broker-b")]
        a.membership.offer(new)
        a.until(lambda: set(a.membership.plan().owners) == set(new))


class TestSubscriptions:
    def test_a_differing_subscription_is_refused_with_both(self, group: Group) -> None:
        group.join("host-1@17", subscription="orders: tag-a")
        with pytest.raises(SubscriptionDiffers, match=r"host-1@17.*'orders: tag-a'.*'orders: tag-b'"):
            group.join("b", subscription="orders: tag-b")

    def test_an_empty_group_takes_the_new_one(self, group: Group) -> None:
        group.join("a", subscription="x").membership.leave(Deadline(5.0))
        group.join("b", EIGHT, subscription="y")
        assert group.bench.coordinator.describe(GROUP).subscription == "y"

    def test_the_dead_do_not_count(self, group: Group) -> None:
        a = group.join("a", subscription="x")
        group.bench.kill(a.id)
        group.join("b", subscription="y")


class TestStrategies:
    def test_a_strategy_that_fails_or_leaves_queues_out_changes_nothing(self, group: Group) -> None:
        called = threading.Event()

        def leaves_out(
            members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
        ) -> dict[Partition, str]:
            called.set()
            return {}

        a = group.join("a", EIGHT, strategy=leaves_out)
        called.wait()
        b = group.join("b", EIGHT)
        assert b.planned(a, b).generation == 1

    def test_one_that_may_leave_queues_out_does_and_says_so(
        self, group: Group, caplog: pytest.LogCaptureFixture
    ) -> None:
        strategy = MachineRoom(rooms={"hz1"})
        read, not_read = queues(2, broker="hz1@b"), queues(2, broker="hz2@b")
        a = group.join("a", [*read, *not_read], strategy=strategy)
        assert a.planned(a).of(a.id) == {*read}
        assert "to no member, so no member reads them: orders-hz2@b-0, orders-hz2@b-1" in caplog.text
        b = group.join("b", [*read, *not_read], strategy=strategy)
        assert {len(b.planned(a, b).of(each.id)) for each in (a, b)} == {1}
        b.membership.leave(Deadline(5.0))
        assert a.planned(a).of(a.id) == {*read}

    def test_one_that_leaves_all_queues_out_says_so(self, group: Group, caplog: pytest.LogCaptureFixture) -> None:
        a = group.join("a", EIGHT, strategy=MachineRoom(rooms={"hz1"}))
        a.until(lambda: "no member reads them: orders-broker-a-0, " in caplog.text)
        assert not a.own()

    def test_it_is_told_the_weights(self, group: Group) -> None:
        told = []

        def note(
            members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
        ) -> dict[Partition, str]:
            told.append([(member.client_id, member.weight) for member in members])
            return dict.fromkeys(queues, members[0].id)

        a = group.join("a", EIGHT, weight=3, strategy=note)
        a.planned(a)
        assert told == [[("a", 3)]]

    @pytest.mark.parametrize("weight", [0, -1, 1001, True])
    def test_a_weight_that_cannot_work_is_refused(self, weight: int) -> None:
        with pytest.raises(SettingError, match="weight"):
            Member(client_id="a", subscription="x", weight=weight)


class TestTools:
    def test_a_group_is_described_from_the_side(self, group: Group) -> None:
        a = group.join("a", EIGHT)
        a.planned(a)
        state = group.bench.coordinator.describe(GROUP)
        assert [member.id for member in state.members] == [a.id]
        assert state.plan == a.membership.plan()
        assert 0 < state.left_s[a.id] <= 3600
        assert state.queues == set(EIGHT)
        assert group.bench.coordinator.members(GROUP) == state.members

    def test_only_a_group_without_a_living_member_is_removed(self, group: Group) -> None:
        a = group.join("a", EIGHT)
        assert not group.bench.coordinator.remove(GROUP)
        a.membership.leave(Deadline(5.0))
        assert group.bench.coordinator.remove(GROUP)
        assert group.bench.coordinator.describe(GROUP).plan.generation == 0

    def test_what_is_noted_outlives_the_members_and_goes_with_the_group(self, group: Group) -> None:
        coordinator = group.bench.coordinator
        a = group.join("a", EIGHT)
        coordinator.note(GROUP, {"one": "1", "two": "2"})
        coordinator.note(GROUP, {"two": "ä"})
        a.membership.leave(Deadline(5.0))
        assert coordinator.noted(GROUP, ["two", "three", "one"]) == ["ä", None, "1"]
        assert coordinator.noted("another", ["one"]) == [None]
        coordinator.note(GROUP, {"two": None, "three": None, "four": "4"})
        assert coordinator.noted(GROUP, ["two", "three", "four", "one"]) == [None, None, "4", "1"]
        assert coordinator.remove(GROUP)
        assert coordinator.noted(GROUP, ["one"]) == [None]

    def test_all_read_what_members_post_and_each_replaces_its_own(self, group: Group) -> None:
        coordinator = group.bench.coordinator
        assert coordinator.posts(GROUP) == {}
        coordinator.post(GROUP, "a", "1")
        coordinator.post(GROUP, "b", "ä")
        coordinator.post(GROUP, "a", "2")
        assert coordinator.posts(GROUP) == {"a": "2", "b": "ä"}
        assert coordinator.posts("another") == {}
        coordinator.post(GROUP, "b", None)
        coordinator.post(GROUP, "never", None)
        assert coordinator.posts(GROUP) == {"a": "2"}


class TestForgetful:
    def test_a_store_that_lost_all_is_told_again_and_nothing_moves(self, group: Group, beating: None) -> None:
        a, b, c = (group.join(name, EIGHT, lease_s=CALM_S) for name in "abc")
        plan = a.planned(a, b, c)
        b.planned(a, b, c), c.planned(a, b, c)
        group.bench.forget()
        describe = group.bench.coordinator.describe
        a.until(lambda: set(describe(GROUP).plan.owners.values()) == {a.id, b.id, c.id} and describe(GROUP).settled)
        for each in (a, b, c):
            group.until_renewed(each)
        assert describe(GROUP).plan == plan
        assert [seat.membership.plan() for seat in (a, b, c)] == [plan, plan, plan]
        assert not any(seat.membership.lost for seat in (a, b, c))
