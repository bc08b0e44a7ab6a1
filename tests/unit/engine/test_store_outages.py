"""The store gives no answer: pause, keep membership, resume; nothing runs twice, nothing is lost."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast import MemoryClaims, Retry, Settings
from holdfast.errors import StoreUnavailable
from holdfast.plugin.engine.store.outage import Outage
from holdfast.plugin.events import ResetHonoured, SessionLost, StoreDiffers, StoreDown, StoreLost, StoreUp
from holdfast.plugin.ports import CommitFate, Committed
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, FlakyClaims, numbered, partition

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0, P1 = partition(0), partition(1)
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}


@pytest.mark.parametrize("keyed", [False, True])
class TestDown:
    def test_what_is_in_the_process_waits_membership_goes_on_and_all_is_handled_once(self, *, keyed: bool) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "first")
            member = bench.member(settings=SETTINGS, **KEYED if keyed else {})
            bench.wait_committed(1)
            # The first of a lane runs, and all others are in the process: two behind it, and what comes later.
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            bench.wait_running("x0")
            bench.wait(lambda: member.app.snapshot().load.in_flight == 3)
            store.go_down()
            bench.broker.produce("orders", 0, "seen")  # asks for its key, or is marked
            bench.wait(lambda: member.told(StoreDown))
            bench.work.let_go()
            bench.wait_ended("x0")
            bench.broker.produce("orders", 0, *numbered("y", range(50)), key="y")
            polls = member.source.polls
            bench.wait(lambda: member.source.polls > polls + 20)
            assert set(bench.work.starts()) <= {"first", "x0", "seen"}
            assert bench.group.of(member.source) == [P0]
            assert bench.group.offset(P0) == 1
            store.come_back()
            bench.wait_committed(55)
            assert len(member.told(StoreUp)) >= 1
            assert member.told(SessionLost) == []
        assert set(bench.work.starts().values()) == {1}

    def test_a_partition_given_away_meanwhile_is_handed_over_when_the_store_is_back(self, *, keyed: bool) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            more = KEYED if keyed else {}
            first = bench.member("a", settings=SETTINGS, **more)
            bench.wait_running("x0")
            store.go_down()
            second = bench.member("b", settings=SETTINGS, start=False, claims=store.inner, **more)
            second.start()
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: first.owns == set())
            bench.work.let_go()
            bench.wait(lambda: bench.group.of(second.source) == [P0])
            polls = second.source.polls
            bench.wait(lambda: second.source.polls > polls + 10)
            assert second.owns == set()  # nobody has let it go at the store
            store.come_back()
            bench.wait_committed(2)
        assert bench.work.starts() == {"x0": 1, "x1": 1}


def test_what_has_ended_without_its_mark_is_handed_over_as_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner waits for the mark; to take the record for not started would run it twice."""
    monkeypatch.setattr(
        "holdfast.plugin.engine.store.outage.BACKOFF", Retry(attempts=1_000_000, wait_initial_s=0.0, jitter_s=0.0)
    )
    store = FlakyClaims()
    with Bench(claims=store) as bench:
        bench.work.hold("x0")
        bench.broker.produce("orders", 0, "x0", "x1", key="k")
        first = bench.member("a", settings=SETTINGS)
        bench.wait_running("x0")
        second = bench.member("b", settings=SETTINGS, claims=store.inner)
        store.go_down(["mark"])
        bench.group.aim({second.source: [P0]})
        bench.wait(lambda: not first.owns)
        bench.work.let_go()
        bench.wait(lambda: second.owns == {P0})
        polls = second.source.polls
        bench.wait(lambda: second.source.polls > polls + 10)
        assert bench.work.starts() == {"x0": 1}
        store.come_back()
        bench.wait_committed(2)
    assert bench.work.starts() == {"x0": 1, "x1": 1}


CALLS = ["begin", "acquire", "claim", "finish", "exchange", "mark", "let_go", "poll", "release", "unclaim", "drop"]


@pytest.mark.parametrize("when", ["request", "answer"])
@pytest.mark.parametrize("call", CALLS)
def test_any_call_may_stay_without_an_answer_three_times(call: str, when: str) -> None:
    """Applied or not: it is asked again, and nothing runs twice. The story needs every call there is."""
    store = FlakyClaims()
    with Bench(orders=2, claims=store) as bench:
        lose = store.lose_request if when == "request" else store.lose_answer
        lose(call, 3)
        bench.group.set_offset(P1, 2)  # foreign: `drop`
        bench.broker.produce("orders", 1, *numbered("1x", range(6)))
        bench.broker.produce("orders", 0, *numbered("0x", range(6)), key="k")
        bench.work.hold("0x1", "0x2")
        bench.work.fail("0x1", ValueError("outlives the drain, then fails: `release`"))
        settings = Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=0.02)
        first = bench.member("a", settings=settings, **KEYED)
        bench.wait_running("0x1")
        second = bench.member("b", settings=settings, **KEYED)
        bench.group.aim({first.source: [P1], second.source: [P0]})
        bench.wait(lambda: bench.group.of(second.source) == [P0])
        bench.work.let_go("0x1")
        bench.wait_running("0x2")
        bench.group.aim({first.source: [P0, P1]})
        bench.wait(lambda: bench.group.of(first.source) == [P0, P1])
        bench.work.let_go()
        bench.wait_committed(6, 0)
        bench.wait_committed(6, 1)
        bench.wait(lambda: store.spent, f"{call} was not asked often enough")
        assert first.told(SessionLost) == second.told(SessionLost) == []
    assert bench.work.starts() == {
        "0x0": 1,
        "0x1": 2,
        **dict.fromkeys(["0x2", "0x3", "0x4", "0x5"], 1),
    } | dict.fromkeys(numbered("1x", range(2, 6)), 1)
    # Who does not hear the answer to a beginning begins once more: the first session lives until its lease ends.
    state = store.inner.state
    orphans = 3 if (call, when) == ("begin", "answer") else 0
    assert len([each for each in list(state.sessions) if state.alive(each)]) == orphans


class TestTakingOver:
    def test_a_partition_owned_while_its_neighbours_reset_has_no_answer_begins_where_it_has_to(self) -> None:
        """One call takes both over; the second's `drop` is not answered. The first may not read from anywhere."""
        store = FlakyClaims()
        with Bench(orders=2, claims=store) as bench:
            bench.broker.produce("orders", 0, *numbered("0x", range(5)))
            bench.broker.produce("orders", 1, *numbered("1x", range(5)))
            first = bench.member("a", settings=SETTINGS)
            bench.wait_committed(5, 0)
            bench.wait_committed(5, 1)
            first.stop()
            bench.group.set_offset(P0, 1, ours=True)  # a zombie's rewind: what is done stays done
            bench.group.set_offset(P1, 3)  # somebody's reset
            store.lose_request("acquire")  # so that it happens in the loop, not inside the assignment
            store.lose_request("drop", 2)
            bench.member("b", settings=SETTINGS)
            bench.wait_committed(5, 0)
            bench.wait_committed(5, 1)
            bench.wait(lambda: store.spent)
        expected = dict.fromkeys(numbered("0x", range(5)) + numbered("1x", range(3)), 1)
        assert bench.work.starts() == expected | {"1x3": 2, "1x4": 2}

    def test_a_partition_that_goes_before_its_acquire_was_answered_is_let_go_all_the_same(self) -> None:
        """The store has its owner down, whose session lives on and knows nothing of it."""
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "x")
            store.lose_answer("acquire", 1_000)
            first = bench.member("a", settings=SETTINGS)
            bench.wait(lambda: first.told(StoreDown))
            second = bench.member("b", settings=SETTINGS, claims=store.inner)
            bench.group.aim({second.source: [P0]})
            bench.wait_committed(1)
            assert first.told(SessionLost) == []
        assert bench.work.starts() == {"x": 1}

    def test_an_adoption_that_is_refused_is_repeated_before_anything_runs(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            bench.group.set_offset(P0, 2)
            bench.group.refuse(P0, CommitFate.AGAIN, CommitFate.AGAIN)
            bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            assert [(each.offset, each.fate) for each in bench.group.attempts][:3] == [
                (2, CommitFate.AGAIN),
                (2, CommitFate.AGAIN),
                (2, CommitFate.DONE),
            ]
        assert sorted(bench.work.starts()) == ["x2", "x3", "x4"]


class TestAtTheStart:
    def test_a_store_that_is_late_is_waited_for_and_that_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        store = FlakyClaims()
        store.lose_request("connect", times=2)
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS)
            bench.wait_committed(1)
        assert len([each for each in caplog.messages if "trying for another" in each]) == 1

    def test_a_store_that_does_not_come_ends_the_start_before_the_group_is_joined(self) -> None:
        store = FlakyClaims()
        store.go_down()
        with Bench(claims=store) as bench:
            member = bench.member(settings=Settings(startup_timeout_s=0.05))
            with pytest.raises(StoreUnavailable):
                member.join()
            assert bench.group.members == []


class TestOpen:
    def test_work_goes_on_without_protection_is_counted_and_recovers(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            settings = Settings(workers=4, commit_interval_s=0.01, store_down="open")
            bench.broker.produce("orders", 0, "first")
            member = bench.member(settings=settings, **KEYED)
            bench.wait_committed(1)
            store.go_down()
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            bench.wait_committed(21)
            [down] = member.told(StoreDown)
            assert down.mode == "open"
            store.come_back()
            bench.wait(lambda: member.told(StoreUp))
            [up] = member.told(StoreUp)
            assert up.unprotected == 20
            # What comes after the outage is protected again.
            bench.broker.produce("orders", 0, *numbered("y", range(20)))
            bench.wait_committed(41)
            bench.broker.produce("orders", 0, "y0")
            bench.wait_committed(42)
            bench.wait(lambda: store.inner.state.position("g/orders/1/0").watermark == 42)
        assert set(bench.work.starts().values()) == {1}

    def test_a_start_without_the_store_is_protected_once_the_store_is_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.dedup.open._LOOK_EVERY_S", 0.02)
        store = FlakyClaims()
        store.go_down()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=Settings(commit_interval_s=0.01, store_down="open"))
            bench.wait_committed(1)
            store.come_back()
            # It is asked for when there is something to protect.
            values = iter(numbered("y", range(10_000)))
            position = store.inner.state.position
            bench.wait(lambda: bench.broker.produce("orders", 0, next(values)) and position("g/orders/1/0").owner)
            bench.wait(lambda: member.told(StoreUp))
            offsets = bench.broker.produce("orders", 0, "last")
            bench.wait_committed(offsets[0] + 1)
            bench.wait(lambda: position("g/orders/1/0").watermark == offsets[0] + 1)

    @pytest.mark.parametrize("by", ["the same member", "another member"])
    def test_a_reset_that_the_store_cannot_be_told_of_is_nobodys_old_commit(
        self, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        monkeypatch.setattr("holdfast.dedup.open._LOOK_EVERY_S", 0.02)
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(6)))
            settings = Settings(commit_interval_s=0.01, store_down="open")
            first = bench.member("a", settings=settings)
            bench.wait_committed(6)
            store.go_down()
            bench.broker.produce("orders", 0, "y")
            bench.wait_committed(7)
            bench.group.lose(first.source, P0)
            bench.group.set_offset(P0, 2)
            bench.wait(lambda: bench.work.times()["x5"] > 1, "the reset is not honoured")
            assert bench.group.offset(P0) == 2, "a commit of ours stands where the reset was"
            engine = first.app._engine
            assert engine is not None
            session = engine.parts.sessions.session
            assert session is not None
            before = bench.work.times()["x5"]
            if by == "another member":
                first.app.stop()
            store.inner.expire(session.id)
            store.come_back()
            if by == "another member":
                first.over.wait(60)
                bench.member("b", settings=settings)
            bench.wait(lambda: bench.work.times()["x5"] > before, "the reset is forgotten")
            bench.wait_committed(7)
            assert store.inner.state.position("g/orders/1/0").watermark == 7


class TestBack:
    """Only an answer says that the store is back."""

    def test_a_session_that_is_lost_while_the_store_is_down_says_nothing_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.plugin.engine.sessions._WIND_UP_S", 3600.0)
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS, **KEYED)
            bench.wait_running("x")
            engine = member.app._engine
            assert engine is not None
            assert engine.parts.sessions.session is not None
            store.go_down()
            bench.broker.produce("orders", 0, "y")
            bench.wait(lambda: member.told(StoreDown))
            store.inner.expire(engine.parts.sessions.session.id)
            monkeypatch.setattr(engine.parts.sessions.session, "live", lambda: False)
            bench.wait(lambda: member.told(SessionLost))
            polls = member.source.polls
            bench.wait(lambda: member.source.polls > polls + 50)
            assert member.told(StoreUp) == []
            store.come_back()
            bench.work.let_go()
            bench.wait_committed(2)
            bench.wait(lambda: member.told(StoreUp))
            assert [len(member.told(StoreDown)), len(member.told(StoreUp))] == [1, 1]


def test_that_it_is_down_is_told_once_and_said_again_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, told = HandClock(), list[object]()
    outage = Outage(Machine(clock), told.append)
    for _ in range(95):
        clock.sleep(1.0)
        if outage.may_ask:
            with outage.asking():
                raise StoreUnavailable("no answer")
    assert [type(each) for each in told] == [StoreDown]
    assert len([line for line in caplog.messages if "nothing is lost" in line and "no answer" in line]) == 3
    outage.answered()
    assert [type(each) for each in told] == [StoreDown, StoreUp]


class TestLostData:
    def test_a_store_that_has_lost_what_it_knew_is_told_once(self) -> None:
        store = MemoryClaims()
        with Bench(claims=store) as bench:
            member = bench.member(settings=SETTINGS)
            bench.broker.produce("orders", 0, "x")
            bench.wait_committed(1)
            before = store.store_id
            with store.state.lock:
                store.state.sessions, store.state.positions, store.state.keys = {}, {}, {}
                store.state.store_id = "anew"
            engine = member.app._engine
            assert engine is not None
            bench.wait(
                lambda: (
                    engine.parts.sessions.session is None
                    or not engine.parts.sessions.session.renew()
                    or member.told(StoreLost)
                )
            )
            bench.broker.produce("orders", 0, "y")
            bench.wait_committed(2)
            assert member.told(StoreLost) == [StoreLost(before=before, now="anew")]
        assert set(bench.work.starts().values()) == {1}

    def test_a_commit_that_names_another_store_is_told_once_and_no_reset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Bench(claims=MemoryClaims(), orders=4) as bench:
            for number in range(4):
                bench.broker.produce("orders", number, f"x{number}")
            first = bench.member("a", settings=SETTINGS)
            for number in range(4):
                bench.wait_committed(1, number)
            first.stop()
            member = bench.member("b", settings=SETTINGS, start=False)
            theirs = member.source.committed
            monkeypatch.setattr(
                member.source,
                "committed",
                lambda *asked: {
                    p: one and cast("Committed", one)._replace(store="theirs") for p, one in theirs(*asked).items()
                },
            )
            member.start()
            bench.broker.produce("orders", 0, "y")
            bench.wait(lambda: bench.work.starts()["y"] == 1)
            [told] = member.told(StoreDiffers)
            assert told.theirs == "theirs"
            assert member.told(ResetHonoured) == []
        assert set(bench.work.starts().values()) == {1}
