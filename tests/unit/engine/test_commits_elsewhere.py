"""Another program commits for the group while a member has the partition: a producer's transactions, or a tool."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Settings
from holdfast.errors import SourceUnavailable
from holdfast.plugin.events import AdvanceHonoured, CommitOverwritten, MuchInHand, StoreDown
from tests.harness.engine import Bench, FlakyClaims, numbered, partition
from tests.harness.waiting import until
from tests.unit.engine.test_driven import Loops, end, take, taken
from tests.unit.engine.test_loop_moves import crash, successors

if TYPE_CHECKING:
    from collections.abc import Iterator

P0 = partition()
REFRESH: dict[str, Any] = {"commit_interval_s": 0.01, "commit_refresh_s": 0.02}
SETTINGS = Settings(workers=2, ordering="partition", ramp=None, **REFRESH)


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    for each in made.made:
        end(each)


class TestAnApp:
    def test_what_another_program_has_committed_is_handled_no_more_and_no_commit_goes_back_behind_it(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(200)))
            bench.work.hold("x2")
            member = bench.member(settings=replace(SETTINGS, max_in_flight=20))
            bench.wait(lambda: "x2" in bench.work.starts())
            bench.wait_committed(2)
            bench.group.set_offset(P0, 150)
            bench.wait(lambda: member.told(AdvanceHonoured))
            assert bench.group.offset(P0) == 150
            bench.work.let_go()
            bench.wait_committed(200)
        assert sorted(bench.work.times()) == sorted(numbered("x", [0, 1, 2, *range(150, 200)]))
        assert set(bench.work.times().values()) == {1}
        assert [event.offset for event in member.told(AdvanceHonoured)] == [150]
        assert sum(event.records for event in member.told(AdvanceHonoured)) == 147

    def test_its_successor_handles_none_of_that_either(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.work.hold("x2")
            member = bench.member(settings=SETTINGS)
            bench.wait(lambda: "x2" in bench.work.starts())
            bench.wait_committed(2)
            bench.group.set_offset(P0, 6)
            bench.wait(lambda: member.told(AdvanceHonoured))
            bench.work.let_go()
            bench.wait_committed(10)
            member.stop()
            bench.broker.produce("orders", 0, "new")
            bench.member(settings=SETTINGS)
            bench.wait_committed(11)
        assert sorted(bench.work.values()) == sorted([*numbered("x", [0, 1, 2, 6, 7, 8, 9]), "new"])

    def test_what_waits_to_ask_for_its_key_above_it_goes_on(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            member = bench.member(settings=SETTINGS, key=lambda record: record.value.decode())
            bench.wait_committed(0)
            store.go_down(["claim"])
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.wait(lambda: store.calls["claim"] > 1)
            bench.group.set_offset(P0, 4)
            bench.wait(lambda: member.told(AdvanceHonoured))
            store.come_back()
            bench.wait_committed(10)
        assert sorted(bench.work.values()) == numbered("x", range(4, 10))

    def test_while_the_store_does_not_answer_no_commit_goes_back_behind_it_either(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            bench.work.hold("x2")
            member = bench.member(settings=replace(SETTINGS, commit_refresh_s=0.3))
            bench.wait(lambda: "x2" in bench.work.starts())
            bench.wait_committed(2)
            store.go_down(["mark"])
            before = len(bench.group.attempts)
            bench.group.set_offset(P0, 15)
            bench.wait(lambda: member.told(StoreDown))
            bench.work.let_go()
            store.come_back()
            bench.wait_committed(20)
            assert min(each.offset for each in bench.group.attempts[before:]) >= 15
        assert sorted(bench.work.values()) == sorted(numbered("x", [0, 1, 2, *range(15, 20)]))

    def test_a_lower_one_is_told_and_ours_is_committed_anew(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            bench.group.set_offset(P0, 2)
            bench.wait_committed(5)
            assert member.told(CommitOverwritten)[0] == CommitOverwritten(partition=P0, offset=2, committed=5)
        assert set(bench.work.times().values()) == {1}

    def test_nothing_is_committed_anew_while_the_broker_does_not_say_what_there_is(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            member.source.fail("committed", *[SourceUnavailable("the coordinator moves")] * 10)
            bench.group.set_offset(P0, 9)
            bench.wait(lambda: member.source.failing("committed") < 8)
            assert bench.group.offset(P0) == 9


def test_a_transactions_offset_ends_what_a_loop_has_below_it_and_is_never_overwritten(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("commit", **REFRESH)
    taken(loop, 10)
    group = loops.broker.group("g")
    for offset in (4, 7):
        group.set_offset(P0, offset)
        until(lambda offset=offset: take(loop) == [] and loop.user.handed_out.records == 10 - offset)  # type: ignore[misc]
        for _ in range(10):  # the clock has its way
            assert take(loop, timeout_s=0.02) == []
            assert loops.committed() == offset
    assert not any(isinstance(event, AdvanceHonoured) for event in loops.events)  # the loop has had it all
    crash(loops, loop)
    assert successors(loops) == [7, 8, 9]


def test_what_is_begun_anew_after_a_torn_call_commits_nothing_over_a_transaction(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("commit")
    taken(loop, 10)
    loops.broker.group("g").set_offset(P0, 6)
    with loop.lock, loop.whole():
        loop.family.partitions.begin_anew()
    assert taken(loop, 4) == numbered("r", range(6, 10))


def test_a_loop_whose_transactions_commit_has_no_more_in_hand_than_may_be_in_the_process(loops: Loops) -> None:
    loops.produce(*numbered("r", range(300)))
    loop = loops.loop("commit", max_in_flight=20, workers=1)
    loop.family.partitions.commits.others_commit = True  # as `consumer_group_metadata` has it
    got = 0
    while got < 300:
        until(lambda: loop.family.owners or take(loop, 1) is None)
        got += len(take(loop, 10, 0.1))
        loops.broker.group("g").set_offset(P0, got)
        assert loop.user.handed_out.records <= 3 * 20
    assert not any(isinstance(event, MuchInHand) and event.records > 3 * 20 for event in loops.events)


def test_while_the_store_is_away_nothing_is_committed_behind_a_transaction() -> None:
    store = FlakyClaims()
    loops = Loops(claims=store)
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("commit", **REFRESH)
    taken(loop, 10)
    store.go_down()
    loops.broker.group("g").set_offset(P0, 6)
    until(lambda: take(loop, timeout_s=0.01) == [] and loop.parts.sessions.stalled)
    for _ in range(10):
        take(loop, timeout_s=0.02)
        assert loops.committed() == 6
    store.come_back()
    until(lambda: take(loop) == [] and loop.user.handed_out.records <= 4)
    assert loops.committed() == 6
    end(loop)
