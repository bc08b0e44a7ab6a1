"""`holdfast run --processes`: one supervisor, real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.cli.bench import holdfast
from tests.cli.running import ROOT, SHOP, Run, is_alive
from tests.harness.processes import free_ports
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pathlib import Path

TWO = (SHOP, "--processes", 2)


def test_all_drain_once_at_a_signal_whoever_else_got_it(tmp_path: Path) -> None:
    """Systemd signals each process of a service: what a process hears from its supervisor is no second signal."""
    with Run(tmp_path, *TWO, gated=True) as run:
        pids = run.until_seen("begins", 2)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        run.signal(signal.SIGTERM)
        run.until_said("stopping: why=SIGTERM processes=2")
        until(lambda: run.log.count("stopping: group=shop why=SIGTERM") == 2, lambda: run.log)
        assert not run.seen("billed")
        run.open_gate()
        log = run.ends(0)
    assert sorted(run.seen("billed")) == sorted(run.seen("left")) == sorted(pids)
    assert [log.count(f"process {each} has ended (exit code 0)") for each in (0, 1)] == [1, 1]


@pytest.mark.full
def test_a_second_signal_hands_over_what_runs_in_all_of_them(tmp_path: Path) -> None:
    with Run(tmp_path, *TWO, gated=True) as run:
        run.until_seen("begins", 2)
        run.signal(signal.SIGINT)
        until(lambda: run.log.count("stopping: group=shop why=SIGINT") == 2, lambda: run.log)
        run.signal(signal.SIGINT)
        run.ends(0)
    assert len(run.seen("left")) == 2
    assert not run.seen("billed")


def test_a_process_that_is_killed_comes_back_in_its_place_and_the_other_goes_on(tmp_path: Path) -> None:
    with Run(tmp_path, *TWO) as run:
        [first], [second] = (run.until_seen("billed", process=each) for each in (0, 1))
        os.kill(second, signal.SIGKILL)
        pids = run.until_seen("billed", 2, process=1)
        run.signal(signal.SIGTERM)
        log = run.ends(0)
    assert pids[0] == second != pids[1]
    assert run.seen("billed", 0) == [first]
    assert "process 1 has ended (SIGKILL) after " in log
    assert "; it is started again in 0.5 s" in log


def test_a_process_that_ends_again_and_again_ends_all_with_its_exit_code(tmp_path: Path) -> None:
    with Run(tmp_path, *TWO, "--restarts", 1, dies="1", gated=True) as run:
        run.until_seen("begins", process=0)
        run.until_seen("dies", 2)
        run.until_said("stopping: why=process 1 ends again and again")
        run.open_gate()
        log = run.ends(7)
    assert len(run.seen("dies")) == 2
    assert len(run.seen("billed", 0)) == len(run.seen("left", 0)) == 1  # drained
    [line] = [each for each in log.splitlines() if "giving up" in each]
    assert "process 1 has ended (exit code 7) after " in line
    assert ", the 2. time in a row since 20" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tests.harness.memory_shop:ap",), "has no ap: did you mean app"),
        ((SHOP, "--static"), "MemoryPartitionedSource has no static members: leave it out"),
    ],
)
def test_what_no_restart_helps_is_told_once_and_ends_it(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    with Run(tmp_path, *arguments, "--processes", 3) as run:
        log = run.ends(2)
    assert log.count(says) == 1
    assert "process 0 has ended (exit code 2)" in log
    assert "a restart would not help (SettingError)" in log
    assert "process 1" not in log


def test_no_process_outlives_a_supervisor_that_was_killed_and_each_drains(tmp_path: Path) -> None:
    with Run(tmp_path, *TWO, gated=True) as run:
        pids = run.until_seen("begins", 2)
        run.signal(signal.SIGKILL)
        until(lambda: run.log.count('stopping: group=shop why="the supervisor has gone"') == 2, lambda: run.log)
        run.open_gate()
        until(lambda: not any(map(is_alive, pids)), lambda: run.log)
    assert sorted(run.seen("billed")) == sorted(run.seen("left")) == sorted(pids)


def test_a_linger_without_an_end_is_waited_for(tmp_path: Path) -> None:
    endless = {"HOLDFAST_LINGER_TIMEOUT_S": "inf"}
    with Run(tmp_path, *TWO, environment=endless, gated=True) as run:
        pids = run.until_seen("begins", 2)
        run.signal(signal.SIGTERM)
        run.until_said("stopping: why=SIGTERM processes=2 grace_s=inf")
        run.open_gate()
        log = run.ends(0)
    assert sorted(run.seen("billed")) == sorted(run.seen("left")) == sorted(pids)
    assert "Traceback" not in log


def test_within_a_grace_what_runs_is_handed_over_and_what_hangs_is_killed(tmp_path: Path) -> None:
    with Run(tmp_path, *TWO, "--grace", "2s", gated=True) as run:
        [hangs] = run.until_seen("begins", process=0)
        run.until_seen("begins", process=1)
        os.kill(hangs, signal.SIGSTOP)
        run.signal(signal.SIGTERM)
        log = run.ends(1)
    assert run.seen("left") == run.seen("begins", 1)
    assert not run.seen("billed")
    assert "process 1 has ended (exit code 0)" in log
    assert "process 0 has not ended within the grace: it is killed" in log


@pytest.mark.full
def test_each_has_a_port_and_a_health_file_of_its_own(tmp_path: Path) -> None:
    while True:
        [port] = free_ports(1)
        with Run(tmp_path, *TWO, "--port", port, "--health-file", tmp_path / "health") as run:
            until(lambda: run.log.count("serving http") == 2 or "cannot listen" in run.log, lambda: run.log)
            if "cannot listen" in run.log:
                continue  # somebody has the port behind it
            for each in (0, 1):
                with urllib.request.urlopen(f"http://127.0.0.1:{port + each}/status") as answer:
                    assert json.load(answer)["apps"][0]["group"] == "shop"
                until((tmp_path / f"health.{each}").exists)
                holdfast("healthy", tmp_path / f"health.{each}")
            run.signal(signal.SIGTERM)
            run.ends(0)
            return


def _taken_behind_a_free_one() -> socket.socket:
    """A port that is taken; the one before it is free."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


def test_a_port_that_is_still_taken_is_waited_for_and_the_other_process_goes_on(tmp_path: Path) -> None:
    """As by a process that still drains, or by what one that was killed had started."""
    with _taken_behind_a_free_one() as taken:
        port = taken.getsockname()[1] - 1
        with Run(tmp_path, *TWO, "--port", port, "--host", "127.0.0.1") as run:
            [first] = run.until_seen("billed", process=0)
            run.until_said("process 1 has ended (exit code 2) after ")
            run.until_said("; it is started again in 0.5 s")
            taken.close()
            run.until_seen("billed", process=1)
            run.signal(signal.SIGTERM)
            log = run.ends(0)
    assert "cannot listen there" in log
    assert run.seen("billed", 0) == [first]


@pytest.mark.full
def test_the_environment_says_how_many_and_the_command_line_wins(tmp_path: Path) -> None:
    said = {"HOLDFAST_RUN_PROCESSES": "2", "HOLDFAST_RUN_PORT": "none", "HOLDFAST_RUN_HEALTH_FILE": str(tmp_path / "f")}
    with Run(tmp_path, SHOP, "--health-file", tmp_path / "health", environment=said) as run:
        for each in (0, 1):
            until((tmp_path / f"health.{each}").exists, lambda: run.log)
        assert not list(tmp_path.glob("f.*"))
        assert "serving http" not in run.log
        run.signal(signal.SIGTERM)
        run.ends(0)


def test_ctrl_c_at_a_terminal_is_one_stop(tmp_path: Path) -> None:
    """A terminal signals its whole foreground group: the processes are in none of it."""
    with Run(tmp_path, *TWO, gated=True) as run:
        run.until_seen("begins", 2)
        os.killpg(run.process.pid, signal.SIGINT)
        until(lambda: run.log.count("stopping: group=shop why=SIGINT") == 2, lambda: run.log)
        assert "a second signal: " not in run.log
        run.open_gate()
        run.ends(0)
    assert len(run.seen("billed")) == 2


@pytest.mark.full
def test_what_an_app_starts_is_not_supervised(tmp_path: Path) -> None:
    code = "import os; print(sorted(each for each in os.environ if each.startswith('HOLDFAST_')))"
    (tmp_path / "starts.py").write_text(
        "import subprocess, sys\nfrom tests.harness.memory_shop import app\n"
        f"print(subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True).stdout)\n"
    )
    with Run(tmp_path, "starts:app", "--processes", 1 + 1, cwd=tmp_path) as run:
        run.until_said("['HOLDFAST_PROCESS']")
        run.signal(signal.SIGTERM)
        run.process.wait(PATIENCE_S)
    assert "HOLDFAST_LIFELINE" not in run.log


def test_the_command_explains_itself() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--processes N" in told
    assert "--static [PREFIX]" in told
