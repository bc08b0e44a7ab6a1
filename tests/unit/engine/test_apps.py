"""Starting, stopping, subscribing, and what may go wrong around it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.errors import HandlerFailed, NotAuthorised, SettingError, SourceUnavailable, StateError, UnknownTopic
from holdfast.plugin.events import RebalanceReport, SourceTrouble
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, FlakyClaims, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.events import Event
    from holdfast.timing import Deadline

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0 = partition()
ROOT = Path(__file__).parents[3]


class TestStop:
    def test_before_run_means_that_nothing_is_handled(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(start=False)
            member.app.stop()
            member.start().join()
            assert bench.work.started == []
            assert bench.ids() == []

    @pytest.mark.parametrize("waits_for", ["the store", "the broker"])
    def test_while_the_start_waits_ends_it_without_an_error(self, waits_for: str) -> None:
        store, waiting = FlakyClaims(), threading.Event()

        class Slow(MemoryPartitionedSource):
            def open(self, topics: Any, listener: Any, owners: Any, deadline: Deadline) -> None:
                waiting.set()
                while not deadline.passed:
                    deadline.left_s()
                raise SourceUnavailable("no answer")

        if waits_for == "the store":
            store.go_down()
        with Bench(claims=store) as bench:
            member = bench.member(source=Slow, settings=Settings(startup_timeout_s=3600.0))
            bench.wait(lambda: waiting.is_set() or store.calls["connect"])
            member.stop()
        assert store.inner.state.sessions == {}

    def test_twice_hands_over_at_once_what_runs(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", "x1", key="k")
            member = bench.member(settings=Settings(drain_timeout_s=3600.0, linger_timeout_s=3600.0))
            bench.wait_running("x0")
            member.app.stop()
            member.app.stop()
            member.join()
            # It counts as in hand until the session's lease ends: whoever comes waits for it.
            assert len(bench.ids()) == 1
            session = bench.ids()[0]
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            assert claims.state.position("g/orders/1/0").running == {0: (session, 1)}
            claims.expire(session)
            bench.work.let_go()
            bench.member("b", settings=SETTINGS)
            bench.wait_committed(2)
        assert bench.work.starts() == {"x0": 2, "x1": 1}

    def test_from_inside_a_handler(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            stop: list[Any] = []
            member = bench.member(handler=lambda _: stop[0](), start=False)
            stop.append(member.app.stop)
            member.start().join()
            assert bench.group.offset(P0) == 1

    def test_does_not_wait_for_a_lock_that_the_interrupted_thread_may_hold(self) -> None:
        """A signal handler runs between any two instructions, also those of the app's own wait."""
        with Bench() as bench:
            member = bench.member()
            bench.wait(lambda: member.owns)
            engine = member.app._engine
            assert engine is not None
            with engine.parts.workers.wake._cond:  # type: ignore[attr-defined]  # threading's own
                thread = threading.Thread(target=engine.stop, daemon=True)
                thread.start()
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            member.join()


SCRIPT = """
    import sys, threading
    from holdfast import Holdfast, MemoryClaims, Settings
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, "x0", "x1", key="k")
    let_go = threading.Event()
    settings = Settings(drain_timeout_s=60.0, linger_timeout_s=60.0)
    app = Holdfast(MemoryPartitionedSource(broker), claims=MemoryClaims(), settings=settings)

    @app.handler("orders")
    def handle(record):
        print("started", record.value.decode(), flush=True)
        let_go.wait(60)

    def read():
        for line in sys.stdin:
            let_go.set()

    threading.Thread(target=read, daemon=True).start()
    app.run()
    print("committed", broker.group().committed, flush=True)
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        yield running
        running.kill()


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_one_drains_commits_and_leaves(self, process: subprocess.Popen[str], number: int) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "started x0\n"
        process.send_signal(number)
        out, err = process.communicate("let go\n", timeout=PATIENCE_S)
        assert re.search(r"committed .*offset=1, ours=True", out), (out, err)
        assert process.returncode == 0

    def test_a_second_one_does_not_wait_for_what_runs(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "started x0\n"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)  # two of one kind are one, where the process was stopped meanwhile
        assert process.wait(PATIENCE_S) == 0
        assert "committed" in process.stdout.read()

    def test_handlers_of_signals_are_put_back(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        during: list[Any] = []
        broker = MemoryBroker(orders=1)
        broker.produce("orders", 0, "x")
        app = Holdfast(MemoryPartitionedSource(broker), claims=MemoryClaims())

        @app.handler("orders")
        def handle(_: object) -> None:
            during.append(signal.getsignal(signal.SIGTERM))
            app.stop()

        app.run()
        assert signal.getsignal(signal.SIGTERM) == before
        assert during[0] != before


class TestTrouble:
    def test_an_observer_that_raises_stops_nothing_and_the_others_are_told(self) -> None:
        class Broken:
            def on_event(self, event: Event) -> None:
                raise ZeroDivisionError

        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, observers=[Broken()])
            bench.wait_committed(5)
            member.stop()
            assert {event.trigger for event in member.told(RebalanceReport)} == {"assigned", "leave"}

    def test_trouble_of_the_broker_that_passes_is_told_and_ridden_out(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS)
            member.source.fail("poll", *[SourceUnavailable("not now")] * 3)
            bench.wait(lambda: len(member.told(SourceTrouble)) == 3)
            bench.broker.produce("orders", 0, "x")
            bench.wait_committed(1)
            assert len(member.told(SourceTrouble)) == 3

    def test_trouble_that_does_not_pass_stops_the_app_in_good_order(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=Settings(commit_interval_s=3600.0))
            bench.wait_ended("x")
            member.source.fail("poll", NotAuthorised("the group is closed to you"))
            with pytest.raises(NotAuthorised):
                member.join()
            assert bench.group.offset(P0) == 1
            assert bench.ids() == []

    def test_a_client_that_fails_to_close_hides_no_error_and_keeps_no_session(self) -> None:
        with Bench() as bench:
            bench.work.fail("x", *[ValueError("no good")] * 3)
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("close", SourceUnavailable("gone already"))
            member.start()
            with pytest.raises(HandlerFailed):
                member.join()
            assert bench.ids() == []

    def test_a_topic_that_does_not_exist_ends_the_start(self) -> None:
        with Bench() as bench:
            member = bench.member(topics=["nowhere"])
            with pytest.raises(UnknownTopic):
                member.join()
            assert bench.ids() == []

    def test_a_broker_that_refuses_at_the_start_leaves_no_session_behind(self) -> None:
        with Bench() as bench:
            member = bench.member(start=False)
            member.source.fail("open", NotAuthorised("no"))
            member.start()
            with pytest.raises(NotAuthorised):
                member.join()
            assert bench.ids() == []


class TestSubscriptions:
    def test_patterns_take_what_matches_now_and_later(self) -> None:
        with Bench(orders_eu=1, other=1) as bench:
            bench.broker.produce("orders_eu", 0, "eu")
            bench.broker.produce("other", 0, "other")
            bench.member(settings=SETTINGS, topics=["^orders_.*"])
            bench.wait_ended("eu")
            bench.broker.create("orders_us", 2)
            bench.broker.produce("orders_us", 1, "us")
            bench.wait_ended("us")
            bench.wait_committed(1, 1, "orders_us")
        assert bench.work.starts() == {"eu": 1, "us": 1}

    def test_partitions_that_are_added_are_taken_over_and_nothing_is_repeated(self) -> None:
        with Bench(orders=1) as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            bench.member(settings=SETTINGS)
            bench.wait_committed(20)
            bench.broker.create("orders", 3)
            for number in range(3):
                bench.broker.produce("orders", number, *numbered(f"{number}y", range(5)))
            bench.wait(lambda: len(bench.work.ended) == 35)
        assert set(bench.work.starts().values()) == {1}

    def test_they_may_change_while_running(self) -> None:
        with Bench(orders=1, payments=1) as bench:
            bench.broker.produce("orders", 0, "o0")
            bench.broker.produce("payments", 0, "p0")
            member = bench.member(settings=SETTINGS, topics=["orders", "payments"])
            bench.wait_ended("o0", "p0")
            member.app.subscribe(["payments"])
            bench.wait(lambda: member.owns == {partition(0, "payments")})
            bench.broker.produce("orders", 0, "o1")
            bench.broker.produce("payments", 0, "p1")
            bench.wait_ended("p1")
            assert bench.group.offset(P0) == 1
            member.app.subscribe(["orders", "payments"])
            bench.wait_ended("o1")
        assert set(bench.work.starts().values()) == {1}

    def test_what_no_handler_matches_is_refused_at_once(self) -> None:
        with Bench(orders=1) as bench:
            member = bench.member()
            bench.wait(lambda: member.owns)
            for topic in ("payments", "^pay.*"):
                with pytest.raises(SettingError, match="no handler matches"):
                    member.app.subscribe([topic])

    def test_before_run_is_an_error(self) -> None:
        with Bench(orders=1) as bench:
            member = bench.member(start=False)
            with pytest.raises(StateError, match="running app"):
                member.app.subscribe(["orders"])
            member.start()

    def test_an_exact_name_wins_over_a_pattern(self) -> None:
        with Bench(orders=1, orders_eu=1) as bench:
            got: list[tuple[str, bytes | None]] = []
            member = bench.member(
                topics=["^orders.*"], handler=lambda record: got.append(("^", record.value)), start=False
            )
            member.app.handler("orders_eu", name="exact")(lambda record: got.append(("exact", record.value)))
            bench.broker.produce("orders", 0, "a")
            bench.broker.produce("orders_eu", 0, "b")
            member.start()
            bench.wait(lambda: len(got) == 2)
        assert sorted(got) == [("^", b"a"), ("exact", b"b")]


class TestMistakes:
    def test_no_handlers(self) -> None:
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)
        with pytest.raises(SettingError, match="register at least one handler"):
            app.run()

    def test_a_rule_for_timeouts_that_nobody_has(self) -> None:
        settings = Settings(on_handler_timeout="stop")
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None, settings=settings)
        app.handler("orders", name="h")(print)
        with pytest.raises(SettingError, match="no handler has a timeout"):
            app.run()

    @pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
    def test_a_timeout_of_a_handler_that_is_none(self, timeout_s: float) -> None:
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)
        with pytest.raises(SettingError, match="timeout_s="):
            app.handler("orders", name="h", timeout_s=timeout_s)(print)

    def test_an_app_runs_once(self) -> None:
        with Bench() as bench:
            member = bench.member()
            bench.wait(lambda: member.owns)
            member.stop()
            with pytest.raises(StateError, match="runs once"):
                member.app.run()

    def test_a_handler_that_comes_too_late(self) -> None:
        with Bench() as bench:
            member = bench.member()
            bench.wait(lambda: member.owns)
            with pytest.raises(StateError, match="before run"):
                member.app.handler("payments")(print)

    def test_a_dead_letter_without_anything_to_send_it(self) -> None:
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)
        app.handler("orders", dead_letter="dlq", name="h")(print)
        with pytest.raises(SettingError, match="dead_letters"):
            app.run()

    def test_a_dead_letter_to_its_own_topic(self) -> None:
        app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=None)
        with pytest.raises(SettingError, match="dead_letter='orders'"):
            app.handler(["orders"], dead_letter="orders")(print)
