"""Partitions move: nothing is lost, nothing is repeated, and what stays goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import RedisClaims, Settings, Unretriable
from holdfast.errors import SourceUnavailable
from holdfast.plugin.engine.partition.hand_over import HandOver
from holdfast.plugin.events import Overrun, RebalanceReport
from holdfast.plugin.ports import CommitFate
from tests.harness.engine import Bench, Letters, Member, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.claims import ClaimStore
    from holdfast.records import Partition, Record
    from holdfast.testing.brokers.kafka_group import CommitRequest
    from holdfast.timing import Deadline

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
#: A drain that a held handler always outlives.
SHORT = Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=0.02)
#: A drain that outlives whatever a test has to look at meanwhile.
PATIENT = Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=PATIENCE_S)
P0, P1 = partition(0), partition(1)


@pytest.fixture(params=["memory", "redis"])
def claims(request: pytest.FixtureRequest) -> Iterator[ClaimStore | None]:
    """Where what one owner says must be understood by the next, a real Redis too."""
    if request.param == "memory":
        yield None
    else:
        store = RedisClaims.from_url(request.getfixturevalue("redis_url"))
        yield store
        store.close()


class TestRevoke:
    def test_what_runs_is_drained_marked_and_committed_before_the_partition_goes(self) -> None:
        with Bench(orders=1) as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            first = bench.member("a", settings=Settings(commit_interval_s=3600.0))
            bench.wait_running("x1")
            second = bench.member("b", settings=SETTINGS)
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: first.owns == set())  # fenced, and draining
            assert bench.group.of(first.source) == [P0]
            bench.work.let_go()
            bench.wait_committed(3)
            assert [(seen.member, seen.value) for seen in bench.work.ended] == [("a", "x0"), ("a", "x1"), ("b", "x2")]
            assert next(each.member is first.source for each in bench.group.attempts if each.offset == 2)
            [report] = [each for each in first.told(RebalanceReport) if each.trigger == "revoked"]
            assert (report.given, report.drained, report.handed_back, report.abandoned) == ((P0,), 1, 1, 0)

    def test_claims_of_what_was_not_started_are_given_back(self) -> None:
        with Bench(orders=1) as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(5)), key="k")
            first = bench.member("a", settings=SHORT, key=lambda record: record.value or b"")
            bench.wait_running("x0")
            second = bench.member("b", settings=SETTINGS, key=lambda record: record.value or b"")
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: bench.group.of(second.source) == [P0])
            bench.work.let_go()
            bench.wait_committed(5)
            assert first.told(Overrun) == [Overrun(partition=P0, offset=0)]
        assert bench.work.starts() == dict.fromkeys(numbered("x", range(5)), 1)

    @pytest.mark.parametrize("keyed", [False, True])
    def test_the_next_owner_waits_for_a_handler_that_outlives_the_drain_and_then_skips_it(
        self, claims: ClaimStore | None, *, keyed: bool
    ) -> None:
        with Bench(orders=1, claims=claims) as bench:
            key: dict[str, Any] = {"key": lambda record: record.value or b""} if keyed else {}
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(4)), key="k")
            first = bench.member("a", settings=SHORT, **key)
            bench.wait_running("x1")
            second = bench.member("b", settings=SETTINGS, **key)
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: second.owns == {P0})
            polls = second.source.polls
            bench.wait(lambda: second.source.polls > polls + 10)
            assert bench.work.starts() == {"x0": 1, "x1": 1}
            assert bench.group.offset(P0) in (None, 1)
            bench.work.let_go()
            bench.wait_committed(4)
            assert first.told(Overrun) == [Overrun(partition=P0, offset=1)]
        assert bench.work.starts() == dict.fromkeys(numbered("x", range(4)), 1)
        assert [seen.member for seen in bench.work.cancelled] == ["a"]

    def test_its_member_may_leave_and_still_settles_it(self, claims: ClaimStore | None) -> None:
        with Bench(orders=1, claims=claims) as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            first = bench.member("a", settings=SHORT)
            bench.wait_running("x0")
            second = bench.member("b", settings=SETTINGS)
            first.app.stop()
            bench.wait(lambda: second.owns == {P0})
            assert not first.over.is_set()
            bench.work.let_go()
            bench.wait_committed(2)
            first.join()
        assert bench.work.starts() == {"x0": 1, "x1": 1}

    def test_one_that_stops_by_raising_because_it_is_cancelled_is_run_by_the_new_owner(
        self, claims: ClaimStore | None
    ) -> None:
        with Bench(orders=1, claims=claims) as bench:
            done: list[str] = []

            def handle(record: Record) -> None:
                if not done:
                    done.append("not yet")
                    bench.wait(lambda: record.cancelled)
                    raise TimeoutError
                done.append(record.fence.session)

            bench.broker.produce("orders", 0, "x0")
            first = bench.member("a", settings=SHORT, handler=handle)
            bench.wait(lambda: done)
            second = bench.member("b", settings=SETTINGS, handler=handle)
            bench.group.aim({second.source: [P0]})
            bench.wait_committed(1)
            assert done == ["not yet", second.session]
            first.stop()

    @pytest.mark.parametrize("keyed", [False, True])
    def test_if_it_fails_then_only_the_new_owner_tries_again(self, claims: ClaimStore | None, *, keyed: bool) -> None:
        with Bench(orders=1, claims=claims) as bench:
            letters = Letters(bench.changed)
            more: dict[str, Any] = {"key": lambda record: record.value or b""} if keyed else {}
            bench.work.hold("x0")
            bench.work.fail("x0", Unretriable("the first owner's attempt"), Unretriable("the second's"))
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            bench.member("a", settings=SHORT, dead_letter="dlq", dead_letters=letters, **more)
            bench.wait_running("x0")
            second = bench.member("b", settings=SETTINGS, dead_letter="dlq", dead_letters=letters, **more)
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: second.owns == {P0})
            bench.work.let_go()
            bench.wait_committed(2)
            assert [(seen.member, seen.value) for seen in bench.work.started] == [("a", "x0"), ("b", "x0"), ("b", "x1")]
            assert [str(letter.reason) for letter in letters.sent] == ["the second's"]

    def test_partitions_that_stay_go_on_while_another_drains(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("0x0")
            bench.broker.produce("orders", 0, "0x0")
            bench.broker.produce("orders", 1, *numbered("1x", range(30)), key="k")
            bench.work.hold("1x0")
            first = bench.member("a", settings=PATIENT)
            bench.wait_running("0x0", "1x0")
            bench.group.aim({first.source: [P0, P1]})  # so that the second's coming moves nothing by itself
            second = bench.member("b", settings=PATIENT)
            bench.group.aim({first.source: [P1], second.source: [P0]})
            bench.wait(lambda: first.owns == {P1})
            bench.work.let_go("1x0")
            # What is in the process is handled inside the callback, although nothing is polled meanwhile.
            bench.wait_ended(*numbered("1x", range(30)))
            assert bench.group.of(first.source) == [P0, P1]
            assert not second.owns
            bench.work.let_go()
            bench.wait(lambda: second.owns == {P0})
        assert set(bench.work.starts().values()) == {1}

    def test_the_eager_protocol_takes_all_and_repeats_nothing(self) -> None:
        held = [f"{number}x50" for number in range(4)]
        with Bench(orders=4, eager=True) as bench:
            bench.work.hold(*held)
            for number in range(4):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(100)), key="k")
            first = bench.member("a", settings=PATIENT)
            bench.wait_running(*held)
            bench.member("b", settings=PATIENT)
            bench.wait(lambda: first.owns == set())  # fenced, and draining
            assert len(bench.group.of(first.source)) == 4
            bench.work.let_go()
            for number in range(4):
                bench.wait_committed(100, number)
            _nothing_was_abandoned(bench)
        assert set(bench.work.starts().values()) == {1}
        assert len(bench.work.ended) == 400

    def test_a_partition_that_comes_back_while_its_handler_still_runs_is_not_repeated(self) -> None:
        with Bench(orders=1) as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            first = bench.member("a", settings=SHORT)
            bench.wait_running("x0")
            bench.group.aim({})
            bench.wait(lambda: bench.group.of(first.source) == [])
            bench.group.aim({first.source: [P0]})
            bench.wait(lambda: first.owns == {P0})
            bench.work.let_go()
            bench.wait_committed(3)
        assert bench.work.starts() == dict.fromkeys(numbered("x", range(3)), 1)

    def test_without_a_store_a_graceful_move_repeats_nothing_either(self) -> None:
        held = [f"{number}x25" for number in range(4)]
        with Bench(orders=4) as bench:
            bench.work.hold(*held)
            for number in range(4):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(50)), key="k")
            first = bench.member("a", settings=PATIENT, claims=None)
            bench.wait_running(*held)
            second = bench.member("b", settings=PATIENT, claims=None)
            bench.wait(lambda: len(first.owns) == 2)  # the others are fenced, and draining
            assert len(bench.group.of(first.source)) == 4
            assert second.owns == set()
            bench.work.let_go()
            bench.wait(lambda: len(bench.work.ended) == 200)
            _nothing_was_abandoned(bench)
        assert set(bench.work.starts().values()) == {1}
        assert [bench.group.offset(partition(number)) for number in range(4)] == [50] * 4


class TestLost:
    def test_nothing_is_committed_and_the_next_owner_waits_for_what_runs(self) -> None:
        with Bench(orders=1) as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            first = bench.member("a", settings=Settings(commit_interval_s=3600.0))
            bench.wait_running("x1")
            second = bench.member("b", settings=SETTINGS)
            bench.group.aim({second.source: [P0]})  # and before the first learns of that:
            bench.group.lose(first.source)
            bench.wait(lambda: second.owns == {P0})
            assert [each for each in bench.group.attempts if each.member is first.source and each.offset > 0] == []
            bench.work.let_go()
            bench.wait_committed(3)
            [report] = [each for each in first.told(RebalanceReport) if each.trigger == "lost"]
            assert report.abandoned == 1
        assert bench.work.starts() == dict.fromkeys(numbered("x", range(3)), 1)
        assert {each.member is second.source for each in bench.group.attempts if each.offset > 0} == {True}


class TestCommitsThatAreRefused:
    def test_a_refused_commit_is_repeated_while_the_partition_is_owned(self) -> None:
        with Bench() as bench:
            bench.group.refuse(P0, CommitFate.AGAIN, CommitFate.AGAIN)
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            bench.member(settings=SETTINGS)
            bench.wait_committed(3)
            assert [each.fate for each in bench.group.attempts][:2] == [CommitFate.AGAIN] * 2

    def test_the_last_commit_of_a_stop_is_repeated_until_it_is_accepted(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=Settings(commit_interval_s=3600.0))
            bench.wait(lambda: bench.position() == (3, set()))
            bench.group.refuse(P0, *[CommitFate.AGAIN] * 3)
            member.stop()
            assert bench.group.offset(P0) == 3

    def test_a_commit_that_the_client_could_not_even_send_is_sent_soon(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("commit", *[SourceUnavailable("no client now")] * 2)
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member.start()
            bench.wait_committed(3)

    def test_nor_does_it_keep_a_hand_over_from_committing(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("commit", SourceUnavailable("no client now"))
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member.start()
            bench.wait(lambda: not member.source.failing("commit"))
            bench.wait(lambda: bench.position() == (3, set()))
            bench.group.aim({})
            bench.wait(lambda: bench.group.of(member.source) == [])
            assert bench.group.offset(P0) == 3

    def test_no_commit_is_sent_for_what_is_unassigned(self) -> None:
        with Bench(orders=3) as bench:
            sent: list[bool] = []
            first = bench.member("a", settings=SHORT, start=False)
            commit = bench.group.commit

            def checked(request: CommitRequest, part: Partition) -> object:
                sent.append(part in bench.group.of(request.member))
                return commit(request, part)

            bench.group.commit = checked  # type: ignore[assignment,method-assign]
            for number in range(3):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(50)), key="k")
            bench.work.hold("0x10", "1x10")
            first.start()
            bench.wait_running("0x10", "1x10")
            second = bench.member("b", settings=SHORT)
            bench.group.aim({second.source: [P0, P1], first.source: [partition(2)]})
            bench.wait(lambda: second.owns == {P0, P1})
            bench.work.let_go()
            bench.wait(lambda: len(bench.work.ended) == 150)
        assert sent
        assert all(sent)
        assert set(bench.work.starts().values()) == {1}


class TestTroubleInACallback:
    def test_a_broker_that_does_not_answer_inside_assigned_is_asked_again(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("committed", *[SourceUnavailable("not now")] * 3)
            member.source.fail("seek", *[SourceUnavailable("not yet")] * 3)
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member.start()
            bench.wait_committed(3)
            assert member.source.failing("committed") == member.source.failing("seek") == 0
        assert set(bench.work.starts().values()) == {1}

    def test_a_defect_on_the_way_leaves_no_callback_and_stops_the_app_in_good_order(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("position_names", RuntimeError("a defect"))
            member.start()
            with pytest.raises(RuntimeError, match="a defect"):
                member.join()
            assert bench.group.members == []
            assert bench.ids() == []


def _nothing_was_abandoned(bench: Bench) -> None:
    """The first member gave up what it had in hand when that had ended, and both have worked."""
    first = bench.members[0]
    assert {seen.member for seen in bench.work.ended} == {"a", "b"}
    reports = [each for each in first.told(RebalanceReport) if each.given]
    assert sum(each.drained for each in reports) > 0
    assert [each.abandoned for each in reports] == [0] * len(reports)


@pytest.fixture
def deadlines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Deadline]:
    """Of each drain that has begun, by what has triggered it."""
    begun: dict[str, Deadline] = {}
    drain = HandOver.drain

    def note(self: HandOver, *args: Any, **kwargs: Any) -> None:
        begun[self._trigger] = self._deadline
        drain(self, *args, **kwargs)

    monkeypatch.setattr(HandOver, "drain", note)
    return begun


def with_both_held(bench: Bench) -> tuple[Member, Member]:
    """Who has both partitions, whose handlers wait, and drains for an hour; and another member that has none yet."""
    bench.work.hold("0x0", "1x0")
    bench.broker.produce("orders", 0, "0x0")
    bench.broker.produce("orders", 1, "1x0")
    first = bench.member("a", settings=Settings(drain_timeout_s=3600.0))
    bench.wait_running("0x0", "1x0")
    bench.group.aim({first.source: [P0, P1]})
    return first, bench.member("b", settings=SETTINGS)


def test_an_app_that_is_asked_to_stop_inside_a_rebalance_drains_for_no_longer_from_then_on(
    deadlines: dict[str, Deadline],
) -> None:
    """Its process manager waits for one drain, and then kills."""
    with Bench(orders=2) as bench:
        first, second = with_both_held(bench)
        bench.group.aim({first.source: [P1], second.source: [P0]})
        bench.wait(lambda: "revoked" in deadlines)
        first.app.stop()
        ours = first.app._engine.family.partitions  # type: ignore[union-attr]  # it runs, and its source has partitions
        bench.wait(lambda: ours.leaving is not None)
        bench.work.let_go("0x0")
        bench.wait(lambda: "leave" in deadlines)
        assert deadlines["leave"] is ours.leaving
        bench.work.let_go()
        bench.wait_committed(1, 0)
        bench.wait_committed(1, 1)


def test_what_goes_while_the_app_leaves_is_waited_for_no_longer_than_the_rest(deadlines: dict[str, Deadline]) -> None:
    """The group waits for it: a drain of its own would begin where the other is about to end."""
    with Bench(orders=2) as bench:
        first, second = with_both_held(bench)
        first.app.stop()
        bench.wait(lambda: "leave" in deadlines)
        bench.group.aim({first.source: [P1], second.source: [P0]})
        bench.wait(lambda: "revoked" in deadlines)
        assert deadlines["revoked"] is deadlines["leave"]
        bench.work.let_go()
        bench.wait_committed(1, 0)
        bench.wait_committed(1, 1)
    assert set(bench.work.starts().values()) == {1}
