"""Groups at a Redis that is silent, full or written by others; and in a process that forks."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast.dedup.groups import Member, Refusal, Standing
from holdfast.dedup.planning import next_plan
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import SettingError, StoreRefused, StoreUnavailable
from holdfast.timing import Deadline
from tests.contracts.redis.test_failover import TestBehind as Behind
from tests.contracts.redis.test_faults import answered
from tests.harness.servers.redis import RedisServer
from tests.harness.store_groups import GROUP, Group, RedisBench, group_of, in_turn, queues
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

EIGHT = queues(8)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may stop and fill."""
    with RedisServer() as made:
        yield made


@pytest.fixture
def group(server: RedisServer) -> Iterator[Group]:
    yield from group_of(RedisBench(server.url, timeout_s=0.2))


class TestSilence:
    def test_the_plan_is_kept_while_our_lease_lives(self, group: Group, server: RedisServer) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT)
        plan = a.planned(a, b)
        server.pause()
        until(lambda: a.membership._silent)
        assert a.membership.plan() == plan
        assert not a.membership.lost
        server.resume()
        until(lambda: not a.membership._silent)
        assert a.membership.plan() == plan

    def test_without_an_answer_for_a_lease_it_is_lost_by_our_own_clock(self, group: Group, server: RedisServer) -> None:
        a = group.join("a", EIGHT, lease_s=0.7)
        a.until(lambda: bool(a.own()) or a.membership.lost)  # the latter where the machine stood still
        server.pause()
        a.until(lambda: a.membership.lost)
        server.resume()

    def test_leaving_ends_at_its_deadline(self, group: Group, server: RedisServer) -> None:
        a = group.join("a", EIGHT)
        a.planned(a)
        server.pause()
        a.membership.leave(Deadline(0.3))  # returns while nobody answers
        until(lambda: a.membership.lost)
        server.resume()

    def test_joining_ends_at_its_deadline_and_asks_until_then(self, group: Group, server: RedisServer) -> None:
        answered(lambda: group.bench.coordinator.describe(GROUP))
        server.pause()
        with pytest.raises(StoreUnavailable):
            group.bench.coordinator.join(
                GROUP, Member(client_id="a", subscription="x"), Deadline(0.3), strategy=in_turn, wake=lambda: None
            )
        threading.Timer(0.3, server.resume).start()
        assert group.join("b", EIGHT, subscription="x")

    def test_who_left_unheard_is_out_when_its_answer_was_lost(self, group: Group, server: RedisServer) -> None:
        a, b = group.join("a", EIGHT), group.join("b", EIGHT)
        b.planned(a, b)
        server.pause()
        threading.Timer(0.5, server.resume).start()
        a.membership.leave(Deadline(20.0))  # asks again, with a higher generation
        b.planned(b)


def test_when_memory_is_full_nobody_comes_in_and_the_others_go_on(group: Group, server: RedisServer) -> None:
    a, b = group.join("a", EIGHT), group.join("b", EIGHT)
    a.planned(a, b)
    with server.client() as client:
        client.config_set("maxmemory", 1)
    told = ""
    while "out of memory" not in told:  # a busy machine's server may be too late for an answer
        with pytest.raises(StoreUnavailable) as caught:
            group.bench.coordinator.join(
                GROUP,
                Member(client_id="c", subscription="orders:*"),
                Deadline(0.1),
                strategy=in_turn,
                wake=lambda: None,
            )
        told = str(caught.value)
    if not server.settles_when_full:
        with server.client() as client:
            client.config_set("maxmemory", 0)
    b.membership.leave(Deadline(5.0))
    a.planned(a)


def test_a_group_that_another_version_has_written_is_refused(group: Group, server: RedisServer) -> None:
    group.join("a")
    with server.client() as client:
        [head] = client.keys("*:g:*")
        client.hset(head, "format", "2")
    with pytest.raises(StoreRefused, match="format 2"):
        group.join("b")


def test_a_forked_child_has_no_say_about_its_parents_membership(group: Group) -> None:
    a = group.join("a", EIGHT)
    a.planned(a)
    child = os.fork()
    if not child:
        fine = a.membership.lost
        a.membership.leave(Deadline(5.0))
        a.membership.offer([])
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not a.membership.lost
    assert answered(lambda: group.bench.coordinator.describe(GROUP)).members


def test_a_forked_child_joins_with_the_coordinator_of_its_parent(group: Group) -> None:
    a = group.join("a", EIGHT)
    a.planned(a)
    child = os.fork()
    if not child:
        try:
            b = group.join("b", EIGHT)
            b.until(lambda: len(set(b.membership.plan().owners.values())) == 2)
            b.membership.leave(Deadline(5.0))
        finally:
            os._exit(0 if b.membership.lost else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    a.planned(a)


@pytest.mark.parametrize("setting", [{"lease_s": 0.0}, {"watch_s": -1.0}, {"watch_s": float("inf")}])
def test_settings_that_cannot_work_are_refused(redis_url: str, setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        RedisCoordinator(RedisClaims.from_url(redis_url), **setting)


def test_the_stores_lease_bounds_that_of_a_member(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as raw:
        raw.flushdb()
    store = RedisClaims.from_url(redis_url, lease_s=5.0)
    coordinator = RedisCoordinator(store)
    membership = coordinator.join(
        GROUP, Member(client_id="a", subscription="x"), Deadline(5.0), strategy=in_turn, wake=lambda: None
    )
    assert 0 < coordinator.describe(GROUP).left_s[membership.id] <= 5.0
    membership.leave(Deadline(5.0))
    store.close()


def test_a_plan_for_members_that_a_failover_has_lost_is_behind(server: RedisServer) -> None:
    claims = RedisClaims.from_url(server.url)
    a, gone, new = (RedisGroupSession(claims.parts(), GROUP, name, 3600.0) for name in ("a", "gone", "new"))
    eight = frozenset(EIGHT)
    assert isinstance(a.join(Member(client_id="a", subscription="x"), eight), Standing)
    kept = Behind.what_is_there(server)
    gone.join(Member(client_id="gone", subscription="x"), eight)
    view = a.look()
    plan = next_plan(view, in_turn)
    assert set(plan.owners.values()) == {"a", "gone"}
    # It dies, with the server that alone knew of it, and somebody else comes in its place.
    Behind.fail_over(server, kept)
    answered(lambda: new.join(Member(client_id="new", subscription="x"), eight))
    assert a.standing() != view.standing  # else nobody would look
    assert a.publish(view, plan) is Refusal.BEHIND
    claims.close()
