"""The lines that tell an operator where an app is: assigned, stopping, stopped; and Ctrl-C while it waits."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Settings, Unretriable, record_key
from holdfast.plugin.events import Assigned, RebalanceReport, Stopped, Stopping
from tests.harness.engine import Bench, FlakyClaims, Letters, numbered, partition

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = Settings(workers=4, commit_interval_s=0.01)


def test_what_was_assigned_is_told_at_once_and_not_when_its_lag_is_gone() -> None:
    with Bench(orders=2) as bench:
        bench.work.hold("x")
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=SETTINGS)
        bench.wait_running("x")
        [told] = member.told(Assigned)
        assert (told.group, told.partitions, told.total) == ("g", (partition(0), partition(1)), 2)
        assert member.told(RebalanceReport) == []


def test_what_waits_for_its_former_owner_is_said() -> None:
    store = FlakyClaims()
    with Bench(orders=1, claims=store) as bench:
        store.lose_request("acquire")
        member = bench.member(settings=SETTINGS)
        bench.wait(lambda: member.owns)
        assert [told.waiting for told in member.told(Assigned)] == [(partition(),)]


def test_stopping_says_why_and_what_runs_and_stopped_what_became_of_it_all() -> None:
    with Bench(orders=1) as bench:
        letters = Letters(bench.changed)
        bench.work.fail("x0", ValueError("once"))
        bench.work.fail("x1", Unretriable("no"))
        bench.work.hold("last")
        bench.broker.produce("orders", 0, *numbered("x", range(4)), "x2")
        member = bench.member(
            settings=SETTINGS, key=lambda record: record.value.decode(), dead_letter="dlq", dead_letters=letters
        )
        bench.wait_committed(5)
        bench.broker.produce("orders", 0, "last")
        bench.wait_running("last")
        member.app.stop()
        bench.wait(lambda: member.told(Stopping))
        [stopping] = member.told(Stopping)
        assert (stopping.why, stopping.running, stopping.in_flight) == ("stop()", 1, 1)
        assert "second signal" in str(stopping)
        assert member.told(Stopped) == []
        bench.work.let_go()
        member.join()
        [stopped] = member.told(Stopped)
    assert (stopped.handled, stopped.skipped, stopped.repeated, stopped.dead_lettered) == (4, 1, 1, 1)
    assert (stopped.failed_attempts, stopped.in_hand) == (2, 0)
    assert stopping.level == stopped.level == logging.INFO


def test_an_error_that_ends_the_app_is_why_it_stops() -> None:
    with Bench(orders=1) as bench:
        bench.work.fail("x", Unretriable("no good"))
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=SETTINGS)
        bench.wait(member.over.is_set)
        member.error = None
    [stopping] = member.told(Stopping)
    assert stopping.why.startswith("HandlerFailed: handle failed for good on orders-0@0")
    assert len(member.told(Stopped)) == 1


def test_duplicates_that_come_while_nothing_moves_are_in_the_next_report() -> None:
    with Bench(orders=1) as bench:
        bench.broker.produce("orders", 0, "x", key="x")
        member = bench.member(settings=SETTINGS, key=record_key())
        bench.wait_committed(1)
        bench.wait(lambda: member.told(RebalanceReport))
        bench.broker.produce("orders", 0, "x", "x", "x", key="x")
        bench.wait_committed(4)
        assert member.app.snapshot().records.suppressed_by_key == 3
    assert [report.duplicates_suppressed for report in member.told(RebalanceReport)] == [0, 3]


def test_what_a_former_owner_did_not_end_counts_as_repeated() -> None:
    with Bench(orders=1) as bench:
        settings = Settings(workers=2, drain_timeout_s=0.01, commit_interval_s=0.01)
        bench.work.hold("x")
        bench.broker.produce("orders", 0, "x")
        first = bench.member("a", settings=settings)
        bench.wait_running("x")
        bench.work.fail("x", ValueError("after its partition went"))
        second = bench.member("b", settings=settings)
        bench.group.aim({second.source: [partition()]})
        bench.wait(lambda: second.owns and not first.owns)
        bench.work.let_go()
        bench.wait_committed(1)
    assert [told.repeated for told in second.told(Stopped)] == [1]
    assert [told.repeated for told in first.told(Stopped)] == [0]


WAITING = """
import logging, sys
from holdfast import Holdfast, MemoryClaims
from holdfast.errors import StoreUnavailable
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

class Away(MemoryClaims):
    def connect(self):
        print("asked", flush=True)
        raise StoreUnavailable("nobody answers")

logging.basicConfig(level=logging.INFO)
app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=Away())
app.handler("orders", name="handle")(print)
app.run()
"""


def test_ctrl_c_while_it_waits_at_the_start_ends_it_without_a_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WAITING],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert "stopped:" in told


def test_the_lines_are_at_info(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"), Bench(orders=1) as bench:
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=SETTINGS)
        bench.wait_committed(1)
        member.stop()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    begun = [line.split(":")[0] for line in said if line.startswith(("assigned", "stopping", "stopped"))]
    assert begun == ["assigned", "stopping", "stopped"]
