"""The audit: what an app tells is what happened, no more; and it never waits for who listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Audit, BatchFailed, BatchOf, FileEvents, Holdfast, MemoryClaims, Settings, Unretriable
from holdfast.errors import HandlerFailed, SettingError
from holdfast.plugin.audit.schema import Assigned, Outcome, Progress, Rebalanced, Revoked, Spans, Started, Stopped
from holdfast.plugin.observe.metrics import METRICS
from holdfast.runtime import Machine
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.audit_events import MemoryEvents, once
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, Letters, Work, numbered, partition
from tests.harness.waiting import PATIENCE_S
from tests.simulation.brokers.leased import MemoryQueue
from tests.unit.engine.test_driven import Loops, end, take
from tests.unit.engine.test_leased import LEASE_S, Consumer
from tests.unit.engine.test_snapshots import seen

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.records import Record

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
SHORT = Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=0.02)
P0, P1 = partition(0), partition(1)


@pytest.fixture
def told() -> MemoryEvents:
    return MemoryEvents()


class TestOutcomes:
    @pytest.mark.parametrize("handling", [{}, {"batch": BatchOf(records=4, wait_s=0.001)}], ids=["each", "batches"])
    def test_every_execution_is_told_and_so_is_every_attempt_that_failed(
        self, told: MemoryEvents, handling: dict[str, Any]
    ) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x3", ValueError("once"))
            bench.work.fail("x5", Unretriable("for good"))
            bench.broker.produce("orders", 0, *numbered("x", range(40)), key="k")
            if handling:
                handling = handling | {"handler": lambda records: _do_all(bench.work, records)}
            member = bench.member(
                settings=SETTINGS, audit=told.audit(), dead_letter="dead", dead_letters=letters, **handling
            )
            bench.wait_committed(40)
            member.stop()
        assert told.offsets(Outcome.HANDLED) == once(*set(range(40)) - {5})
        assert told.offsets(Outcome.DEAD_LETTERED) == once(5)
        failed = told.offsets(Outcome.FAILED)
        assert failed == once(3, 5)
        [stopped] = told.bodies(Stopped)
        assert stopped.clean
        assert stopped.records == {"handled": 39, "dead_lettered": 1, "failed": 2}

    def test_a_duplicate_by_its_key_is_told_as_skipped(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x", "y", "x")
            member = bench.member(settings=SETTINGS, audit=told.audit(), key=lambda record: record.value or b"")
            bench.wait_committed(3)
            member.stop()
        assert told.offsets(Outcome.HANDLED) == once(0, 1)
        assert told.offsets(Outcome.SKIPPED_KEY) == once(2)

    def test_a_duplicate_by_its_position_is_told_as_skipped(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(6)))
            first = bench.member("a", settings=SHORT, audit=told.audit("a"))
            bench.wait(lambda: bench.position() == (1, {2, 3, 4, 5}))
            second = bench.member("b", settings=SETTINGS, audit=told.audit("b"))
            first.app.stop()
            bench.wait(lambda: told.offsets(Outcome.SKIPPED_POSITION, "b") == once(2, 3, 4, 5))
            bench.work.let_go()
            bench.wait_committed(6)
            second.stop()
        assert told.offsets(Outcome.HANDLED, "a") == once(*range(6))
        assert told.offsets(Outcome.SKIPPED_POSITION, "b") == once(1, 2, 3, 4, 5)

    def test_where_the_log_has_no_record_it_is_told_as_absent(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(12)))
            bench.broker.compact("orders", 0, keep=[2, 3, 7, 9])
            bench.broker.leave_out("orders", 0, 2)
            bench.member(settings=SETTINGS, audit=told.audit())
            bench.wait_committed(14)
        covered = [offset for span in told.spans() for offset in range(span.first or 0, span.next or 0)]
        assert sorted(covered) == list(range(14))
        assert {span.outcome for span in told.spans()} == {Outcome.HANDLED, Outcome.ABSENT}
        assert sum(span.records for span in told.spans()) == 4
        assert told.offsets(Outcome.HANDLED) >= once(2, 3, 7, 9)

    def test_what_the_log_deleted_before_it_was_read_is_told_as_expired(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(12)))
            bench.broker.compact("orders", 0, keep=[0, 1, 8, 9, 11])
            member = bench.member(settings=SETTINGS, audit=told.audit(), start=False)
            bench.group.set_offset(P0, 0)
            bench.broker.expire("orders", 0, 5)
            member.start()
            bench.wait_committed(12)
            member.stop()
        assert told.offsets(Outcome.EXPIRED) == once(*range(5))
        assert told.offsets(Outcome.HANDLED) + told.offsets(Outcome.ABSENT) == once(*range(5, 12))
        [stopped] = told.bodies(Stopped)
        assert (stopped.clean, stopped.records) == (True, {"handled": 3})

    def test_a_run_that_ends_by_an_error_says_so(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.work.fail("x1", Unretriable("for good"))
            bench.broker.produce("orders", 0, *numbered("x", range(2)), key="k")
            member = bench.member(settings=SETTINGS, audit=told.audit())
            with pytest.raises(HandlerFailed):
                member.join()
        [stopped] = told.bodies(Stopped)
        assert (stopped.clean, stopped.error, stopped.in_hand) == (False, "HandlerFailed", 0)
        assert stopped.records == {"handled": 1, "failed": 1}


def _do_all(work: Work, records: list[Record]) -> None:
    failures: dict[int, Exception] = {}
    for at, record in enumerate(records):
        try:
            work.do("a", record)
        except Exception as error:  # noqa: BLE001 - whatever it was told to raise
            failures[at] = error
    if failures:
        raise BatchFailed(failures)


class TestRebalances:
    def test_who_had_what_and_from_where_to_where(self, told: MemoryEvents) -> None:
        with Bench(orders=2) as bench:
            for number in range(2):
                bench.broker.produce("orders", number, *numbered(f"p{number}-", range(20)))
            first = bench.member("a", settings=SETTINGS, audit=told.audit("a"))
            bench.wait_committed(20, 0)
            bench.wait_committed(20, 1)
            second = bench.member("b", settings=SETTINGS, audit=told.audit("b"))
            bench.group.aim({first.source: [P0], second.source: [P1]})
            bench.wait(lambda: second.owns == {P1})
            bench.broker.produce("orders", 1, *numbered("more", range(5)))
            bench.wait_committed(25, 1)
            bench.wait(lambda: any(place.position == 25 == place.end for place in _stood(told, "b")))
            first.stop()
            second.stop()
        came = told.places(Assigned)
        assert [(place.partition, place.position) for _, place in came if place.partition == "0"] == [("0", 0)]
        assert [(place.partition, place.position) for _, place in told.places(Assigned, "b")] == [("1", 20)]
        went = told.places(Revoked, "a")
        assert [(trigger, place.partition, place.position) for trigger, place in went] == [
            ("revoked", "1", 20),
            ("leave", "0", 20),
        ]
        assert told.offsets(Outcome.HANDLED, "a") == once(*range(20)) + once(*range(20), partition="1")
        assert told.offsets(Outcome.HANDLED, "b") == once(*range(20, 25), partition="1")
        epochs = [place.epoch for _, place in (*came[1:2], *told.places(Assigned, "b"))]
        assert None not in epochs
        assert [report.trigger for report in told.bodies(Rebalanced, "a")] == ["assigned", "revoked", "leave"]

    def test_a_handler_that_outlives_the_drain_is_told_after_it_and_the_new_owner_skips_it(
        self, told: MemoryEvents
    ) -> None:
        with Bench(orders=1) as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(4)), key="k")
            first = bench.member("a", settings=SHORT, audit=told.audit("a"))
            bench.wait_running("x1")
            second = bench.member("b", settings=SETTINGS, audit=told.audit("b"))
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: second.owns == {P0})
            bench.work.let_go()
            bench.wait_committed(4)
            first.stop()
            second.stop()
        [(trigger, gone)] = told.places(Revoked, "a")
        assert (trigger, gone.position, gone.in_flight) == ("revoked", 1, 1)
        assert told.offsets(Outcome.HANDLED, "a") == once(0, 1)
        assert told.offsets(Outcome.HANDLED, "b") == once(2, 3)
        assert told.offsets(Outcome.SKIPPED_POSITION, "b") == once(1)
        late = [body for body in told.bodies(Spans, "a") if any(span.first == 1 for span in body.spans)]
        assert [body.epoch for body in late] == [gone.epoch]

    def test_a_lost_session_is_told_and_what_follows_is_another_ownership(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS, audit=told.audit())
            bench.wait_committed(3)
            bench.expire(member)
            bench.broker.produce("orders", 0, "x3")
            bench.wait_committed(4)
            member.stop()
        assert [trigger for trigger, _ in told.places(Revoked)] == ["session lost", "leave"]
        [(_, before), (_, after)] = told.places(Assigned)
        assert (before.position, after.position) == (0, 3)
        assert (before.epoch or 0) < (after.epoch or 0)

    def test_a_reset_is_told_as_one(self, told: MemoryEvents) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            first = bench.member("a", settings=SETTINGS, audit=told.audit("a"))
            bench.wait_committed(5)
            first.stop()
            bench.group.set_offset(P0, 3)
            second = bench.member("b", settings=SETTINGS, audit=told.audit("b"))
            bench.wait(lambda: bench.work.times()["x4"] == 2)
            bench.wait_committed(5)
            second.stop()
        assert [(trigger, place.position) for trigger, place in told.places(Assigned)] == [
            ("assigned", 0),
            ("reset", 3),
        ]
        assert told.offsets(Outcome.HANDLED, "b") == once(3, 4)


def _stood(told: MemoryEvents, member: str) -> list[Any]:
    return [place for body in told.bodies(Progress, member) for place in body.partitions]


class TestKeys:
    @pytest.mark.parametrize("keys", ["none", "plain", "hashed"])
    def test_business_keys_are_told_where_they_are_asked_for_and_as_asked_for(
        self, told: MemoryEvents, keys: Any
    ) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "secret", "other")
            audit = told.audit(keys=keys, salt="sea" if keys == "hashed" else None)
            member = bench.member(settings=SETTINGS, audit=audit, key=lambda record: record.value or b"")
            bench.wait_committed(2)
            member.stop()
            assert "sea" not in repr(audit)
        found = [each for body in told.bodies(Spans) for each in body.keys or ()]
        by_offset = {each.offset: each.key for each in found}
        if keys == "none":
            assert all(body.keys is None for body in told.bodies(Spans))
        elif keys == "plain":
            assert by_offset == {0: "s:secret", 1: "s:other"}
        else:
            assert all(len(key) == 32 for key in by_offset.values())
            assert by_offset[0] != by_offset[1]

    def test_members_of_one_group_agree_on_digests_and_other_groups_do_not(self) -> None:
        from holdfast.plugin.audit.settings import KeyWriter  # noqa: PLC0415 - a part that nobody else looks at

        audit = Audit(MemoryEvents(), keys="hashed")
        salted = Audit(MemoryEvents(), keys="hashed", salt="sea" * 100)
        assert KeyWriter(audit, "g")("s:1") == KeyWriter(audit, "g")("s:1") != KeyWriter(audit, "h")("s:1")
        assert KeyWriter(salted, "g")("s:1") == KeyWriter(salted, "h")("s:1") != KeyWriter(audit, "g")("s:1")


class TestOtherSources:
    def test_a_source_of_leases_tells_numbers_and_keys_and_no_offsets(self, told: MemoryEvents) -> None:
        queue, claims = MemoryQueue(LEASE_S, runtime=Machine(HandClock())), MemoryClaims()
        work = Work(queue.changed)
        queue.put(*numbered("x", range(5)))
        consumer = Consumer(queue, work, claims, audit=told.audit(keys="plain")).start()
        with queue.changed:
            assert queue.changed.wait_for(lambda: queue.open == [], PATIENCE_S)
        consumer.stop()
        claims.close()
        bodies = told.bodies(Spans)
        assert not any(body.ordered for body in bodies)
        assert {(span.first, span.next) for span in told.spans()} == {(None, None)}
        assert sum(span.records for span in told.spans() if span.outcome is Outcome.HANDLED) == 5
        keys = [each for body in bodies for each in body.keys or ()]
        assert len({each.key for each in keys}) == 5
        assert {each.offset for each in keys} == {None}
        assert told.bodies(Assigned) == []

    def test_a_loop_of_ones_own_has_handled_what_it_says_is_done(self, told: MemoryEvents) -> None:
        loops = Loops()
        loops.produce(*numbered("x", range(6)))
        loop = loops.loop("commit", audit=told.audit())
        values: list[str] = []
        while len(values) < 6:
            values += take(loop, timeout_s=0.05)
        with loop.lock:
            loop.end_below(P0, 4)
        end(loop)
        loops.claims.close()
        assert told.offsets(Outcome.HANDLED) == once(0, 1, 2, 3)
        [stopped] = told.bodies(Stopped)
        assert stopped.records == {"handled": 4}


class TestTheWay:
    def test_a_place_that_stands_still_holds_nothing_up_and_what_is_dropped_is_counted(
        self, told: MemoryEvents
    ) -> None:
        told.stands = True
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, audit=told.audit(buffer_events=10))
            bench.broker.produce("orders", 0, *numbered("x", range(500)))
            bench.wait_committed(500)
            dropped = seen(member, lambda taken: taken.audit.dropped > 0).audit.dropped
            told.stands = False
            bench.wait(lambda: told.bodies(Started))
            bench.broker.produce("orders", 0, "y")
            bench.wait_committed(501)
            member.stop()
        assert [event.stamp.seq for event in told.events] == list(range(len(told.events)))
        assert told.events[-1].stamp.dropped >= dropped
        figures = member.app.snapshot()
        assert (figures.audit.events, figures.audit.dropped) == (len(told.events), told.events[-1].stamp.dropped)
        read = {metric.name: list(metric.read(figures)) for metric in METRICS}
        assert read["holdfast_audit_events_total"] == [((), figures.audit.events)]
        assert read["holdfast_audit_dropped_total"] == [((), figures.audit.dropped)]

    def test_a_place_that_never_comes_back_does_not_keep_the_process(self, told: MemoryEvents) -> None:
        told.stands = True
        with Bench() as bench:
            member = bench.member(settings=SETTINGS, audit=told.audit(close_s=0.05))
            bench.broker.produce("orders", 0, "x")
            bench.wait_committed(1)
            member.stop()
        assert told.events == []

    def test_a_place_where_nothing_can_be_written_ends_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with Bench() as bench:
            member = bench.member(audit=Audit(FileEvents(tmp_path / "file")))
            with pytest.raises(SettingError, match="folder"):
                member.join()
            assert member.source.polls == 0

    def test_what_is_no_audit_is_refused(self) -> None:
        with Bench() as bench, pytest.raises(SettingError, match="audit"):
            Holdfast(MemoryPartitionedSource(bench.broker), claims=None, audit="events")  # type: ignore[arg-type]
