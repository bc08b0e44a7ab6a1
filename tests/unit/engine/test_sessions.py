"""A session is lost: it fences itself, begins anew; at most what was in hand is repeated, and nothing is lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from holdfast import MemoryClaims, Settings
from holdfast.plugin.engine import sessions
from holdfast.plugin.events import RebalanceReport, SessionLost
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, FlakyClaims, numbered, partition

if TYPE_CHECKING:
    import pytest

    from holdfast.records import Record
    from tests.harness.engine import Member, Seen

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0, P1 = partition(), partition(1)


def _lose_and_begin_none(bench: Bench, member: Member) -> None:
    """The member loses its session, and begins no other, for which there is time enough."""
    bench.expire(member)
    bench.wait(lambda: member.told(SessionLost))
    polls = member.source.polls
    bench.wait(lambda: member.source.polls > polls + 5)
    assert bench.ids() == []


class TestLost:
    def test_the_app_begins_anew_and_goes_on(self) -> None:
        with Bench(orders=2) as bench:
            for number in range(2):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(20)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(20, 0)
            bench.wait_committed(20, 1)
            before = member.session
            bench.expire(member)
            for number in range(2):
                bench.broker.produce("orders", number, *numbered(f"{number}y", range(20)))
            bench.wait_committed(40, 0)
            bench.wait_committed(40, 1)
            assert member.session != before
            assert [event.session for event in member.told(SessionLost)] == [before]
        assert len(set(bench.work.values())) == 80

    def test_what_it_cost_is_one_report(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            member = bench.member(settings=SETTINGS)
            bench.wait_running("x0")
            bench.wait(lambda: member.owns == {P0, P1})
            bench.expire(member)
            bench.wait(lambda: member.told(SessionLost))
            bench.work.let_go()
            bench.wait_committed(2)
            bench.wait(lambda: len(member.told(RebalanceReport)) == 2)
            report = member.told(RebalanceReport)[1]
            assert (report.trigger, report.given, report.gained) == ("session lost", (P0, P1), (P0, P1))
            assert (report.abandoned, report.drained, report.handed_back) == (1, 0, 1)
            assert report.recovered_s is not None
            assert member.app.snapshot().rebalances.by_trigger == {"assigned": 1, "session lost": 1}

    def test_it_is_told_too_where_no_other_session_follows(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(1)
            store.go_down(["begin"])
            store.inner.expire(member.session)
            engine = member.app._engine
            assert engine is not None
            assert engine.parts.sessions.session is not None
            assert engine.parts.sessions.session.renew() is False
            bench.wait(lambda: member.told(SessionLost))
            member.stop()
            told = [(report.trigger, report.given, report.gained) for report in member.told(RebalanceReport)]
            assert told == [("assigned", (), (P0,)), ("session lost", (P0,), ()), ("leave", (), ())]

    def test_only_what_was_in_hand_may_be_repeated(self) -> None:
        with Bench() as bench:
            bench.work.hold("x5")
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            member = bench.member(settings=SETTINGS)
            bench.wait(lambda: bench.position() == (5, set(range(6, 20))))
            bench.expire(member)
            bench.broker.produce("orders", 0, "y")
            bench.wait(lambda: member.told(SessionLost))
            bench.work.let_go()
            bench.wait_committed(21)
        starts = bench.work.starts()
        assert set(starts) == {*numbered("x", range(20)), "y"}
        assert {value for value, times in starts.items() if times > 1} <= {"x5", "y"}

    def test_what_ends_at_that_moment_is_done_and_not_run_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As a handler that kept the interpreter lock for longer than the lease: run again, it would do so again."""
        monkeypatch.setattr(sessions, "_WIND_UP_S", 60.0)
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS)
            bench.wait_running("x0")
            before = member.session
            _lose_and_begin_none(bench, member)
            bench.work.let_go()
            bench.wait_committed(3)
            assert member.session != before
        assert bench.work.starts()["x0"] == 1

    def test_what_has_ended_is_said_before_a_new_session_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store was away for longer than the lease; the time to ask it again comes between a turn's marks and its
        look at the session."""
        monkeypatch.setattr(sessions, "_WIND_UP_S", 0.0)
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS)
            bench.wait_running("x0")
            engine = member.app._engine
            assert engine is not None
            bench.wait(lambda: not engine.parts.settling.waiting)
            with monkeypatch.context() as not_due:
                not_due.setattr(engine._steps, "exchange", lambda: None)
                bench.work.let_go()
                bench.wait(lambda: bool(engine.parts.settling.waiting))
                _lose_and_begin_none(bench, member)
            bench.wait_committed(3)
        assert bench.work.starts() == {"x0": 1, "x1": 1, "x2": 1}

    def test_a_handler_of_the_lost_session_and_its_repetition_never_run_at_the_same_time(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            member = bench.member(settings=SETTINGS)
            bench.wait_running("x0")
            before = member.session
            bench.expire(member)
            bench.broker.produce("orders", 0, "y", key="other")
            bench.wait(lambda: bench.ids() not in ([], [before]) and member.owns == {P0})
            bench.wait_ended("y")
            bench.work.let_go()
            bench.wait_committed(3)
        running: set[int] = set()
        for what, seen in bench.work.story:
            if what == "start":
                assert seen.offset not in running
                running.add(seen.offset)
            else:
                running.remove(seen.offset)
        assert [seen.value for seen in bench.work.cancelled] == ["x0"]

    def test_another_member_takes_over_and_the_zombie_marks_and_commits_nothing(self) -> None:
        with Bench() as bench:
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            zombie = bench.member("zombie", settings=SETTINGS)
            bench.wait_running("x0")
            heir = bench.member("heir", settings=SETTINGS, start=False)
            before = len(bench.group.attempts)
            # As with SIGSTOP: the store and the broker give it up, and it knows of neither.
            with bench.changed:
                claims.expire(zombie.session)
                heir.start()
                bench.group.aim({heir.source: [P0]})
                bench.group.lose(zombie.source)
            bench.wait(lambda: heir.owns == {P0})
            bench.wait(lambda: any(seen.member == "heir" for seen in bench.work.running))
            bench.wait_cancelled("zombie")
            bench.work.let_go()
            bench.wait_committed(3)
            attempts = bench.group.attempts[before:]
            assert {each.member is heir.source for each in attempts} == {True}
        assert bench.work.starts() == {"x0": 2, "x1": 1, "x2": 1}
        assert [seen.member for seen in bench.work.cancelled] == ["zombie"]

    def test_a_business_key_in_hand_is_taken_over_and_the_zombies_result_does_not_count(self) -> None:
        with Bench() as bench:
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            zombie = bench.member("zombie", settings=SETTINGS, key=lambda record: record.value or b"")
            bench.wait_running("x0")
            heir = bench.member("heir", settings=SETTINGS, key=lambda record: record.value or b"", start=False)
            with bench.changed:
                claims.expire(zombie.session)
                heir.start()
                bench.group.aim({heir.source: [P0]})
                bench.group.lose(zombie.source)
            bench.wait(lambda: any(seen.member == "heir" for seen in bench.work.running) and not zombie.owns)
            bench.work.let_go()
            bench.wait_committed(3)
            zombie.stop()
        assert bench.work.starts() == {"x0": 2, "x1": 1, "x2": 1}

    def test_what_has_lost_its_key_alone_is_not_marked_while_the_keys_new_holder_runs(self) -> None:
        """Of its partition it is the owner on record: nobody has asked for that."""
        with Bench(orders=2) as bench:
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            bench.work.hold("x", "y")
            bench.broker.produce("orders", 0, "x")
            zombie = bench.member("zombie", settings=SETTINGS, key=lambda _: b"one")
            bench.wait_running("x")
            heir = bench.member("heir", settings=SETTINGS, key=lambda _: b"one")
            bench.group.aim({zombie.source: [P0], heir.source: [P1]})
            bench.wait(lambda: heir.owns == {P1})
            claims.expire(zombie.session)
            bench.broker.produce("orders", 1, "y")
            bench.wait_running("y")
            bench.work.let_go("x")
            bench.wait(lambda: zombie.told(SessionLost))
            assert bench.position(0) == (0, set())
            bench.work.let_go("y")
            bench.wait_committed(1, 0)
            bench.wait_committed(1, 1)
        assert bench.work.starts() == {"x": 1, "y": 1}

    def test_a_lost_session_starts_nothing_although_the_store_has_not_said_so(self) -> None:
        """Its own clock tells, at each start: it could not renew in time, so others may have taken over. Quick records
        are given to a worker several at a time; the session ends in the middle of such a chunk."""
        claims = MemoryClaims()
        with Bench(claims=claims) as bench:
            member = bench.member(settings=Settings(workers=1, ordering="partition", commit_interval_s=0.01))
            bench.broker.produce("orders", 0, *numbered("warm", range(500)))
            bench.wait_committed(500)
            engine = member.app._engine
            assert engine is not None
            engine.parts.workers._record_s = 0.0001  # as measured where nobody was stopped: chunks of 20
            session: Any = engine.parts.sessions.session
            late: list[str] = []

            def look(seen: Seen) -> None:
                if not session.live() and seen.session == session.id:
                    late.append(seen.value)
                if seen.value == "x5":
                    session._lease.lose()

            bench.work.look = look
            bench.broker.produce("orders", 0, *numbered("x", range(64)))
            bench.wait(lambda: member.told(SessionLost))
            claims.expire(session.id)  # else its partition is only to be had when its lease has passed there, too
            bench.wait_committed(564)
            assert late == []
            assert member.session != session.id

    def test_what_it_had_begins_where_it_has_to_also_when_more_is_assigned_at_that_moment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The client is told where the new one begins; where it stands in the old one, nobody asks it."""
        with Bench(orders=2) as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, start=False)
            bench.group.aim({member.source: [P0]})
            member.start()
            bench.wait(lambda: bench.position() == (1, {2, 3, 4}))
            # The loop looks at no partition between the new session and the assignment.
            monkeypatch.setattr("holdfast.plugin.engine.partition.partitioned._TEND_S", 3600.0)
            engine = member.app._engine
            assert engine is not None
            before = engine.parts.sessions.session
            bench.wait(lambda: engine.family._tend_at > engine.parts.runtime.now() + 60)  # type: ignore[attr-defined]
            bench.expire(member)
            bench.wait(lambda: engine.parts.sessions.session not in (None, before))
            bench.group.aim({member.source: [P0, partition(1)]})
            bench.wait(lambda: partition(1) in member.source.readers)
            monkeypatch.undo()
            engine.family._tend_at = 0.0  # type: ignore[attr-defined]
            bench.broker.produce("orders", 0, "x5")
            bench.wait_ended("x5")
            bench.work.let_go()
            bench.wait_committed(6)
        # The first run was fenced: its mark does not count, so it has to run again.
        assert bench.work.starts() == {**dict.fromkeys(numbered("x", range(6)), 1), "x1": 2}


class TestStuck:
    def test_a_loop_that_stands_still_does_not_keep_what_it_has(self) -> None:
        """The broker gives its partitions to another; the store must not make that one wait for ever."""
        hangs, goes_on = threading.Event(), threading.Event()

        def key(record: Record) -> str:
            if record.value == b"stuck" and not goes_on.is_set():
                hangs.set()
                assert goes_on.wait(20)
            return str(record.offset)

        clock = HandClock()  # no lease ends because a thread was stopped, but where this test says so
        with Bench(claims=MemoryClaims(lease_s=0.3, runtime=Machine(clock))) as bench:
            bench.broker.produce("orders", 0, "x")
            first = bench.member("a", settings=SETTINGS, key=key, start=False)
            first.source.max_poll_interval_s = 0.2
            first.start()
            bench.wait_committed(1)
            bench.broker.produce("orders", 0, "stuck")
            bench.wait(hangs.is_set)
            engine = first.app._engine
            assert engine is not None
            session: Any = engine.parts.sessions.session
            clock.sleep(0.29)
            bench.wait(session._lease._stop.is_set, "it is still renewed")
            clock.sleep(0.3)
            bench.group.lose(first.source)
            second = bench.member("b", settings=SETTINGS, key=lambda record: str(record.offset), start=False)
            bench.group.aim({second.source: [P0]})
            second.start()
            bench.wait_committed(2)
            goes_on.set()
        assert bench.work.starts() == {"x": 1, "stuck": 1}
