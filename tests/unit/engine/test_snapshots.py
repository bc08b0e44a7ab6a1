"""Snapshots and status lines: what happened is counted, whoever asks and whenever."""

from __future__ import annotations

import json
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Ramp, Retry, Settings, Unretriable
from holdfast.errors import HandlerFailed
from holdfast.plugin.events import HandlerOverdue, RebalanceReport, Status, StoreDown
from holdfast.plugin.observe.meter import Meter
from holdfast.plugin.observe.snapshot import MOST_REPORTS, SourceFigures
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, FlakyClaims, Letters, numbered, partition
from tests.harness.waiting import until
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.observe.snapshot import PartitionFigures, Snapshot
    from holdfast.records import Record
    from tests.harness.engine import Member

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0 = partition()


def of(member: Member, number: int = 0) -> PartitionFigures:
    return next(each for each in member.app.snapshot().partitions if each.partition == partition(number))


def seen(member: Member, holds: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot of which it holds. Each is from a turn of its own, which `Bench.wait` would keep waiting."""

    def look() -> Snapshot | None:
        taken = member.app.snapshot()
        return taken if holds(taken) else None

    return until(look, member.app.snapshot)


class TestState:
    def test_before_and_after_run_it_answers_too(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS, start=False)
            new = member.app.snapshot()
            assert (new.state, new.group, new.partitions, new.uptime_s, new.lag) == ("new", "g", (), 0.0, None)
            member.start()
            bench.wait_committed(3)
            running = member.app.snapshot()
            assert (running.state, running.error) == ("running", None)
            assert running.uptime_s > 0
            member.stop()
            after = member.app.snapshot()
            assert (after.state, after.error, after.records.handled, after.partitions) == ("stopped", None, 3, ())
            assert after.rebalances.by_trigger == {"assigned": 1, "leave": 1}
            assert [(each.trigger, each.gained, each.given) for each in after.rebalances.last] == [
                ("assigned", (P0,), ()),
                ("leave", (), (P0,)),
            ]

    def test_why_it_stopped_is_in_it(self) -> None:
        with Bench() as bench:
            bench.work.fail("x", Unretriable("no good"))
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS)
            with pytest.raises(HandlerFailed):
                member.join()
            taken = member.app.snapshot()
            assert taken.state == "stopped"
            assert "no good" in (taken.error or "")
            assert taken.error_type == "HandlerFailed"
            # What the handler's own error says may be secret: probes are told of its kind alone.
            assert member.app.health().reasons == (
                "the app has failed with HandlerFailed: the log and snapshot().error say why",
            )

    def test_while_the_store_is_down_and_while_it_leaves(self) -> None:
        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.work.hold("slow")
            member = bench.member(settings=SETTINGS, key=lambda record: record.value or b"")
            bench.broker.produce("orders", 0, "slow")
            bench.wait_running("slow")
            store.go_down()
            bench.broker.produce("orders", 0, "y")
            bench.wait(lambda: member.told(StoreDown))
            down = member.app.snapshot()
            assert (down.state, down.store.up) == ("paused: store down", False)
            assert sum(each.failures for each in down.store.calls.values()) >= 1
            store.come_back()
            bench.wait_ended("y")
            assert member.app.snapshot().store.up
            member.app.stop()
            assert seen(member, lambda taken: taken.state == "leaving").load.running == 1


class TestFigures:
    def test_of_records_that_are_handled(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("x5")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.broker.produce("orders", 1, *numbered("y", range(4)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            bench.wait_committed(4, 1)
            taken = seen(member, lambda taken: (taken.load.in_flight, taken.load.running) == (1, 1))
            assert taken.records.polled == 14
            assert taken.records.handled == 13
            assert (taken.load.running, taken.load.waiting_for_marks) == (1, 0)
            assert taken.load.in_flight_bytes == 2
            found = of(member)
            assert (found.phase, found.watermark, found.next, found.committed, found.log_end, found.in_flight) == (
                "owned",
                5,
                10,
                5,
                10,
                1,
            )
            assert (found.lag, taken.lag) == (5, 5)
            assert taken.rebalances.commits_sent >= 2
            assert taken.store.calls["acquire"].calls >= 1
            assert taken.store.calls["exchange"].calls >= 1
            assert taken.store.session == member.session
            bench.work.let_go()
            bench.wait_committed(10)
            timings = seen(member, lambda taken: taken.handlers["handle"].calls == 14).handlers["handle"]
            assert sum(timings.buckets) == 14
            assert 0 < timings.max_s <= timings.seconds

    def test_of_records_whose_key_is_claimed_elsewhere(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("first")
            a = bench.member("a", settings=SETTINGS, key=lambda _: b"one")
            bench.broker.produce("orders", 0, "first")
            bench.wait_running("first")
            bench.broker.produce("orders", 1, "second")
            waits = seen(a, lambda taken: any(each.waiting_for_claims for each in taken.partitions))
            assert [each.waiting_for_claims for each in waits.partitions] == [0, 1]
            bench.work.let_go()
            bench.wait_committed(1, 1)
            assert of(a, 1).waiting_for_claims == 0

    def test_a_batch_is_one_call(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(6)))

            def handle(records: Sequence[Record]) -> None: ...

            member = bench.member(settings=SETTINGS, handler=handle, batch=BatchOf(records=3, wait_s=5))
            bench.wait_committed(6)
            # A call is timed when its worker is back, a moment after its records have ended.
            taken = seen(member, lambda taken: sum(each.calls for each in taken.handlers.values()) >= 2)
            assert (taken.records.handled, taken.handlers["handle"].calls) == (6, 2)

    def test_coroutines_are_timed_too(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))

            async def handle(record: Record) -> None: ...

            member = bench.member(settings=SETTINGS, handler=handle)
            bench.wait_committed(3)
            seen(member, lambda taken: sum(each.calls for each in taken.handlers.values()) == 3)

    def test_of_records_that_fail(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.fail("twice", ValueError(), ValueError())
            bench.work.fail("never", Unretriable("no"))
            bench.broker.produce("orders", 0, "twice", "never")
            member = bench.member(settings=SETTINGS, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(2)
            taken = member.app.snapshot()
            found = taken.records
            assert (found.failed_attempts, found.retried, found.dead_lettered, found.handled) == (3, 2, 1, 1)
            [handler] = taken.handlers.values()
            assert (handler.failed_attempts, handler.dead_lettered) == (3, 1)

    def test_of_duplicates_by_key_and_by_position(self) -> None:
        with Bench() as bench:
            bench.work.hold('{"id": 1}')
            bench.broker.produce("orders", 0, '{"id": 1}', '{"id": 2}', '{"id": 2}')
            first = bench.member(settings=SETTINGS, key="id")
            bench.wait(lambda: bench.position() == (0, {1, 2}))
            assert first.app.snapshot().records.suppressed_by_key == 1
            first.app.stop()
            first.app.stop()  # what runs is handed over
            first.join()
            bench.claims.expire(bench.ids()[0])  # type: ignore[attr-defined]
            bench.work.let_go()
            second = bench.member("b", settings=SETTINGS, key="id")
            bench.wait_committed(3)
            assert second.app.snapshot().records.suppressed_by_position == 2
            assert first.app.snapshot().records.abandoned == 1

    def test_of_the_ramp_while_it_holds_something_back(self) -> None:
        with Bench() as bench:
            bench.work.hold(*numbered("x", range(500)))  # while nothing ends and not all is taken in, it is not over
            bench.broker.produce("orders", 0, *numbered("x", range(500)))
            bench.broker.group().set_offset(partition(0), 0, ours=True)  # somebody had it before
            settings = Settings(workers=4, commit_interval_s=0.01, max_in_flight=100)
            member = bench.member(settings=settings, ramp=Ramp(floor_per_s=500.0))
            bench.wait_running("x0")
            rate = member.app.snapshot().load.ramp_per_s
            assert rate is not None
            assert rate >= 500.0
            bench.work.let_go()
            bench.wait_committed(500)
            seen(member, lambda taken: taken.load.ramp_per_s is None)

    def test_of_handlers_that_hang(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            overdue: list[int] = []

            class Watch:
                def on_event(self, event: Event) -> None:
                    if isinstance(event, HandlerOverdue):
                        overdue.append(member.app.snapshot().load.overdue)

            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            settings = Settings(workers=4, commit_interval_s=0.01, handler_timeout_s=0.05, handler_grace_s=0.2)
            how: dict[str, Any] = {"dead_letter": "dlq", "dead_letters": letters, "observers": [Watch()]}
            member = bench.member(settings=settings, start=False, **how)
            member.start()
            bench.wait_committed(1)
            assert overdue == [1]
            found = seen(member, lambda taken: taken.load.running == 0).load
            assert (found.overdue, found.stuck, found.given_up) == (0, 1, 1)
            bench.work.let_go()
            assert seen(member, lambda taken: taken.load.stuck == 0).load.given_up == 1

    def test_of_a_leased_source_there_are_no_partitions(self) -> None:
        queue = MemoryQueue()
        queue.put("x")
        app = Holdfast(MemoryLeasedSource(queue), claims=MemoryClaims(), settings=SETTINGS)
        app.handler("jobs", name="h")(lambda _: app.stop())
        app.run(install_signal_handlers=False)
        taken = app.snapshot()
        assert (taken.records.handled, taken.partitions) == (1, ())


class TestWhoAsks:
    def test_an_observer_in_the_apps_own_thread_does_not_wait_for_itself(self) -> None:
        taken: list[Snapshot] = []
        broker = MemoryBroker(orders=1)
        broker.produce("orders", 0, "x")

        class Watch:
            def on_event(self, event: Event) -> None:
                taken.append(app.snapshot())

        app = Holdfast(MemoryPartitionedSource(broker), claims=MemoryClaims(), settings=SETTINGS, observers=[Watch()])
        app.handler("orders", name="h")(lambda _: app.stop())
        app.run(install_signal_handlers=False)
        assert {each.state for each in taken} <= {"running", "leaving", "stopped"}
        assert taken

    def test_a_handler_may_ask(self) -> None:
        with Bench() as bench:
            taken: list[Snapshot] = []
            bench.broker.produce("orders", 0, "x")
            member = bench.member(
                settings=SETTINGS, handler=lambda _: taken.append(member.app.snapshot()), start=False
            ).start()
            bench.wait_committed(1)
            assert taken[0].load.running == 1

    def test_many_threads_at_once_each_get_one(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(2_000)))
            member = bench.member(settings=SETTINGS)
            found: list[list[Snapshot]] = [[] for _ in range(8)]

            def ask(mine: list[Snapshot]) -> None:
                mine += [member.app.snapshot() for _ in range(20)]

            threads = [threading.Thread(target=ask, args=(mine,)) for mine in found]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for mine in found:
                handled = [each.records.handled for each in mine]
                assert handled == sorted(handled)
                assert len(mine) == 20
            for each in (one for mine in found for one in mine):
                # Between two steps: what is in flight was polled, and is not settled.
                assert each.load.in_flight <= each.records.polled
                for figures in each.partitions:
                    if figures.watermark is not None and figures.next is not None:
                        assert figures.watermark <= figures.next

    def test_it_goes_into_json(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(1)
            read = json.loads(json.dumps(member.app.snapshot().as_dict()))
            assert read["partitions"][0]["partition"] == "orders-0"
            [report] = read["rebalances"]["last"]
            assert (report["trigger"], report["gained"], report["given"]) == ("assigned", "orders-[0]", "")
            assert report["phases_s"].keys() == {"take_over"}

    def test_it_has_the_last_reports_of_rebalances_and_no_more(self) -> None:
        meter = Meter(HandClock())
        for number in range(MOST_REPORTS + 3):
            meter.saw(RebalanceReport(trigger="revoked", protocol="consumer", group="g", began_ms=number))
        taken = meter.rebalances(SourceFigures())
        assert [each.began_ms for each in taken.last] == [*range(3, MOST_REPORTS + 3)]
        assert taken.by_trigger == {"revoked": MOST_REPORTS + 3}


class TestStatusLines:
    def test_one_comes_each_interval_and_can_be_parsed(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "holdfast")
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=Settings(commit_interval_s=0.01, status_interval_s=0.05))
            bench.wait_committed(5)
            bench.wait(lambda: len(member.told(Status)) >= 3)
            member.stop()
            told = member.told(Status)
            assert told[-1].handled == 5
            assert max(each.rate_s for each in told) > 0
        lines = [line for line in caplog.messages if line.startswith("status: ")]
        assert len(lines) >= 3
        for line in lines:
            found: dict[str, Any] = dict(pair.split("=", 1) for pair in shlex.split(line.removeprefix("status: ")))
            assert {"state", "handled", "rate_s", "in_flight", "store", "duplicates"} <= found.keys()
            assert found["store"] == "up"

    def test_none_comes_where_none_is_wanted(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=Settings(commit_interval_s=0.01, status_interval_s=0))
            bench.wait_committed(1)
            engine: Any = member.app._engine
            member.stop()
            assert not member.told(Status)
            assert not engine.parts.timers._heap


class TestHowLongARecordHoldsItsPartitionUp:
    """The figure that is alerted on: it says that something hangs, and nothing of how much came at once."""

    def age(self, member: Member, number: int = 0) -> float:
        lowest = of(member, number).lowest
        assert lowest is not None
        return lowest.for_s

    def test_waiting_behind_others_of_its_partition_does_not_count(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0", "x1")
            bench.broker.produce("orders", 0, "x0", "x1")
            member = bench.member(settings=Settings(workers=1, ordering="partition"))
            bench.wait_running("x0")
            seen(member, lambda taken: taken.load.in_flight == 2)
            released = time.monotonic()
            bench.work.let_go("x0")
            bench.wait_running("x1")
            bench.wait(lambda: bench.position()[0] == 1)
            age = self.age(member)
            assert age <= time.monotonic() - released

    def test_waiting_while_workers_are_busy_with_others_does_not_count(self) -> None:
        """Another partition's backlog stands before it."""
        with Bench(orders=2) as bench:
            bench.work.hold("x0", "x1", "y0")
            member = bench.member(settings=Settings(workers=1, ordering="none"))
            bench.broker.produce("orders", 0, "x0")
            bench.wait_running("x0")
            bench.broker.produce("orders", 0, "x1", "x2", "x3", "x4")
            seen(member, lambda taken: taken.load.in_flight == 5)
            bench.broker.produce("orders", 1, "y0")
            seen(member, lambda taken: taken.load.in_flight == 6)
            assert of(member, 1).lowest is not None
            released = time.monotonic()
            bench.work.let_go("x0")
            bench.wait_running("x1")
            assert "y0" not in bench.work.starts()
            assert self.age(member, 1) <= time.monotonic() - released

    def test_a_call_counts_from_its_begin_though_another_record_was_lower_then(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0", "x1")
            bench.broker.produce("orders", 0, "x0", "x1")
            member = bench.member(settings=Settings(workers=2, ordering="none"))
            bench.wait_running("x0", "x1")
            began = time.monotonic()
            seen(member, lambda taken: taken.uptime_s > 0)
            held_s = time.monotonic() - began
            bench.work.let_go("x0")
            bench.wait(lambda: bench.position()[0] == 1)
            seen(member, lambda taken: taken.partitions[0].watermark == 1)
            assert self.age(member) >= held_s

    def test_an_attempt_that_failed_counts_while_its_record_waits_for_the_next(self) -> None:
        with Bench() as bench:
            bench.work.fail("x", ValueError("no"))
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            never = Retry(attempts=2, wait_initial_s=3600.0, wait_max_s=3600.0)
            member = bench.member(settings=Settings(workers=1), retry=never)
            bench.wait_running("x")
            began = time.monotonic()
            self.age(member)
            held_s = time.monotonic() - began
            bench.work.let_go("x")
            seen(member, lambda taken: taken.records.failed_attempts == 1)
            assert self.age(member) >= held_s
