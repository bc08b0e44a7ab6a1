"""What probes hear: of a whole app in memory, and of each state by itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from holdfast import Retry, Settings
from holdfast.errors import SourceFatal
from holdfast.plugin.engine.partition import partitioned
from holdfast.plugin.observe.health import HealthCheck
from holdfast.plugin.observe.metrics import METRICS
from holdfast.plugin.observe.snapshot import OpenRecord, PartitionFigures, Snapshot
from holdfast.plugin.observe.source_state import Silence
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, FlakyClaims, partition
from tests.harness.waiting import until

if TYPE_CHECKING:
    from holdfast.plugin.observe.health import Health
    from holdfast.plugin.observe.snapshot import State
    from holdfast.plugin.ports import Batch
    from holdfast.records import Record

P0 = partition()


class Probe:
    """Asks every ten seconds of a clock that is set by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.check = HealthCheck(self.clock)

    def after(self, seconds: float, snapshot: Snapshot) -> Health:
        self.clock.sleep(seconds)
        return self.check.judge(snapshot, stall_s=60.0, silent_s=30.0)


def taken(state: State = "running", *partitions: PartitionFigures, error: str | None = None) -> Snapshot:
    return Snapshot(state=state, group="g", at_ms=0, partitions=partitions, error=error)


def figures(watermark: int | None, end: int, phase: str = "owned", waits_for: str = "") -> PartitionFigures:
    lowest = OpenRecord(offset=watermark or 0, handler="h", for_s=1.0, waits_for=waits_for) if waits_for else None
    return PartitionFigures(
        partition=P0, phase=phase, watermark=watermark, log_end=end, lowest=lowest, in_flight=1 if lowest else 0
    )


@pytest.mark.parametrize(
    ("state", "error", "live", "ready"),
    [
        ("new", None, True, False),
        ("starting", None, True, False),
        ("running", None, True, True),
        ("paused: store down", None, True, False),
        ("leaving", None, True, False),
        ("stopped", None, True, False),
        ("stopped", "no", False, False),
        ("leaving", "no", True, False),
    ],
)
def test_states(state: State, error: str | None, *, live: bool, ready: bool) -> None:
    health = Probe().after(0.0, taken(state, error=error))
    assert (health.live, health.ready, health.state) == (live, ready, state)
    assert bool(health.reasons) is not ready


def test_brokers_that_do_not_answer_are_a_reason_and_no_more() -> None:
    silence = Silence(source="Kafka at b:1", for_s=25.0)
    snapshot = Snapshot(state="running", group="g", at_ms=0, silence=silence)
    health = Probe().after(10.0, snapshot)
    assert (health.live, health.ready) == (True, True)
    assert health.reasons == ("Kafka at b:1 has not answered this client for 25 s",)
    assert snapshot.as_dict()["silence"] == {"source": "Kafka at b:1", "for_s": 25.0}


def test_a_loop_that_does_not_answer_is_dead_after_a_while() -> None:
    probe, last = Probe(), taken()
    assert probe.after(10.0, last).ready
    silent = probe.after(10.0, last)
    assert silent.live
    assert not silent.ready
    assert silent.reasons == ("the polling loop has not answered within a second",)
    assert not probe.after(30.0, last).live
    assert probe.after(10.0, taken()).ready


def test_a_start_may_take_as_long_as_its_own_limit_says() -> None:
    """An app that is told to wait for its brokers for minutes would be killed again and again."""
    clock, last = HandClock(), taken("starting")
    check = HealthCheck(clock)
    for after_s, live in ((0.0, True), (10.0, True), (119.0, True), (1.0, False)):
        clock.sleep(after_s)
        assert check.judge(last, stall_s=60.0, silent_s=30.0, start_s=120.0).live is live
    running = taken()
    for after_s, live in ((0.0, True), (10.0, True), (30.0, False)):
        clock.sleep(after_s)
        assert check.judge(running, stall_s=60.0, silent_s=30.0, start_s=120.0).live is live


def test_an_app_that_waits_for_its_store_lives_for_as_long_as_it_may_wait() -> None:
    store = FlakyClaims()
    store.go_down()
    with Bench(claims=store) as bench:
        member = bench.member()
        until(lambda: member.app.snapshot().state == "starting")
        assert all(member.app.health(silent_s=1e-9).live for _ in range(3))
        member.app.stop()


def test_a_partition_with_lag_that_does_not_move_is_named_with_what_it_waits_for() -> None:
    probe = Probe()
    stands = figures(7, 20, waits_for="its handler pay")
    assert probe.after(0.0, taken("running", stands)).stalled == ()
    assert probe.after(59.0, taken("running", stands)).stalled == ()
    health = probe.after(1.0, taken("running", stands))
    [stalled] = health.stalled
    assert (stalled.partition, stalled.offset, stalled.for_s, stalled.lag) == (P0, 7, 60.0, 13)
    assert health.reasons == ("orders-0 has stood still at 7 for 60 s with a lag of 13: it waits for its handler pay",)
    assert health.live
    assert health.ready
    assert probe.after(10.0, taken("running", figures(8, 20))).stalled == ()


@pytest.mark.parametrize(
    ("stands", "waits_for"),
    [
        (figures(7, 20), "the client to deliver more records"),
        (figures(None, 20, phase="unnamed"), "the broker to report which log it is"),
        (figures(None, 20, phase="assigned"), "its former owner to give it up, or for the end of that owner's lease"),
    ],
)
def test_what_a_partition_waits_for_without_a_record(stands: PartitionFigures, waits_for: str) -> None:
    probe = Probe()
    probe.after(0.0, taken("running", stands))
    [stalled] = probe.after(100.0, taken("running", stands)).stalled
    assert stalled.waits_for == waits_for


def test_a_partition_that_waits_for_its_takeover_is_named_after_some_seconds() -> None:
    probe, waits = Probe(), figures(None, 20, phase="assigned")
    assert probe.after(0.0, taken("running", waits)).reasons == ()
    assert probe.after(4.0, taken("running", waits)).reasons == ()
    [reason] = probe.after(2.0, taken("running", waits)).reasons
    assert reason.startswith("orders-0 has stood still for 6 s: it waits for its former owner to give it up")


def test_what_is_not_known_is_not_a_lag_of_0() -> None:
    snapshot = taken("running", figures(10, 20), figures(None, 1_000, phase="assigned"))
    assert (snapshot.lag, snapshot.lag_known, snapshot.lag_unknown_in) == (None, 10, 1)
    [metric] = [each for each in METRICS if each.name == "holdfast_lag_records"]
    assert list(metric.read(snapshot)) == []
    assert taken("running", figures(10, 20)).lag == 10


def test_a_partition_without_lag_may_stand() -> None:
    probe = Probe()
    probe.after(0.0, taken("running", figures(20, 20)))
    assert probe.after(1000.0, taken("running", figures(20, 20))).stalled == ()
    assert probe.after(30.0, taken("running", figures(20, 21))).stalled == ()  # its lag is new


def test_of_an_app_whose_handler_runs_on() -> None:
    with Bench() as bench:
        goes_on = threading.Event()

        def handle(record: Record) -> None:
            goes_on.wait()

        member = bench.member(handler=handle)
        assert member.app.health().live
        bench.broker.produce("orders", 0, "x", "y")
        waiting = "orders-0 has stood still at 0 for 0 s with a lag of 2: it waits for its handler handle"
        until(lambda: member.app.health(stall_s=0.0).reasons == (waiting,))
        goes_on.set()
        bench.wait_committed(2)
        assert member.app.health(stall_s=0.0).reasons == ()
    assert member.app.health().reasons == ("the app has stopped",)


def test_of_a_record_that_is_tried_again() -> None:
    with Bench() as bench:
        bench.work.fail("x", ValueError("no"))
        bench.broker.produce("orders", 0, "x")
        member = bench.member(retry=Retry(attempts=2, wait_initial_s=3600.0, wait_max_s=3600.0))

        def waits_for() -> str | None:
            lowest = [each.lowest for each in member.app.snapshot().partitions if each.lowest is not None]
            return lowest[0].waits_for if lowest else None

        until(lambda: waits_for() == "its next attempt: handle has failed 1 times")


def test_with_workers_0_a_handler_silences_the_loop() -> None:
    with Bench() as bench:
        began, goes_on = threading.Event(), threading.Event()

        def handle(record: Record) -> None:
            began.set()
            goes_on.wait()

        member = bench.member(handler=handle, settings=Settings(workers=0), source=MemoryPartitionedSource)
        bench.broker.produce("orders", 0, "x")
        began.wait()
        member.app.health()
        health = member.app.health(silent_s=0.0)
        goes_on.set()
        assert not health.live
        assert health.reasons == ("the polling loop has not run for 0 s",)


def test_two_probes_at_once_hear_the_same() -> None:
    with Bench() as bench:
        member = bench.member()
        until(lambda: member.app.health().ready)
        together, heard = threading.Barrier(2), []

        def probe() -> None:
            for _ in range(20):
                together.wait()
                heard.append(member.app.health().ready)

        threads = [threading.Thread(target=probe) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert heard == [True] * 40


# ---- who is ready is a member
def test_an_app_is_ready_once_its_group_has_let_it_in_and_not_before() -> None:
    """A classic group waits for all its members before it lets another in, and one is busy."""
    with Bench(orders=2, eager=True) as bench:
        bench.work.hold("slow")
        bench.broker.produce("orders", 0, "slow")
        busy = bench.member("busy", settings=Settings(workers=0))
        bench.wait_running("slow")
        new = bench.member("new")
        until(lambda: new.app.snapshot().state == "joining")
        for _ in range(3):
            health = new.app.health()
            assert (health.live, health.ready, health.state) == (True, False, "joining")
            [reason] = health.reasons
            assert reason.startswith("joining: the group has not let this member in for ")
        bench.work.let_go()
        until(lambda: new.app.health().ready)
        until(lambda: busy.app.health().ready)
        assert new.app.health().reasons == ()


def test_a_member_that_is_given_nothing_is_ready() -> None:
    with Bench(orders=1) as bench:
        members = [bench.member(name) for name in ("a", "b")]
        until(lambda: all(member.app.health().ready for member in members))
        bench.wait(lambda: sorted(len(member.owns) for member in members) == [0, 1])
        assert all(member.app.health().ready for member in members)


class Refused(MemoryPartitionedSource):
    """A client that its group has thrown out, or not let in: the broker says why, again and again."""

    refused = True

    @property
    def in_group(self) -> bool:
        return not self.refused and super().in_group

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        if self.refused:
            self._runtime.sleep(0.001)
            raise SourceFatal("the group is full (GROUP_MAX_SIZE_REACHED)")
        return super().poll(max_records, timeout_s)


def test_a_member_that_is_refused_is_not_ready_and_says_why() -> None:
    with Bench() as bench:
        member = bench.member(source=Refused)
        assert isinstance(member.source, Refused)
        refused = until(lambda: next((each for each in member.app.health().reasons if "full" in each), None))
        assert refused.startswith("joining: the group has not let this member in for ")
        assert refused.endswith("ago: the group is full (GROUP_MAX_SIZE_REACHED)")
        member.source.refused = False
        until(lambda: member.app.health().ready)
        assert member.app.snapshot().joining is None
        member.source.refused = True  # thrown out
        until(lambda: not member.app.health().ready)
        said = member.app.snapshot().as_dict()["joining"]
        assert said["trouble"] == "the group is full (GROUP_MAX_SIZE_REACHED)"


def test_of_a_source_that_does_not_say_the_first_assignment_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "KnowsMembership", type("Silent", (), {}))
    with Bench(eager=True) as bench:
        bench.work.hold("slow")
        bench.broker.produce("orders", 0, "slow")
        bench.member("busy", settings=Settings(workers=0))
        bench.wait_running("slow")
        new = bench.member("new")
        until(lambda: new.app.snapshot().state == "joining")
        assert not new.app.health().ready
        bench.work.let_go()
        bench.members[0].app.stop()
        until(lambda: new.app.health().ready)
